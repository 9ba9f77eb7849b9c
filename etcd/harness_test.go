package etcd_test

// A real server, and clients that reach it directly or through a proxy; leaders and
// members, and a log of the running tasks.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/internal/proctest"
	"github.com/f8949c05/orchestrator/worker"
)

func TestMain(m *testing.M) {
	proctest.SetParallel(6) // most tests wait
	goleak.VerifyTestMain(m)
}

// startServer starts a server with short ticks, by which it serves within some 20 ms,
// and without fsync.
func startServer(t testing.TB, cfg embed.Config) *embed.Server {
	t.Helper()
	cfg.NoFsync = true
	if cfg.Tick == 0 {
		cfg.Tick = 2 * time.Millisecond
	}
	if cfg.Listen == "" && cfg.TLS == nil {
		cfg.Listen = nowhere(t) // another server may listen there again
	}
	s, err := embed.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// clientConfig returns the configuration of a client that detects connection losses
// fast and reconnects fast.
func clientConfig(endpoint string) clientv3.Config {
	return clientv3.Config{
		Endpoints: []string{endpoint}, Logger: zap.NewNop(),
		DialKeepAliveTime: 500 * time.Millisecond, DialKeepAliveTimeout: 500 * time.Millisecond,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 100 * time.Millisecond},
			MinConnectTimeout: time.Second,
		})},
	}
}

func newClient(t testing.TB, cfg clientv3.Config) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// startEtcd starts a server and returns a client.
func startEtcd(t testing.TB) *clientv3.Client {
	t.Helper()
	return newClient(t, clientConfig(startServer(t, embed.Config{}).Endpoint()))
}

func hostPort(s *embed.Server) string {
	_, addr, _ := strings.Cut(s.Endpoint(), "://")
	return addr
}

// startProxy returns a client that reaches the server through a proxy, and the
// proxy.
func startProxy(t testing.TB, s *embed.Server) (*clientv3.Client, *netfault.Proxy) {
	t.Helper()
	p, err := netfault.New(hostPort(s))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return newClient(t, clientConfig(p.Addr())), p
}

// nowhere returns an address without a listener.
func nowhere(t testing.TB) string {
	t.Helper()
	return proctest.FreeAddrs(t, 1)[0]
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// soon is the time limit for events that usually take milliseconds, on a busy
// machine.
const soon = 20 * time.Second

// receive returns the next value of c, and fails the test if none comes soon.
func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(soon):
		require.FailNow(t, "no value received")
		panic("unreachable")
	}
}

var errEnough = errors.New("enough")

// candidate is a running election that leads until it is told to stop.
type candidate struct {
	t      testing.TB
	e      *etcd.Election
	leads  chan beginning // each leadership
	since  time.Time      // begin of the leadership that elected returned last
	over   chan ending    // end of each leadership, as lead saw it
	resign chan error     // the next result of lead
	stop   context.CancelCauseFunc
	result chan error // the result of Run
}

type beginning struct {
	l  *etcd.Leadership
	at time.Time
}

type ending struct {
	cause error
	at    time.Time
}

func stand(t testing.TB, c *clientv3.Client, name string, opts ...etcd.ElectionOption) *candidate {
	t.Helper()
	e, err := etcd.NewElection(c, name, append([]etcd.ElectionOption{etcd.WithLeaseDuration(2 * time.Second)}, opts...)...)
	require.NoError(t, err)
	ctx, stop := context.WithCancelCause(t.Context())
	k := &candidate{
		t: t, e: e, stop: stop,
		leads: make(chan beginning, 100), over: make(chan ending, 100),
		resign: make(chan error), result: make(chan error, 1),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.result <- e.Run(ctx, k.lead)
	}()
	t.Cleanup(func() {
		stop(errEnough)
		<-done
	})
	return k
}

func (k *candidate) lead(ctx context.Context, l *etcd.Leadership) error {
	k.leads <- beginning{l, time.Now()}
	select {
	case err := <-k.resign:
		return err
	case <-ctx.Done():
		k.over <- ending{context.Cause(ctx), time.Now()}
		return context.Cause(ctx)
	}
}

// elected waits until the candidate leads, and returns the leadership.
func (k *candidate) elected() *etcd.Leadership {
	k.t.Helper()
	led := receive(k.t, k.leads)
	k.since = led.at
	return led.l
}

// stage is a server with its leaders and members.
type stage struct {
	*testing.T
	server  *embed.Server
	client  *clientv3.Client // for the test itself
	taskLog *taskLog
	twice   bool // the test runs tasks twice on purpose
}

func newStage(t *testing.T) *stage {
	t.Helper()
	t.Parallel()
	st := &stage{T: t, server: startServer(t, embed.Config{}), taskLog: newTaskLog()}
	st.client = st.connect()
	t.Cleanup(func() {
		if !st.twice {
			require.Empty(t, st.taskLog.overlaps(), "tasks that ran twice")
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

// taskLog records which tasks run where.
type taskLog struct {
	mu      sync.Mutex
	running map[string]string // task to worker and token
	twice   []string
	starts  map[string]int // by task
	content map[string]string
	change  chan struct{}
}

func newTaskLog() *taskLog {
	return &taskLog{running: map[string]string{}, starts: map[string]int{}, content: map[string]string{}, change: make(chan struct{})}
}

func (l *taskLog) note(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.change)
	l.change = make(chan struct{})
}

func (l *taskLog) start(task, by string) {
	l.note(func() {
		if other, ok := l.running[task]; ok {
			l.twice = append(l.twice, fmt.Sprintf("%s at %s and at %s", task, other, by))
		}
		l.running[task] = by
		l.starts[task]++
	})
}

func (l *taskLog) stop(task string) { l.note(func() { delete(l.running, task) }) }

func (l *taskLog) tell(task, content string) { l.note(func() { l.content[task] = content }) }

func (l *taskLog) overlaps() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.twice
}

func (l *taskLog) started(task string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.starts[task]
}

func (l *taskLog) snapshot() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.running)
}

// wait waits until f returns true for the taskLog.
func (l *taskLog) wait(t testing.TB, what string, f func(*taskLog) bool) {
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

// runningMember is a worker and its membership.
type runningMember struct {
	stage  *stage
	name   string
	worker *worker.Worker[string]
	member *etcd.Member
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error // result of Run; valid when done is closed
}

// result waits for the end of Run, and returns its result.
func (h *runningMember) result() error {
	h.stage.Helper()
	receive(h.stage, h.done)
	return h.err
}

var errOver = errors.New("the test is over")

// startMember starts a member whose tasks are recorded in the taskLog.
func (s *stage) startMember(c *clientv3.Client, name string, lease time.Duration, opts ...worker.Option) *runningMember {
	s.Helper()
	return s.startMemberWith(c, name, lease, func(ctx context.Context, task string) error {
		token, _ := worker.Token(ctx)
		s.taskLog.start(task, fmt.Sprintf("%s/%d", name, token))
		defer s.taskLog.stop(task)
		content, _ := worker.Content(ctx)
		s.taskLog.tell(task, string(content))
		<-ctx.Done()
		return context.Cause(ctx)
	}, opts...)
}

func (s *stage) startMemberWith(c *clientv3.Client, name string, lease time.Duration, run func(context.Context, string) error, opts ...worker.Option) *runningMember {
	s.Helper()
	w, err := worker.New(run, append([]worker.Option{worker.WithLease(lease, lease/4)}, opts...)...)
	require.NoError(s, err)
	m, err := etcd.NewMember(c, name, w)
	require.NoError(s, err)
	return s.runMember(name, w, m)
}

// startOther adds another worker, so that a leaving worker is not the last.
func (s *stage) startOther() {
	s.Helper()
	s.startMember(s.client, "other", 60*time.Second).joined()
}

// runMember runs a member until the end of the test.
func (s *stage) runMember(name string, w *worker.Worker[string], m *etcd.Member) *runningMember {
	h := &runningMember{stage: s, name: name, worker: w, member: m, done: make(chan struct{})}
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
func (h *runningMember) quit() {
	h.cancel(errOver)
	<-h.done
}

// joined waits until the member has joined, and returns its WorkerID.
func (h *runningMember) joined() etcd.WorkerID {
	h.stage.Helper()
	return h.joinedAs(h.name)
}

// joinedAs is joined for a name that is escaped in keys.
func (h *runningMember) joinedAs(segment string) etcd.WorkerID {
	h.stage.Helper()
	var w etcd.WorkerID
	h.stage.eventually(h.name+" has joined", func() bool {
		resp, err := h.stage.client.Get(h.stage.Context(), "/work/members/"+segment)
		if err != nil || len(resp.Kvs) == 0 {
			return false
		}
		w = etcd.WorkerID{Name: h.name, Incarnation: resp.Kvs[0].CreateRevision}
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
			cancel(errOver) // otherwise a candidate that was deposed campaigns again
			return errOver
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
func (l *leading) list(number uint64, w etcd.WorkerID) []string {
	l.stage.Helper()
	ctx, cancel := l.term(number, soon)
	defer cancel()
	tasks, err := l.comm.List(ctx, w)
	require.NoError(l.stage, err)
	return tasks
}

func (l *leading) add(number uint64, w etcd.WorkerID, task string) error {
	ctx, cancel := l.term(number, 5*time.Second)
	defer cancel()
	return l.comm.Add(ctx, w, task)
}

func (l *leading) remove(number uint64, w etcd.WorkerID, task string) error {
	ctx, cancel := l.term(number, 5*time.Second)
	defer cancel()
	return l.comm.Remove(ctx, w, task)
}

// logWatcher waits for a text in a log.
type logWatcher struct {
	text string
	once sync.Once
	seen chan struct{} // closed when the text was logged
}

func (l *logWatcher) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(l.text)) {
		l.once.Do(func() { close(l.seen) })
	}
	return len(line), nil
}

// draining waits until a member drains.
func (s *stage) draining() {
	s.Helper()
	membership, err := etcd.NewMembership(s.client)
	require.NoError(s, err)
	s.eventually("a member drains", func() bool {
		members, err := membership.List(s.Context())
		require.NoError(s, err)
		return slices.ContainsFunc(members, func(m etcd.MemberState) bool { return m.Draining })
	})
}

// runningLeader is a complete leader.
type runningLeader struct {
	election *etcd.Election
	registry *etcd.Registry
	stop     func() error
}

// startLeader runs a leader.
func (s *stage) startLeader() runningLeader {
	s.Helper()
	client := s.connect()
	election, err := etcd.NewElection(client, "l1", etcd.WithLeaseDuration(2*time.Second))
	require.NoError(s, err)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(s.Context()))
	done := make(chan error, 1)
	go func() {
		done <- election.Lead(ctx, 100*time.Millisecond,
			orchestrator.WithSettle(10*time.Millisecond), orchestrator.WithCommunicatorTimeout(2*time.Second))
	}()
	stop := func() error { cancel(errOver); err := <-done; done <- err; return err }
	s.Cleanup(func() { _ = stop() })
	return runningLeader{election: election, registry: newRegistry(s, client), stop: stop}
}

// on returns the number of tasks that run on a worker.
func (l *taskLog) on(worker string) int {
	n := 0
	for _, by := range l.running {
		if strings.HasPrefix(by, worker+"/") {
			n++
		}
	}
	return n
}

// withTold makes a worker accept updates in place and record them in the taskLog.
func (s *stage) withTold() worker.Option {
	return worker.WithUpdate(func(ctx context.Context, task string) error {
		content, _ := worker.Content(ctx)
		s.taskLog.tell(task, string(content))
		return nil
	})
}

func (s *stage) put(task, content string) {
	s.Helper()
	_, err := s.client.Put(s.Context(), "/work/registry/"+task, content)
	require.NoError(s, err)
}

// of returns the context of a call by the leader of an epoch.
func (s *stage) of(epoch uint64) context.Context {
	return orchestrator.ContextWithTerm(s.Context(), orchestrator.Term{Epoch: epoch, Number: 1})
}
