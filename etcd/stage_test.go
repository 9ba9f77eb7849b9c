package etcd_test

// Shared helpers of the protocol tests: a server with leaders and members, some
// behind a proxy, and a ledger of the running tasks.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// stage is a server with its leaders and members.
type stage struct {
	*testing.T
	server *embed.Server
	client *clientv3.Client // for the test itself
	ledger *ledger
	twice  bool // the test runs tasks twice on purpose
}

func newStage(t *testing.T) *stage {
	t.Helper()
	t.Parallel()
	st := &stage{T: t, server: startServer(t, embed.Config{}), ledger: newLedger()}
	st.client = st.connect()
	t.Cleanup(func() {
		if !st.twice {
			require.Empty(t, st.ledger.overlaps(), "tasks that ran twice")
		}
	})
	return st
}

// connect returns a new client.
func (s *stage) connect() *clientv3.Client {
	s.Helper()
	return newClient(s, clientConfig(s.server.Endpoint()))
}

// behind returns a client behind a proxy, and the proxy.
func (s *stage) behind() (*clientv3.Client, *netfault.Proxy) {
	s.Helper()
	return startProxy(s, s.server)
}

// eventually waits until f returns true.
func (s *stage) eventually(what string, f func() bool) {
	s.Helper()
	require.Eventually(s, f, soon, 2*time.Millisecond, what)
}

// there reports whether a key exists.
func (s *stage) there(key string) bool {
	s.Helper()
	resp, err := s.client.Get(s.Context(), key)
	require.NoError(s, err)
	return len(resp.Kvs) > 0
}

// ledger records which tasks run where.
type ledger struct {
	mu      sync.Mutex
	running map[string]string // task to worker and token
	twice   []string
	starts  map[string]int // by task
	content map[string]string
	change  chan struct{}
}

func newLedger() *ledger {
	return &ledger{running: map[string]string{}, starts: map[string]int{}, content: map[string]string{}, change: make(chan struct{})}
}

func (l *ledger) note(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.change)
	l.change = make(chan struct{})
}

func (l *ledger) start(task, by string) {
	l.note(func() {
		if other, ok := l.running[task]; ok {
			l.twice = append(l.twice, fmt.Sprintf("%s at %s and at %s", task, other, by))
		}
		l.running[task] = by
		l.starts[task]++
	})
}

func (l *ledger) stop(task string) { l.note(func() { delete(l.running, task) }) }

func (l *ledger) tell(task, content string) { l.note(func() { l.content[task] = content }) }

func (l *ledger) overlaps() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.twice
}

func (l *ledger) started(task string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.starts[task]
}

func (l *ledger) snapshot() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.running)
}

// wait waits until f returns true for the ledger.
func (l *ledger) wait(t testing.TB, what string, f func(*ledger) bool) {
	t.Helper()
	timer := time.NewTimer(soon)
	defer timer.Stop()
	for {
		l.mu.Lock()
		ok, change := f(l), l.change
		l.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-change:
		case <-timer.C:
			require.Fail(t, "timeout waiting for: "+what)
		}
	}
}

// crew is a worker and its membership.
type crew struct {
	stage  *stage
	name   string
	worker *worker.Worker[string]
	member *etcd.Member
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error // result of Run; valid when done is closed
}

// result waits for the end of Run, and returns its result.
func (h *crew) result() error {
	h.stage.Helper()
	receive(h.stage, h.done)
	return h.err
}

var errOver = errors.New("the test is over")

// hire starts a member whose tasks are recorded in the ledger.
func (s *stage) hire(c *clientv3.Client, name string, lease time.Duration, opts ...worker.Option) *crew {
	s.Helper()
	return s.hireTo(c, name, lease, func(ctx context.Context, task string) error {
		token, _ := worker.Token(ctx)
		s.ledger.start(task, fmt.Sprintf("%s/%d", name, token))
		defer s.ledger.stop(task)
		content, _ := worker.Content(ctx)
		s.ledger.tell(task, string(content))
		<-ctx.Done()
		return context.Cause(ctx)
	}, opts...)
}

func (s *stage) hireTo(c *clientv3.Client, name string, lease time.Duration, run func(context.Context, string) error, opts ...worker.Option) *crew {
	s.Helper()
	w, err := worker.New(run, append([]worker.Option{worker.WithLease(lease, lease/4)}, opts...)...)
	require.NoError(s, err)
	m, err := etcd.NewMember(c, name, w)
	require.NoError(s, err)
	return s.man(name, w, m)
}

// staffed adds another worker, so that a leaving worker is not the last.
func (s *stage) staffed() {
	s.Helper()
	s.hire(s.client, "other", 60*time.Second).joined()
}

// man runs a member until the end of the test.
func (s *stage) man(name string, w *worker.Worker[string], m *etcd.Member) *crew {
	h := &crew{stage: s, name: name, worker: w, member: m, done: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(s.Context()))
	h.cancel = cancel
	go func() {
		defer close(h.done)
		h.err = m.Run(ctx)
	}()
	s.Cleanup(h.quit)
	return h
}

// quit ends the member's Run and waits for its end.
func (h *crew) quit() {
	h.cancel(errOver)
	<-h.done
}

// joined waits until the member has joined, and returns its Worker.
func (h *crew) joined() etcd.Worker {
	h.stage.Helper()
	return h.joinedAs(h.name)
}

// joinedAs is joined for a name that is escaped in keys.
func (h *crew) joinedAs(segment string) etcd.Worker {
	h.stage.Helper()
	var w etcd.Worker
	h.stage.eventually(h.name+" has joined", func() bool {
		resp, err := h.stage.client.Get(h.stage.Context(), "/work/members/"+segment)
		if err != nil || len(resp.Kvs) == 0 {
			return false
		}
		w = etcd.Worker{Name: h.name, Incarnation: resp.Kvs[0].CreateRevision}
		return true
	})
	return w
}

// leading is an elected candidate with its communicator.
type leading struct {
	stage  *stage
	leader *etcd.Leadership
	comm   *etcd.Communicator
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// elect runs a new candidate until it is elected, which requires the end of any
// other leadership.
func (s *stage) elect(c *clientv3.Client, name string, lease time.Duration) *leading {
	s.Helper()
	e, err := etcd.NewElection(c, name, etcd.WithLeaseDuration(lease))
	require.NoError(s, err)
	l := &leading{stage: s, done: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(s.Context()))
	l.cancel = cancel
	ready := make(chan error, 1)
	go func() {
		defer close(l.done)
		_ = e.Run(ctx, func(ctx context.Context, leader *etcd.Leadership) error {
			var err error
			l.leader = leader
			l.comm, err = etcd.NewCommunicator(ctx, c, leader)
			ready <- err
			<-ctx.Done()
			return errOver // not ErrDeposed, so no second campaign
		})
	}()
	s.Cleanup(l.resign)
	select {
	case err := <-ready:
		require.NoError(s, err)
	case <-time.After(soon):
		require.Fail(s, "not elected")
	}
	return l
}

func (l *leading) resign() {
	l.cancel(errOver)
	<-l.done
}

// term returns the context of a call in a term.
func (l *leading) term(number uint64, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx := orchestrator.ContextWithTerm(l.stage.Context(), orchestrator.Term{Epoch: l.leader.Epoch(), Number: number})
	return context.WithTimeout(ctx, timeout)
}

// list lists a worker in a term.
func (l *leading) list(number uint64, w etcd.Worker) []string {
	l.stage.Helper()
	ctx, cancel := l.term(number, soon)
	defer cancel()
	tasks, err := l.comm.List(ctx, w)
	require.NoError(l.stage, err)
	return tasks
}

func (l *leading) add(number uint64, w etcd.Worker, task string) error {
	ctx, cancel := l.term(number, 5*time.Second)
	defer cancel()
	return l.comm.Add(ctx, w, task)
}

func (l *leading) remove(number uint64, w etcd.Worker, task string) error {
	ctx, cancel := l.term(number, 5*time.Second)
	defer cancel()
	return l.comm.Remove(ctx, w, task)
}
