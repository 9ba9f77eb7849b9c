package grpc

// What the tests of the Manager are made of: a bubble with a network in it,
// managers, and workers whose membership is a matter of the test.

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

	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// office is a network in a bubble, and what runs on it.
type office struct {
	t    *testing.T
	logs strings.Builder // of the managers; to be read when they have ended, or rest
	mu   sync.Mutex
	at   map[string]net.Listener
	bend func(address string, line net.Conn) net.Conn // nil: lines are straight
	runs map[string][]string                          // by task: where it runs
	ever map[string][]string                          // by task: where it has ever been started
	ails error                                        // what tasks that complete at once fail with in place of that; nil: nothing
}

const managerAt = "manager.test:7000"

func inOffice(t *testing.T, f func(t *testing.T, o *office)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, &office{
			t: t, at: make(map[string]net.Listener),
			runs: make(map[string][]string), ever: make(map[string][]string),
		})
	})
}

func (o *office) listen(address string) net.Listener {
	l := newWire()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.at[address] = l
	return l
}

func (o *office) dial(ctx context.Context, address string) (net.Conn, error) {
	o.mu.Lock()
	l, _ := o.at[address].(*wire)
	bend := o.bend
	o.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("nobody is at %s", address)
	}
	line, err := l.Dial(ctx)
	if err == nil && bend != nil {
		line = bend(address, line)
	}
	return line, err
}

// stuck is a line on which nothing can be written from a moment on, as where nobody
// reads at its other end.
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

func (o *office) dialing() grpc.DialOption { return grpc.WithContextDialer(o.dial) }

// shift is a manager that runs.
type shift struct {
	*Manager
	o    *office
	stop context.CancelCauseFunc
	done chan error
}

var errClosing = errors.New("closing time")

// open starts a manager with a store. It is closed at the end of the test.
func (o *office) open(store Store, opts ...ManagerOption) *shift {
	o.t.Helper()
	m, err := NewManager(store, append([]ManagerOption{WithLogger(slog.New(slog.NewTextHandler(&o.logs, nil))), managerOption(func(s *managerSettings) {
		s.dialing = []grpc.DialOption{o.dialing()}
	})}, opts...)...)
	require.NoError(o.t, err)
	ctx, stop := context.WithCancelCause(o.t.Context())
	s := &shift{Manager: m, o: o, stop: stop, done: make(chan error, 1)}
	l := o.listen(managerAt)
	go func() { s.done <- m.Run(ctx, l) }()
	o.t.Cleanup(func() { stop(errClosing) })
	synctest.Wait()
	return s
}

// close ends a manager as it should end.
func (s *shift) close() {
	s.o.t.Helper()
	s.stop(errClosing)
	require.ErrorIs(s.o.t, <-s.done, errClosing)
}

// receipt is what the manager gives a version of a task to a worker with.
func (s *shift) receipt(worker, task string, version int64) []byte {
	r := s.ledger.catalog.kept.key.issue(worker, task, version)
	return r[:]
}

// put has tasks be expected.
func (s *shift) put(names ...string) {
	s.o.t.Helper()
	for _, name := range names {
		_, err := s.Put(s.o.t.Context(), Item{Name: name, Content: []byte("content of " + name)})
		require.NoError(s.o.t, err)
	}
}

// hand is a worker that is served, and does at the manager what the test does.
type hand struct {
	*worker.Worker[string]
	o       *office
	name    string
	address string
	gate    *holding
	keeps   chan struct{} // its tasks stop no earlier than this is closed; nil: they stop
	manager orchestratorv1.ManagerClient
	unserve func()
}

// hire serves a worker at the address that has its name.
func (o *office) hire(name string, opts ...worker.Option) *hand {
	o.t.Helper()
	h := &hand{o: o, name: name, address: name + ".test:7000", gate: &holding{}}
	w, err := worker.New(h.run, opts...)
	require.NoError(o.t, err)
	h.Worker = w
	conn, err := settingsOf(o.t).dial(managerAt, party{role: roleManager}, o.dialing())
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

// run is what its tasks do: those named short complete at once, those named job run on
// as jobs, and the others can be moved.
func (h *hand) run(ctx context.Context, task string) error {
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

// fail has tasks that would complete at once fail in place of that.
func (o *office) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ails = err
}

func (h *hand) serve() {
	h.o.t.Helper()
	server, err := NewServer(h.Worker)
	require.NoError(h.o.t, err)
	server.serving = []grpc.ServerOption{grpc.UnaryInterceptor(h.gate.pass)}
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

func (h *hand) as() Worker { return Worker{h.name, h.Incarnation()} }

// asks is what it registers with.
func (h *hand) asks() *orchestratorv1.RegisterRequest {
	return &orchestratorv1.RegisterRequest{
		Worker: []byte(h.name), Incarnation: h.Incarnation(), Address: h.address, Lease: durationpb.New(aLease),
	}
}

func (h *hand) register() error {
	_, err := h.manager.Register(h.o.t.Context(), h.asks())
	return err
}

func (h *hand) beat() error {
	_, err := h.manager.Heartbeat(h.o.t.Context(), &orchestratorv1.HeartbeatRequest{Worker: []byte(h.name), Incarnation: h.Incarnation()})
	return err
}

func (h *hand) leave() error {
	_, err := h.manager.Leave(h.o.t.Context(), &orchestratorv1.LeaveRequest{Worker: []byte(h.name), Incarnation: h.Incarnation()})
	return err
}

// staff are hands that register, and beat for as long as time passes.
func (o *office) staff(names ...string) []*hand {
	o.t.Helper()
	var staff []*hand
	for _, name := range names {
		h := o.hire(name)
		require.NoError(o.t, h.register())
		staff = append(staff, h)
	}
	return staff
}

// pass lets time pass, while some hands beat.
func (o *office) pass(d time.Duration, beating ...*hand) {
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

// where returns where each task runs that runs anywhere.
func (o *office) where() map[string]string {
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

// starts returns how often tasks were started.
func (o *office) starts() int {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, at := range o.ever {
		n += len(at)
	}
	return n
}

// spread returns how many tasks run on each.
func (o *office) spread() map[string]int {
	spread := make(map[string]int)
	for at := range maps.Values(o.where()) {
		spread[at]++
	}
	return spread
}

func code(err error) codes.Code { return status.Code(err) }
