package manager

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	rpcpeer "google.golang.org/grpc/peer"

	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
	"github.com/f8949c05/orchestrator/internal/testca"
	"github.com/f8949c05/orchestrator/worker"
)

const (
	aLease      = 10 * time.Second
	unreachable = 30 * time.Second
)

var aManager = identity.Principal{Role: identity.RoleManager}

// settingsOf returns the settings for some options.
func settingsOf(t *testing.T, opts ...communicator.Option) *peer.Settings {
	t.Helper()
	s := option.Member{Settings: peer.Defaults()}
	for _, opt := range opts {
		opt.ApplyMember(&s)
	}
	return &s.Settings
}

// connect dials an identity at an address until the test ends.
func connect(t *testing.T, address string, who identity.Principal, opts ...communicator.Option) *grpc.ClientConn {
	t.Helper()
	conn, err := settingsOf(t, opts...).Dial(address, who)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

// with returns the option to use files.
func with(t *testing.T, files testca.Files) communicator.Option {
	t.Helper()
	c, err := communicator.LoadCredentials(files.Cert, files.Key, files.CA)
	require.NoError(t, err)
	return communicator.WithCredentials(c)
}

// logged returns the option to log to a journal.
func logged(j *grpctest.Journal) communicator.Option { return communicator.WithLogger(j.Logger()) }

// manage runs a manager until the test ends, and returns its address.
func manage(t *testing.T, opts ...Option) (m *Manager, address string) {
	t.Helper()
	m, err := New(NewMemoryStore(), opts...)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel(errClosing)
		require.ErrorIs(t, <-done, errClosing)
	})
	return m, l.Addr().String()
}

// probedWithin shortens the time that registering workers have to answer.
func probedWithin(d time.Duration) Option {
	return optionFunc(func(s *option.Manager) { s.Probing = d })
}

// servedWorker is a worker that is served on loopback.
type servedWorker struct {
	*worker.Worker[string]
	addr string
}

// serveWorker serves a worker until the test ends.
func serveWorker(t *testing.T, opts ...communicator.Option) *servedWorker {
	t.Helper()
	w, err := worker.New(func(ctx context.Context, _ string) error { <-ctx.Done(); return nil })
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close(context.WithoutCancel(t.Context()))) })
	var serverOpts []communicator.ServerOption
	for _, opt := range opts {
		serverOpts = append(serverOpts, opt)
	}
	server, err := communicator.NewServer(w, serverOpts...)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-served, context.Canceled)
	})
	return &servedWorker{w, l.Addr().String()}
}

// localCall returns the context of a call that came without TLS.
func localCall(t testing.TB) context.Context {
	return rpcpeer.NewContext(t.Context(), &rpcpeer.Peer{AuthInfo: &peer.Security{Plaintext: true}})
}

// pipeListener is a listener whose connections are pipes. gRPC's bufconn creates timers
// that are due immediately for each connection. Go 1.26 with the race detector
// sometimes crashes when it runs such timers in a bubble.
type pipeListener struct {
	calls  chan net.Conn
	closed chan struct{}
	close  func()
}

func newPipeListener() *pipeListener {
	closed := make(chan struct{})
	return &pipeListener{calls: make(chan net.Conn), closed: closed, close: sync.OnceFunc(func() { close(closed) })}
}

// Dial returns a connection when it has been accepted.
func (l *pipeListener) Dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.calls <- there:
		return here, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept implements [net.Listener].
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.calls:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *pipeListener) Close() error {
	l.close()
	return nil
}

// Addr implements [net.Listener].
func (l *pipeListener) Addr() net.Addr { return wireAddr{} }

type wireAddr struct{}

func (wireAddr) Network() string { return "pipe" }
func (wireAddr) String() string  { return "pipe" }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
