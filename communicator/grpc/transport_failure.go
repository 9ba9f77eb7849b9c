package grpc

// Why a call failed: what gRPC puts into words only, as an error that can be told
// from others.

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// failure is why a client's last handshake failed.
type failure struct {
	last atomic.Pointer[error]
}

func (f *failure) remember(err error) error {
	f.last.Store(&err)
	return err
}

func (f *failure) forget() { f.last.Store(nil) }

// explain is an interceptor. gRPC answers Unavailable to calls on a connection that
// cannot be made; the text is of the attempt that was the last one then.
// Only if it is that of the handshake remembered has the call failed of that.
func (f *failure) explain(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	switch s.Code() {
	case codes.Unauthenticated, codes.PermissionDenied: // so says the other end
		return &callError{status: s, cause: ErrCertificate}
	case codes.Unavailable, codes.DeadlineExceeded:
		if last := f.last.Load(); last != nil && quotes(s.Message(), *last) {
			return &callError{status: status.New(s.Code(), (*last).Error()), cause: *last}
		}
	}
	return err
}

// quotes says whether gRPC's text tells of an error, as it does in quotes.
func quotes(text string, err error) bool {
	quoted := strconv.Quote(err.Error())
	return strings.Contains(text, quoted[1:len(quoted)-1])
}

// callError is the status of a call, and what lies behind it.
type callError struct {
	status *status.Status
	cause  error
}

func (e *callError) Error() string { return e.status.Err().Error() }

func (e *callError) Unwrap() error { return e.cause }

// GRPCStatus is for status.FromError.
func (e *callError) GRPCStatus() *status.Status { return e.status }
