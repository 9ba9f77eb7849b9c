package peer

// Connections: how servers listen and clients dial, and their limits.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
)

const (
	// handshakeTimeout is the time to establish a connection. A refused client is
	// disconnected when it is over.
	handshakeTimeout = 5 * time.Second
	// connectTimeout is the time of one attempt to connect to a machine. A short one
	// finds a network that has recovered sooner.
	connectTimeout = time.Second
	// A silent peer is pinged, and is dead if it does not answer.
	keepaliveTime, keepaliveTimeout = 10 * time.Second, 3 * time.Second
	// Connections are renewed regularly, so that peers must present their
	// certificates again. Calls under way get connectionAgeGrace to end.
	connectionAge, connectionAgeGrace = time.Hour, time.Minute
	// A worker has few calls at the same time, in either direction.
	maxStreams = 64
	// Headers are few and short in this protocol.
	maxHeaders = 16 << 10
	// The flow-control windows of a call and of a connection. They are static, so
	// they do not grow with what a peer sends.
	callWindow, connectionWindow = 1 << 20, 4 << 20
)

// NewServer returns a server for a listener, and the listener to serve in its place.
// With TLS it admits connections of one role, or of all if serves is 0. opts come
// after its own options.
func (s *Settings) NewServer(l net.Listener, serves identity.Role, opts ...grpc.ServerOption) (*grpc.Server, net.Listener, error) {
	if s.Credentials == nil && !s.Plaintext && !isLocal(l.Addr()) {
		return nil, nil, fmt.Errorf("serve on %s: %w", l.Addr(), ErrPlaintext)
	}
	log := newRefusalLog(s.Logger)
	own := []grpc.ServerOption{
		grpc.InTapHandle(authorize),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxRecvMsgSize(s.MaxMessage),
		grpc.MaxSendMsgSize(s.MaxMessage),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.StaticStreamWindowSize(callWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time:                  keepaliveTime,
			Timeout:               keepaliveTimeout,
			MaxConnectionAge:      connectionAge,
			MaxConnectionAgeGrace: connectionAgeGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             keepaliveTime / 2,
			PermitWithoutStream: true,
		}),
	}
	if s.Credentials != nil {
		s.Credentials.announce(s.Logger)
		own = append(own, grpc.Creds(&tlsCredentials{Credentials: s.Credentials, refusals: log, serves: serves}))
	} else {
		own = append(own, grpc.Creds(&plaintextCredentials{refusals: log}))
	}
	return grpc.NewServer(append(own, opts...)...), newConnLimiter(l, log), nil
}

// Grace is how long calls under way may take when a server ends.
const Grace = 2 * time.Second

// Stop stops a server, and waits for the calls under way for at most Grace.
func Stop(server *grpc.Server) {
	timer := time.AfterFunc(Grace, server.Stop)
	defer timer.Stop()
	server.GracefulStop()
}

// Dial returns a connection to an address, at which a peer of the given identity
// must serve. It connects at the first use, and again whenever the connection is
// lost. opts come after its own options. An error of a call is a status, and also
// wraps ErrCertificate or ErrPlaintext if that is the cause.
func (s *Settings) Dial(address string, who identity.Principal, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	again := backoff.DefaultConfig
	again.BaseDelay, again.MaxDelay = 50*time.Millisecond, time.Second
	dialer := net.Dialer{Timeout: connectTimeout}
	f := &handshakeFailure{}
	own := []grpc.DialOption{
		grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}),
		grpc.WithChainUnaryInterceptor(f.explain),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: handshakeTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(s.MaxMessage), grpc.MaxCallSendMsgSize(s.MaxMessage)),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithStaticStreamWindowSize(callWindow),
		grpc.WithStaticConnWindowSize(connectionWindow),
		grpc.WithIdleTimeout(0),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time:                keepaliveTime,
			Timeout:             keepaliveTimeout,
			PermitWithoutStream: true,
		}),
	}
	log := newRefusalLog(s.Logger)
	if s.Credentials != nil {
		own = append(own, grpc.WithTransportCredentials(&tlsCredentials{Credentials: s.Credentials, refusals: log, want: who, failure: f}))
	} else {
		own = append(own, grpc.WithTransportCredentials(&plaintextCredentials{anywhere: s.Plaintext, refusals: log, failure: f}))
	}
	conn, err := grpc.NewClient("passthrough:///"+address, append(own, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("dial %s at %s: %w", who, address, err)
	}
	return conn, nil
}

// Settings holds the options for every constructor.
type Settings struct {
	Logger      *slog.Logger
	Credentials *Credentials // nil: plaintext
	Plaintext   bool         // allowed off loopback
	MaxMessage  int          // bytes
	problems    []error
}

// Defaults returns the settings without options.
func Defaults() Settings {
	return Settings{Logger: slog.New(slog.DiscardHandler), MaxMessage: 16 << 20}
}

// Err returns all problems with the options, joined, or nil.
func (s *Settings) Err() error { return errors.Join(s.problems...) }

// Invalid records a problem with an option or an argument. The error wraps
// [orchestrator.ErrInvalid].
func (s *Settings) Invalid(format string, args ...any) {
	s.problems = append(s.problems, fmt.Errorf("%w: "+format, append([]any{orchestrator.ErrInvalid}, args...)...))
}

// Reject records an error of an option or an argument; nil is ignored.
func (s *Settings) Reject(err error) { s.problems = append(s.problems, err) }

// Absent reports whether an argument is nil, or an interface around a nil pointer,
// such as the result of a constructor whose error was ignored.
func Absent(v any) bool {
	if v == nil {
		return true
	}
	value := reflect.ValueOf(v)
	return value.Kind() == reflect.Pointer && value.IsNil()
}

// Identify records a problem if the credentials do not suit the identity under which
// this end serves and calls.
func (s *Settings) Identify(as identity.Principal) {
	if s.Credentials != nil {
		s.Reject(s.Credentials.suits(as))
	}
}

// handshakeFailure holds the error of a client's last handshake.
type handshakeFailure struct {
	last atomic.Pointer[error]
}

func (f *handshakeFailure) remember(err error) error {
	f.last.Store(&err)
	return err
}

// explain is an interceptor. If a connection cannot be made, gRPC returns
// Unavailable, with the text of its last attempt. Only if that text quotes the
// remembered handshake error is that error the cause.
func (f *handshakeFailure) explain(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	switch s.Code() {
	case codes.Unauthenticated, codes.PermissionDenied: // the peer does not accept the certificate
		return &Error{Text: s.Message(), Causes: []error{ErrCertificate, err}}
	case codes.Unavailable, codes.DeadlineExceeded:
		if last := f.last.Load(); last != nil && quotes(s.Message(), *last) {
			return &Error{Text: (*last).Error(), Causes: []error{*last, err}}
		}
		if strings.Contains(s.Message(), "server preface") { // the first bytes of a server
			return status.Errorf(s.Code(), "%s: does only the other side use TLS (WithCredentials)?", s.Message())
		}
	}
	return err
}

// quotes reports whether gRPC's text contains an error, as it does in quotes.
func quotes(text string, err error) bool {
	quoted := strconv.Quote(err.Error())
	return strings.Contains(text, quoted[1:len(quoted)-1])
}

// Error is an error with a text of its own.
type Error struct {
	Text   string
	Causes []error // that it wraps
}

func (e *Error) Error() string { return e.Text }

// Unwrap returns the causes. Among those of a call is its status, for status.FromError.
func (e *Error) Unwrap() []error { return e.Causes }
