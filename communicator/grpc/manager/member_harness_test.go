package manager

// Shared by the tests of the Member: a network in a synctest bubble, a manager that
// only keeps leases, and a member.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/f8949c05/orchestrator"
	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
)

var errOver = errors.New("test is over")

// The kinds of calls that a manager gets.
const (
	callRegister  = "register"
	callHeartbeat = "heartbeat"
	callDraining  = "draining"
	callComplete  = "complete"
	callLeave     = "leave"
)

// fakeManager is a manager that only keeps leases.
type fakeManager struct {
	orchestratorv1.UnimplementedManagerServer

	mu      sync.Mutex
	term    *orchestratorv1.Term
	member  uint64 // 0: none
	ends    time.Time
	lease   time.Duration
	grants  *durationpb.Duration // granted lease in its answers; nil: none
	ended   map[uint64]bool
	calls   []call
	instead func(ctx context.Context, kind string) error // called instead of an answer or before it; nil: not called
	outcome orchestratorv1.CompletionOutcome
	alone   bool // it answers so to draining members
}

type call struct {
	kind        string
	incarnation uint64
	tasks       []string
	at          time.Time
}

func newFakeManager() *fakeManager {
	return &fakeManager{term: &orchestratorv1.Term{Epoch: 3, Number: 1}, ended: make(map[uint64]bool), outcome: recorded}
}

// enter records a call, and returns the error to answer with.
func (m *fakeManager) enter(ctx context.Context, kind string, incarnation uint64, tasks ...string) error {
	m.mu.Lock()
	m.calls = append(m.calls, call{kind, incarnation, tasks, time.Now()})
	if m.member != 0 && time.Until(m.ends) <= 0 {
		m.ended[m.member], m.member = true, 0
	}
	instead := m.instead
	m.mu.Unlock()
	if instead == nil {
		return nil
	}
	return instead(ctx, kind)
}

func (m *fakeManager) Register(ctx context.Context, req *orchestratorv1.RegisterRequest) (*orchestratorv1.RegisterResponse, error) {
	received := time.Now()
	if err := m.enter(ctx, callRegister, req.GetIncarnation()); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.ended[req.GetIncarnation()]:
		return nil, status.Error(codes.FailedPrecondition, "membership has ended")
	case m.member != 0 && m.member != req.GetIncarnation():
		return nil, status.Error(codes.AlreadyExists, "name is taken")
	}
	m.lease = req.GetLease().AsDuration()
	m.member, m.ends = req.GetIncarnation(), received.Add(m.lease)
	return &orchestratorv1.RegisterResponse{Term: m.term, Lease: m.grants}, nil
}

func (m *fakeManager) Heartbeat(ctx context.Context, req *orchestratorv1.HeartbeatRequest) (*orchestratorv1.HeartbeatResponse, error) {
	kind := callHeartbeat
	if req.GetDraining() {
		kind = callDraining
	}
	if err := m.enter(ctx, kind, req.GetIncarnation()); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.member != req.GetIncarnation() {
		return nil, status.Error(codes.NotFound, "no such member")
	}
	m.ends = time.Now().Add(m.lease)
	return &orchestratorv1.HeartbeatResponse{Term: m.term, Lease: m.grants, Alone: m.alone && req.GetDraining()}, nil
}

func (m *fakeManager) Complete(ctx context.Context, req *orchestratorv1.CompleteRequest) (*orchestratorv1.CompleteResponse, error) {
	var tasks []string
	resp := &orchestratorv1.CompleteResponse{}
	m.mu.Lock()
	outcome := m.outcome
	m.mu.Unlock()
	for _, done := range req.GetCompletions() {
		tasks = append(tasks, fmt.Sprintf("%s@%d", done.GetTask(), done.GetContentVersion()))
		resp.Outcomes = append(resp.Outcomes, outcome)
	}
	if err := m.enter(ctx, callComplete, 0, tasks...); err != nil {
		return nil, err
	}
	return resp, nil
}

func (m *fakeManager) Leave(ctx context.Context, req *orchestratorv1.LeaveRequest) (*orchestratorv1.LeaveResponse, error) {
	if err := m.enter(ctx, callLeave, req.GetIncarnation()); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.member == req.GetIncarnation() {
		m.ended[m.member], m.member = true, 0
	}
	return &orchestratorv1.LeaveResponse{}, nil
}

// do calls f before each answer from now on; nil: nothing is called. If f returns an
// error, that is the answer.
func (m *fakeManager) do(f func(ctx context.Context, kind string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.instead = f
}

// set changes the fields.
func (m *fakeManager) set(f func(*fakeManager)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
}

// silent behaves as an unplugged manager: it returns only when ctx ends.
func silent(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// heard returns the calls of some kinds, and forgets all calls.
func (m *fakeManager) heard(kinds ...string) (calls []call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, call := range m.calls {
		if slices.Contains(kinds, call.kind) {
			calls = append(calls, call)
		}
	}
	m.calls = nil
	return calls
}

// registered returns the member, and when its lease ends.
func (m *fakeManager) registered() (incarnation uint64, ends time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.member, m.ends
}

// memberNet is a network in a bubble with a fakeManager, which may be disconnected.
type memberNet struct {
	*testing.T
	*fakeManager
	mu       sync.Mutex
	listener *pipeListener // nil: no manager listens
	server   *grpc.Server
	log      strings.Builder
	option   communicator.Option // of the members; nil: no option
	drain    time.Duration       // of the members
}

// inMemberNet runs a test in a bubble with a connected fakeManager.
func inMemberNet(t *testing.T, f func(*memberNet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &memberNet{T: t, fakeManager: newFakeManager()}
		n.open()
		t.Cleanup(n.shut)
		f(n)
	})
}

func (n *memberNet) open() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listener, n.server = newPipeListener(), grpc.NewServer(grpc.WaitForHandlers(true))
	orchestratorv1.RegisterManagerServer(n.server, n.fakeManager)
	server, listener := n.server, n.listener
	go func() { _ = server.Serve(listener) }()
}

// shut closes all connections, as the end of a process does.
func (n *memberNet) shut() {
	n.mu.Lock()
	server := n.server
	n.listener, n.server = nil, nil
	n.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

func (n *memberNet) dial(ctx context.Context, _ string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listener
	n.mu.Unlock()
	if l == nil {
		return nil, errors.New("no listener")
	}
	return l.Dial(ctx)
}

// Write appends to the member's log.
func (n *memberNet) Write(line []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.Write(line)
}

// said returns how many lines of the member's log contain text.
func (n *memberNet) said(text string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Count(n.log.String(), text)
}

// runningMember is a Member while its Run is called.
type runningMember struct {
	*memberNet
	worker *worker.Worker[string]
	member *Member
	wire   *pipeListener // its listener
	tasks  *taskRecorder
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error // what Run returned, once done is closed
}

// taskRecorder records the running tasks, and when the last of them stopped.
type taskRecorder struct {
	mu      sync.Mutex
	now     map[string]bool
	starts  int
	stopped time.Time
	stop    time.Duration // how long a task takes to stop
}

func (r *taskRecorder) run(ctx context.Context, task string) error {
	if strings.HasPrefix(task, "short") {
		return nil
	}
	r.mu.Lock()
	r.now[task] = true
	r.starts++
	r.mu.Unlock()
	<-ctx.Done()
	if r.stop > 0 {
		<-time.After(r.stop)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.now, task)
	r.stopped = time.Now()
	return context.Cause(ctx)
}

func (r *taskRecorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.now)
}

const (
	lease    = 12 * time.Second
	stopping = 2 * time.Second // leaves 8.8 s to renew the lease
)

// startMember starts a member with a lease of 12 s.
func (n *memberNet) startMember(opts ...worker.Option) *runningMember {
	n.Helper()
	m := &runningMember{memberNet: n, wire: newPipeListener(), tasks: &taskRecorder{now: make(map[string]bool)}, done: make(chan struct{})}
	own := n.option
	if own == nil {
		own = communicator.WithPlaintext()
	}
	var err error
	m.worker, err = worker.New(m.tasks.run, append([]worker.Option{worker.WithLease(lease, stopping)}, opts...)...)
	require.NoError(n, err)
	m.member, err = NewMember("manager:1", "w", m.worker, WithAdvertise("worker:1"), own,
		communicator.WithLogger(slog.New(slog.NewTextHandler(n, &slog.HandlerOptions{Level: slog.LevelDebug}))),
		memberOptionFunc(func(settings *option.Member) {
			settings.Drain = n.drain
			settings.Dialing = []grpc.DialOption{
				grpc.WithContextDialer(n.dial), grpc.WithTransportCredentials(insecure.NewCredentials()),
			}
		}))
	require.NoError(n, err)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(n.Context()))
	m.cancel = cancel
	go func() {
		defer close(m.done)
		m.err = m.member.Run(ctx, m.wire)
	}()
	n.Cleanup(func() {
		cancel(errOver)
		<-m.done
	})
	return m
}

// after waits for a duration.
func (n *memberNet) after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// close closes the member, and returns a channel for the result.
func (m *runningMember) close(ctx context.Context) <-chan error {
	closed := make(chan error, 1)
	go func() { closed <- m.member.Close(ctx) }()
	return closed
}

// add adds tasks as a manager does in a term.
func (m *runningMember) add(tasks ...string) {
	m.Helper()
	for _, task := range tasks {
		require.NoError(m, m.worker.Add(m.ofTerm(), task))
	}
	synctest.Wait()
}

func (m *runningMember) remove(tasks ...string) {
	m.Helper()
	for _, task := range tasks {
		require.NoError(m, m.worker.Remove(m.ofTerm(), task))
	}
	synctest.Wait()
}

func (m *runningMember) ofTerm() context.Context {
	return orchestrator.ContextWithTerm(m.Context(), orchestrator.Term{Epoch: 3, Number: 1})
}

// ended reports whether Run has returned.
func (m *runningMember) ended() bool {
	synctest.Wait()
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}
