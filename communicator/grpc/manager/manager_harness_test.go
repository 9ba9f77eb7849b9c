package manager

// Shared by the tests of the Manager: a network in a synctest bubble, managers, and
// workers whose calls to the manager are made by the test.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
)

// testNet is a network in a bubble, with everything that runs on it.
type testNet struct {
	t    *testing.T
	logs strings.Builder // of the managers; read it only when they are idle or have ended
	mu   sync.Mutex
	at   map[string]net.Listener
	bend func(address string, line net.Conn) net.Conn // wraps connections; nil: it does not
	runs map[string][]string                          // by task: the workers that run it
	ever map[string][]string                          // by task: the workers that have ever started it
	ails error                                        // error of the tasks that would complete immediately; nil: they complete
}

const managerAt = "manager.test:7000"

func inTestNet(t *testing.T, f func(t *testing.T, o *testNet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, &testNet{
			t: t, at: make(map[string]net.Listener),
			runs: make(map[string][]string), ever: make(map[string][]string),
		})
	})
}

func (o *testNet) listen(address string) net.Listener {
	l := newPipeListener()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.at[address] = l
	return l
}

func (o *testNet) dial(ctx context.Context, address string) (net.Conn, error) {
	o.mu.Lock()
	l, _ := o.at[address].(*pipeListener)
	bend := o.bend
	o.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("no listener at %s", address)
	}
	line, err := l.Dial(ctx)
	if err == nil && bend != nil {
		line = bend(address, line)
	}
	return line, err
}

// stuck is a connection on which writes block from some time on, because the peer
// does not read.
type stuck struct {
	net.Conn
	from, closed chan struct{}
	closing      sync.Once
}

func (s *stuck) Write(b []byte) (int, error) {
	select {
	case <-s.from:
		<-s.closed
		return 0, net.ErrClosed
	default:
		return s.Conn.Write(b)
	}
}

func (s *stuck) Close() error {
	s.closing.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

func (o *testNet) dialing() grpc.DialOption { return grpc.WithContextDialer(o.dial) }

// runningManager is a Manager while its Run is called.
type runningManager struct {
	*Manager
	o    *testNet
	stop context.CancelCauseFunc
	done chan error
}

var errClosing = errors.New("closing time")

// open starts a manager with a store. It is closed when the test ends.
func (o *testNet) open(store Store, opts ...Option) *runningManager {
	o.t.Helper()
	m, err := New(store, append([]Option{communicator.WithLogger(slog.New(slog.NewTextHandler(&o.logs, nil))), optionFunc(func(s *option.Manager) {
		s.Dialing = []grpc.DialOption{o.dialing()}
	})}, opts...)...)
	require.NoError(o.t, err)
	ctx, stop := context.WithCancelCause(o.t.Context())
	s := &runningManager{Manager: m, o: o, stop: stop, done: make(chan error, 1)}
	l := o.listen(managerAt)
	go func() { s.done <- m.Run(ctx, l) }()
	o.t.Cleanup(func() { stop(errClosing) })
	synctest.Wait()
	return s
}

// close ends a manager, and requires that it ends without an error.
func (s *runningManager) close() {
	s.o.t.Helper()
	s.stop(errClosing)
	require.ErrorIs(s.o.t, <-s.done, errClosing)
}

// receipt returns the receipt for a version of a task that the manager gives to a
// worker.
func (s *runningManager) receipt(worker, task string, version int64) []byte {
	r := s.committer.key.Issue(worker, task, version)
	return r[:]
}

// put makes tasks expected.
func (s *runningManager) put(names ...string) {
	s.o.t.Helper()
	for _, name := range names {
		_, err := s.Put(s.o.t.Context(), Item{Name: name, Content: []byte("content of " + name)})
		require.NoError(s.o.t, err)
	}
}

// testWorker is a worker with a server. The test makes its calls to the manager.
type testWorker struct {
	*worker.Worker[string]
	o       *testNet
	name    string
	address string
	gate    *grpctest.Gate
	keeps   chan struct{} // its tasks do not stop before this is closed; nil: they stop
	manager orchestratorv1.ManagerClient
	unserve func()
}

// newWorker serves a worker at an address with its name.
func (o *testNet) newWorker(name string, opts ...worker.Option) *testWorker {
	o.t.Helper()
	h := &testWorker{o: o, name: name, address: name + ".test:7000", gate: &grpctest.Gate{}}
	w, err := worker.New(h.run, opts...)
	require.NoError(o.t, err)
	h.Worker = w
	conn, err := settingsOf(o.t).Dial(managerAt, identity.Principal{Role: identity.RoleManager}, o.dialing())
	require.NoError(o.t, err)
	h.manager = orchestratorv1.NewManagerClient(conn)
	h.serve()
	o.t.Cleanup(func() {
		h.unserve()
		require.NoError(o.t, conn.Close())
		require.NoError(o.t, w.Close(context.WithoutCancel(o.t.Context())))
	})
	return h
}

// run runs a task. Tasks named short complete immediately, those named job run as
// jobs, and the others can be moved.
func (h *testWorker) run(ctx context.Context, task string) error {
	content, _ := worker.Content(ctx)
	if want := "content of " + task; string(content) != want {
		h.o.t.Errorf("%s on %s has %q, want %q", task, h.name, content, want)
	}
	h.o.mu.Lock()
	h.o.runs[task] = append(h.o.runs[task], h.name)
	h.o.ever[task] = append(h.o.ever[task], h.name)
	h.o.mu.Unlock()
	defer func() {
		h.o.mu.Lock()
		defer h.o.mu.Unlock()
		h.o.runs[task] = slices.DeleteFunc(h.o.runs[task], func(at string) bool { return at == h.name })
	}()
	if h.keeps != nil && !strings.HasPrefix(task, "prompt") {
		<-h.keeps
		return nil
	}
	if strings.HasPrefix(task, "job") {
		<-ctx.Done()
		return nil
	}
	if !strings.HasPrefix(task, "short") {
		worker.Movable(ctx)
		<-ctx.Done()
		return nil
	}
	h.o.mu.Lock()
	defer h.o.mu.Unlock()
	return h.o.ails
}

// fail makes tasks that would complete immediately fail instead.
func (o *testNet) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ails = err
}

// gatedWorker is the option of a server whose calls pass a gate.
type gatedWorker struct{ *grpctest.Gate }

func (g gatedWorker) ApplyServer(s *option.Server) {
	s.Serving = append(s.Serving, grpc.UnaryInterceptor(g.Pass))
}

func (h *testWorker) serve() {
	h.o.t.Helper()
	server, err := communicator.NewServer(h.Worker, gatedWorker{h.gate})
	require.NoError(h.o.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.o.t.Context()))
	l := h.o.listen(h.address)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(ctx, l)
	}()
	h.unserve = sync.OnceFunc(func() {
		cancel()
		<-done
		h.o.mu.Lock()
		defer h.o.mu.Unlock()
		delete(h.o.at, h.address)
	})
}

func (h *testWorker) as() communicator.Worker {
	return communicator.Worker{Name: h.name, Incarnation: h.Incarnation()}
}

// asks returns its registration request.
func (h *testWorker) asks() *orchestratorv1.RegisterRequest {
	return &orchestratorv1.RegisterRequest{
		Worker: []byte(h.name), Incarnation: h.Incarnation(), Address: h.address, Lease: durationpb.New(aLease),
	}
}

func (h *testWorker) register() error {
	_, err := h.manager.Register(h.o.t.Context(), h.asks())
	return err
}

func (h *testWorker) beat() error {
	_, err := h.manager.Heartbeat(h.o.t.Context(), &orchestratorv1.HeartbeatRequest{Worker: []byte(h.name), Incarnation: h.Incarnation()})
	return err
}

func (h *testWorker) leave() error {
	_, err := h.manager.Leave(h.o.t.Context(), &orchestratorv1.LeaveRequest{Worker: []byte(h.name), Incarnation: h.Incarnation()})
	return err
}

// registerWorkers returns registered workers, which send heartbeats in pass.
func (o *testNet) registerWorkers(names ...string) []*testWorker {
	o.t.Helper()
	var workers []*testWorker
	for _, name := range names {
		h := o.newWorker(name)
		require.NoError(o.t, h.register())
		workers = append(workers, h)
	}
	return workers
}

// pass waits for a duration, while some workers send heartbeats.
func (o *testNet) pass(d time.Duration, beating ...*testWorker) {
	o.t.Helper()
	for end := time.Now().Add(d); ; {
		for _, h := range beating {
			require.NoError(o.t, h.beat())
		}
		left := time.Until(end)
		if left <= 0 {
			synctest.Wait()
			return
		}
		time.Sleep(min(left, aLease/4))
	}
}

// where returns the workers of each running task.
func (o *testNet) where() map[string]string {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	where := make(map[string]string)
	for task, at := range o.runs {
		if len(at) > 0 {
			where[task] = strings.Join(slices.Sorted(slices.Values(at)), " ")
		}
	}
	return where
}

// starts returns the number of starts of all tasks.
func (o *testNet) starts() int {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, at := range o.ever {
		n += len(at)
	}
	return n
}

// spread returns the number of tasks on each worker.
func (o *testNet) spread() map[string]int {
	spread := make(map[string]int)
	for at := range maps.Values(o.where()) {
		spread[at]++
	}
	return spread
}

func code(err error) codes.Code { return status.Code(err) }
