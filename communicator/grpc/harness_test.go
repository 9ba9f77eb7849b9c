package grpc

// Shared by the tests of calls: workers that are served on loopback, and faults
// between them and the caller.

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
)

// site is a worker and its server.
type site struct {
	worker *worker.Worker[string]
	gate   *holding
	tasks  *pickiness
	addr   string
	stop   func() // stops the server
}

func (s *site) as(name string) Worker { return Worker{name, s.worker.Incarnation()} }

// hire starts a worker that runs its tasks until they are stopped.
func hire(t testing.TB, opts ...Option) *site {
	t.Helper()
	s := &site{gate: &holding{}, tasks: &pickiness{}}
	w, err := worker.New(s.tasks.run, worker.WithAccept(s.tasks.accept))
	require.NoError(t, err)
	s.worker = w
	t.Cleanup(func() { require.NoError(t, w.Close(context.WithoutCancel(t.Context()))) })
	s.addr, s.stop = listen(t, s, "127.0.0.1:0", opts...)
	return s
}

// listen serves a worker at an address until stop is called or the test ends.
func listen(t testing.TB, s *site, address string, opts ...Option) (addr string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	serverOpts := []ServerOption{s.gate}
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

// behind returns a proxy for an address.
func behind(t testing.TB, address string) *netfault.Proxy {
	t.Helper()
	p, err := netfault.New(address)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func communicator(t testing.TB, opts ...CommunicatorOption) *Communicator {
	t.Helper()
	c, err := NewCommunicator(opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// connected returns a Communicator with one worker, w.
func connected(t testing.TB, s *site, opts ...CommunicatorOption) (*Communicator, Worker) {
	t.Helper()
	c := communicator(t, opts...)
	w := s.as("w")
	introduce(t, c, w, s.addr)
	return c, w
}

func introduce(t testing.TB, c *Communicator, w Worker, address string) {
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

// pickiness configures a worker's tasks: which are refused, and which take long to
// stop.
type pickiness struct {
	mu      sync.Mutex
	refused []string
	linger  map[string]chan struct{}
}

func (p *pickiness) run(ctx context.Context, task string) error {
	<-ctx.Done()
	p.mu.Lock()
	end := p.linger[task]
	p.mu.Unlock()
	if end != nil {
		<-end
	}
	return nil
}

func (p *pickiness) lingers(task string) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.linger == nil {
		p.linger = map[string]chan struct{}{}
	}
	ended := make(chan struct{})
	p.linger[task] = ended
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.linger, task)
		close(ended)
	}
}

func (p *pickiness) refuse(task string) (accept func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = append(p.refused, task)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.refused = slices.DeleteFunc(p.refused, func(other string) bool { return other == task })
	}
}

func (p *pickiness) accept(_ context.Context, task string, _ []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.refused, task) {
		return errors.New("not that one")
	}
	return nil
}

// holding delays calls that have arrived at a worker. A delayed call outlives its
// caller, as it would in a queue.
type holding struct {
	mu   sync.Mutex
	all  chan struct{} // of every call; closed on release; nil: open
	some chan struct{} // of writes
	held sync.WaitGroup
}

func (g *holding) pass(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	g.mu.Lock()
	until := g.all
	if until == nil && info.FullMethod == orchestratorv1.Worker_Apply_FullMethodName {
		until = g.some
	}
	if until != nil {
		g.held.Add(1)
		defer g.held.Done()
	}
	g.mu.Unlock()
	if until != nil {
		<-until
		ctx = context.WithoutCancel(ctx)
	}
	return handle(ctx, req)
}

// ApplyServer makes the holding an option of a server.
func (g *holding) ApplyServer(s *option.Server) {
	s.Serving = append(s.Serving, grpc.UnaryInterceptor(g.pass))
}

// hold closes a gate. release opens it, and returns when the delayed calls have been
// processed.
func (g *holding) hold(gate *chan struct{}) (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	closed := make(chan struct{})
	*gate = closed
	return func() {
		g.mu.Lock()
		*gate = nil
		close(closed)
		g.mu.Unlock()
		g.held.Wait()
	}
}
