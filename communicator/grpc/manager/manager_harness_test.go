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

func inTestNet(t *testing.T, f func(t *testing.T, n *testNet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, &testNet{
			t: t, at: make(map[string]net.Listener),
			runs: make(map[string][]string), ever: make(map[string][]string),
		})
	})
}

// withManager is inTestNet with a manager that begins with an empty store.
func withManager(t *testing.T, f func(t *testing.T, n *testNet, m *runningManager)) {
	t.Helper()
	inTestNet(t, func(t *testing.T, n *testNet) { f(t, n, n.open(NewMemoryStore())) })
}

func (n *testNet) listen(address string) net.Listener {
	l := newPipeListener()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at[address] = l
	return l
}

func (n *testNet) dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	l, _ := n.at[address].(*pipeListener)
	bend := n.bend
	n.mu.Unlock()
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

func (n *testNet) dialing() grpc.DialOption { return grpc.WithContextDialer(n.dial) }

// runningManager is a Manager while its Run is called.
type runningManager struct {
	*Manager
	n     *testNet
	store Store
	stop  context.CancelCauseFunc
	done  chan error
}

var errClosing = errors.New("closing time")

// open starts a manager with a store. It is closed when the test ends.
func (n *testNet) open(store Store, opts ...Option) *runningManager {
	n.t.Helper()
	manager, err := New(store, append([]Option{communicator.WithLogger(slog.New(slog.NewTextHandler(&n.logs, nil))), optionFunc(func(s *option.Manager) {
		s.Dialing = []grpc.DialOption{n.dialing()}
	})}, opts...)...)
	require.NoError(n.t, err)
	ctx, stop := context.WithCancelCause(n.t.Context())
	m := &runningManager{Manager: manager, n: n, store: store, stop: stop, done: make(chan error, 1)}
	l := n.listen(managerAt)
	go func() { m.done <- manager.Run(ctx, l) }()
	n.t.Cleanup(func() { stop(errClosing) })
	synctest.Wait()
	return m
}

// close ends a manager, and requires that it ends without an error.
func (m *runningManager) close() {
	m.n.t.Helper()
	m.stop(errClosing)
	require.ErrorIs(m.n.t, <-m.done, errClosing)
}

// receipt returns the receipt for a version of a task that the manager gives to a
// worker.
func (m *runningManager) receipt(worker, task string, version int64) []byte {
	r := m.committer.key.Issue(worker, task, version)
	return r[:]
}

// items returns the first ten tasks that are expected.
func (m *runningManager) items() []Item {
	m.n.t.Helper()
	items, err := m.Items("", 10)
	require.NoError(m.n.t, err)
	return items
}

// completed returns the first ten completions.
func (m *runningManager) completed() []Completion {
	m.n.t.Helper()
	done, err := m.Completed("", 10)
	require.NoError(m.n.t, err)
	return done
}

// put makes tasks expected.
func (m *runningManager) put(names ...string) {
	m.n.t.Helper()
	for _, name := range names {
		_, err := m.Put(m.n.t.Context(), Item{Name: name, Content: []byte("content of " + name)})
		require.NoError(m.n.t, err)
	}
}

// testWorker is a worker with a server. The test makes its calls to the manager.
type testWorker struct {
	*worker.Worker[string]
	n       *testNet
	name    string
	address string
	gate    *grpctest.Gate
	keeps   chan struct{} // its tasks do not stop before this is closed; nil: they stop
	manager orchestratorv1.ManagerClient
	unserve func()
}

// newWorker serves a worker at an address with its name.
func (n *testNet) newWorker(name string, opts ...worker.Option) *testWorker {
	n.t.Helper()
	w := &testWorker{n: n, name: name, address: name + ".test:7000", gate: &grpctest.Gate{}}
	var err error
	w.Worker, err = worker.New(w.run, opts...)
	require.NoError(n.t, err)
	conn, err := settingsOf(n.t).Dial(managerAt, identity.Principal{Role: identity.RoleManager}, n.dialing())
	require.NoError(n.t, err)
	w.manager = orchestratorv1.NewManagerClient(conn)
	w.serve()
	n.t.Cleanup(func() {
		w.unserve()
		require.NoError(n.t, conn.Close())
		require.NoError(n.t, w.Close(context.WithoutCancel(n.t.Context())))
	})
	return w
}

// run runs a task. Tasks named short complete immediately, those named job run as
// jobs, and the others can be moved.
func (w *testWorker) run(ctx context.Context, task string) error {
	content, _ := worker.Content(ctx)
	if want := "content of " + task; string(content) != want {
		w.n.t.Errorf("%s on %s has %q, want %q", task, w.name, content, want)
	}
	w.n.mu.Lock()
	w.n.runs[task] = append(w.n.runs[task], w.name)
	w.n.ever[task] = append(w.n.ever[task], w.name)
	w.n.mu.Unlock()
	defer func() {
		w.n.mu.Lock()
		defer w.n.mu.Unlock()
		w.n.runs[task] = slices.DeleteFunc(w.n.runs[task], func(at string) bool { return at == w.name })
	}()
	if w.keeps != nil && !strings.HasPrefix(task, "prompt") {
		<-w.keeps
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
	w.n.mu.Lock()
	defer w.n.mu.Unlock()
	return w.n.ails
}

// fail makes tasks that would complete immediately fail instead.
func (n *testNet) fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ails = err
}

// gatedWorker is the option of a server whose calls pass a gate.
type gatedWorker struct{ *grpctest.Gate }

func (g gatedWorker) ApplyServer(s *option.Server) {
	s.Serving = append(s.Serving, grpc.UnaryInterceptor(g.Pass))
}

func (w *testWorker) serve() {
	w.n.t.Helper()
	server, err := communicator.NewServer(w.Worker, gatedWorker{w.gate})
	require.NoError(w.n.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.n.t.Context()))
	l := w.n.listen(w.address)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(ctx, l)
	}()
	w.unserve = sync.OnceFunc(func() {
		cancel()
		<-done
		w.n.mu.Lock()
		defer w.n.mu.Unlock()
		delete(w.n.at, w.address)
	})
}

func (w *testWorker) as() communicator.WorkerID {
	return communicator.WorkerID{Name: w.name, Incarnation: w.Incarnation()}
}

// asks returns its registration request.
func (w *testWorker) asks() *orchestratorv1.RegisterRequest {
	return &orchestratorv1.RegisterRequest{
		Worker: []byte(w.name), Incarnation: w.Incarnation(), Address: w.address, Lease: durationpb.New(aLease),
	}
}

func (w *testWorker) register() error {
	_, err := w.manager.Register(w.n.t.Context(), w.asks())
	return err
}

func (w *testWorker) beat() error {
	_, err := w.manager.Heartbeat(w.n.t.Context(), &orchestratorv1.HeartbeatRequest{Worker: []byte(w.name), Incarnation: w.Incarnation()})
	return err
}

func (w *testWorker) leave() error {
	_, err := w.manager.Leave(w.n.t.Context(), &orchestratorv1.LeaveRequest{Worker: []byte(w.name), Incarnation: w.Incarnation()})
	return err
}

// registerWorker returns a registered worker, which sends heartbeats in pass.
func (n *testNet) registerWorker(name string, opts ...worker.Option) *testWorker {
	n.t.Helper()
	w := n.newWorker(name, opts...)
	require.NoError(n.t, w.register())
	return w
}

// registerWorkers is registerWorker for several names.
func (n *testNet) registerWorkers(names ...string) []*testWorker {
	n.t.Helper()
	var workers []*testWorker
	for _, name := range names {
		workers = append(workers, n.registerWorker(name))
	}
	return workers
}

// pass waits for a duration, while some workers send heartbeats.
func (n *testNet) pass(d time.Duration, beating ...*testWorker) {
	n.t.Helper()
	for end := time.Now().Add(d); ; {
		for _, h := range beating {
			require.NoError(n.t, h.beat())
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
func (n *testNet) where() map[string]string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	where := make(map[string]string)
	for task, at := range n.runs {
		if len(at) > 0 {
			where[task] = strings.Join(slices.Sorted(slices.Values(at)), " ")
		}
	}
	return where
}

// starts returns the number of starts of all tasks.
func (n *testNet) starts() int {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	total := 0
	for _, at := range n.ever {
		total += len(at)
	}
	return total
}

// spread returns the number of tasks on each worker.
func (n *testNet) spread() map[string]int {
	spread := make(map[string]int)
	for at := range maps.Values(n.where()) {
		spread[at]++
	}
	return spread
}

func code(err error) codes.Code { return status.Code(err) }
