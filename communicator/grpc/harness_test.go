package grpc

// Shared by the tests of calls: workers that are served on loopback, and faults
// between them and the caller.

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/internal/testca"
	"github.com/f8949c05/orchestrator/worker"
)

// servedWorker is a worker and its server.
type servedWorker struct {
	worker *worker.Worker[string]
	gate   *grpctest.Gate
	tasks  *grpctest.Tasks
	addr   string
	stop   func() // stops the server
}

func (s *servedWorker) as(name string) WorkerID { return WorkerID{name, s.worker.Incarnation()} }

// newServedWorker starts a worker that runs its tasks until they are stopped.
func newServedWorker(t testing.TB, opts ...Option) *servedWorker {
	t.Helper()
	return newServed(t, nil, opts...)
}

// newServed is newServedWorker with jobs: before each of its tasks the worker calls
// before, which may let it move. nil: its tasks are no jobs.
func newServed(t testing.TB, before func(ctx context.Context, task string), opts ...Option) *servedWorker {
	t.Helper()
	s := &servedWorker{gate: &grpctest.Gate{}, tasks: &grpctest.Tasks{}}
	run, options := s.tasks.Run, []worker.Option{worker.WithAccept(s.tasks.Accept)}
	if before != nil {
		run = func(ctx context.Context, task string) error {
			before(ctx, task)
			return s.tasks.Run(ctx, task)
		}
		options = append(options, worker.WithCompletion(func(string) {}))
	}
	w, err := worker.New(run, options...)
	require.NoError(t, err)
	s.worker = w
	t.Cleanup(func() { require.NoError(t, w.Close(context.WithoutCancel(t.Context()))) })
	s.addr, s.stop = listen(t, s, "127.0.0.1:0", opts...)
	return s
}

// listen serves a worker at an address until stop is called or the test ends.
func listen(t testing.TB, s *servedWorker, address string, opts ...Option) (addr string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	serverOpts := []ServerOption{gated{s.gate}}
	for _, opt := range opts {
		serverOpts = append(serverOpts, opt)
	}
	server, err := NewServer(s.worker, serverOpts...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.ErrorIs(t, <-served, context.Canceled)
	})
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// gated is the option of a server whose calls pass a gate.
type gated struct{ *grpctest.Gate }

func (g gated) ApplyServer(s *option.Server) {
	s.Serving = append(s.Serving, grpc.UnaryInterceptor(g.Pass))
}

// behind returns a proxy for an address.
func behind(t testing.TB, address string) *netfault.Proxy {
	t.Helper()
	p, err := netfault.New(address)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// with returns the option to use files.
func with(t testing.TB, files testca.Files) Option {
	t.Helper()
	c, err := LoadCredentials(files.Cert, files.Key, files.CA)
	require.NoError(t, err)
	return WithCredentials(c)
}

func communicator(t testing.TB, opts ...CommunicatorOption) *Communicator {
	t.Helper()
	c, err := NewCommunicator(opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// connected returns a Communicator with one worker, w.
func connected(t testing.TB, s *servedWorker, opts ...CommunicatorOption) (*Communicator, WorkerID) {
	t.Helper()
	c := communicator(t, opts...)
	w := s.as("w")
	introduce(t, c, w, s.addr)
	return c, w
}

func introduce(t testing.TB, c *Communicator, w WorkerID, address string) {
	t.Helper()
	require.NoError(t, c.Connect(w, address))
}

// inTerm returns the context of a call in a term of epoch 5.
func inTerm(t testing.TB, number uint64) context.Context {
	return orchestrator.ContextWithTerm(t.Context(), orchestrator.Term{Epoch: 5, Number: number})
}

func within(ctx context.Context, t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(ctx, d)
	t.Cleanup(cancel)
	return ctx
}

// impostor serves the fake as a worker, and returns a Communicator that knows it.
func impostor(t testing.TB, f *grpctest.Fake, opts ...CommunicatorOption) (*Communicator, WorkerID) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := peer.Defaults()
	server, accepting, err := s.NewServer(l, 0)
	require.NoError(t, err)
	orchestratorv1.RegisterWorkerServer(server, f)
	served := make(chan error, 1)
	go func() { served <- server.Serve(accepting) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-served)
	})
	c := communicator(t, opts...)
	w := WorkerID{"fake", 1}
	introduce(t, c, w, l.Addr().String())
	return c, w
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
