package grpc

// The cause of a failed connection. gRPC reports it as text only; here it becomes an
// error that programs can test for.

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// failure holds the error of a client's last handshake.
type failure struct {
	last atomic.Pointer[error]
}

func (f *failure) remember(err error) error {
	f.last.Store(&err)
	return err
}

func (f *failure) forget() { f.last.Store(nil) }

// explain is an interceptor. If a connection cannot be made, gRPC returns
// Unavailable, with the text of its last attempt. Only if that text quotes the
// remembered handshake error is that error the cause.
func (f *failure) explain(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	switch s.Code() {
	case codes.Unauthenticated, codes.PermissionDenied: // the peer does not accept the certificate
		return &callError{status: s, cause: ErrCertificate}
	case codes.Unavailable, codes.DeadlineExceeded:
		if last := f.last.Load(); last != nil && quotes(s.Message(), *last) {
			return &callError{status: status.New(s.Code(), (*last).Error()), cause: *last}
		}
	}
	return err
}

// quotes reports whether gRPC's text contains an error, as it does in quotes.
func quotes(text string, err error) bool {
	quoted := strconv.Quote(err.Error())
	return strings.Contains(text, quoted[1:len(quoted)-1])
}

// callError is the status of a call with its cause.
type callError struct {
	status *status.Status
	cause  error
}

func (e *callError) Error() string { return e.status.Err().Error() }

func (e *callError) Unwrap() error { return e.cause }

// GRPCStatus returns the status, for status.FromError.
func (e *callError) GRPCStatus() *status.Status { return e.status }
