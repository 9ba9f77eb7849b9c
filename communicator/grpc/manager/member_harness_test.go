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
func (c *fakeManager) enter(ctx context.Context, kind string, incarnation uint64, tasks ...string) error {
	c.mu.Lock()
	c.calls = append(c.calls, call{kind, incarnation, tasks, time.Now()})
	if c.member != 0 && time.Until(c.ends) <= 0 {
		c.ended[c.member], c.member = true, 0
	}
	instead := c.instead
	c.mu.Unlock()
	if instead == nil {
		return nil
	}
	return instead(ctx, kind)
}

func (c *fakeManager) Register(ctx context.Context, req *orchestratorv1.RegisterRequest) (*orchestratorv1.RegisterResponse, error) {
	received := time.Now()
	if err := c.enter(ctx, callRegister, req.GetIncarnation()); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended[req.GetIncarnation()]:
		return nil, status.Error(codes.FailedPrecondition, "membership has ended")
	case c.member != 0 && c.member != req.GetIncarnation():
		return nil, status.Error(codes.AlreadyExists, "name is taken")
	}
	c.lease = req.GetLease().AsDuration()
	c.member, c.ends = req.GetIncarnation(), received.Add(c.lease)
	return &orchestratorv1.RegisterResponse{Term: c.term, Lease: c.grants}, nil
}

func (c *fakeManager) Heartbeat(ctx context.Context, req *orchestratorv1.HeartbeatRequest) (*orchestratorv1.HeartbeatResponse, error) {
	kind := callHeartbeat
	if req.GetDraining() {
		kind = callDraining
	}
	if err := c.enter(ctx, kind, req.GetIncarnation()); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.member != req.GetIncarnation() {
		return nil, status.Error(codes.NotFound, "no such member")
	}
	c.ends = time.Now().Add(c.lease)
	return &orchestratorv1.HeartbeatResponse{Term: c.term, Lease: c.grants, Alone: c.alone && req.GetDraining()}, nil
}

func (c *fakeManager) Complete(ctx context.Context, req *orchestratorv1.CompleteRequest) (*orchestratorv1.CompleteResponse, error) {
	var tasks []string
	resp := &orchestratorv1.CompleteResponse{}
	c.mu.Lock()
	outcome := c.outcome
	c.mu.Unlock()
	for _, done := range req.GetCompletions() {
		tasks = append(tasks, fmt.Sprintf("%s@%d", done.GetTask(), done.GetContentVersion()))
		resp.Outcomes = append(resp.Outcomes, outcome)
	}
	if err := c.enter(ctx, callComplete, 0, tasks...); err != nil {
		return nil, err
	}
	return resp, nil
}

func (c *fakeManager) Leave(ctx context.Context, req *orchestratorv1.LeaveRequest) (*orchestratorv1.LeaveResponse, error) {
	if err := c.enter(ctx, callLeave, req.GetIncarnation()); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.member == req.GetIncarnation() {
		c.ended[c.member], c.member = true, 0
	}
	return &orchestratorv1.LeaveResponse{}, nil
}

// do calls f before each answer from now on; nil: nothing is called. If f returns an
// error, that is the answer.
func (c *fakeManager) do(f func(ctx context.Context, kind string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instead = f
}

// set changes the fields.
func (c *fakeManager) set(f func(*fakeManager)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c)
}

// silent behaves as an unplugged manager: it returns only when ctx ends.
func silent(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// heard returns the calls of some kinds, and forgets all calls.
func (c *fakeManager) heard(kinds ...string) (calls []call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.calls {
		if slices.Contains(kinds, call.kind) {
			calls = append(calls, call)
		}
	}
	c.calls = nil
	return calls
}

// registered returns the member, and when its lease ends.
func (c *fakeManager) registered() (incarnation uint64, ends time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.member, c.ends
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
}

// inMemberNet runs a test in a bubble with a connected fakeManager.
func inMemberNet(t *testing.T, f func(*memberNet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := &memberNet{T: t, fakeManager: newFakeManager()}
		o.open()
		t.Cleanup(o.shut)
		f(o)
	})
}

func (o *memberNet) open() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.listener, o.server = newPipeListener(), grpc.NewServer(grpc.WaitForHandlers(true))
	orchestratorv1.RegisterManagerServer(o.server, o.fakeManager)
	server, listener := o.server, o.listener
	go func() { _ = server.Serve(listener) }()
}

// shut closes all connections, as the end of a process does.
func (o *memberNet) shut() {
	o.mu.Lock()
	server := o.server
	o.listener, o.server = nil, nil
	o.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

func (o *memberNet) dial(ctx context.Context, _ string) (net.Conn, error) {
	o.mu.Lock()
	l := o.listener
	o.mu.Unlock()
	if l == nil {
		return nil, errors.New("no listener")
	}
	return l.Dial(ctx)
}

// Write appends to the member's log.
func (o *memberNet) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.log.Write(line)
}

// said returns how many lines of the member's log contain text.
func (o *memberNet) said(text string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Count(o.log.String(), text)
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
func (o *memberNet) startMember(opts ...worker.Option) *runningMember {
	o.Helper()
	s := &runningMember{memberNet: o, wire: newPipeListener(), tasks: &taskRecorder{now: make(map[string]bool)}, done: make(chan struct{})}
	own := o.option
	if own == nil {
		own = communicator.WithPlaintext()
	}
	var err error
	s.worker, err = worker.New(s.tasks.run, append([]worker.Option{worker.WithLease(lease, stopping)}, opts...)...)
	require.NoError(o, err)
	s.member, err = NewMember("manager:1", "w", s.worker, WithAdvertise("worker:1"), own,
		communicator.WithLogger(slog.New(slog.NewTextHandler(o, &slog.HandlerOptions{Level: slog.LevelDebug}))),
		memberOptionFunc(func(m *option.Member) {
			m.Dialing = []grpc.DialOption{
				grpc.WithContextDialer(o.dial), grpc.WithTransportCredentials(insecure.NewCredentials()),
			}
		}))
	require.NoError(o, err)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(o.Context()))
	s.cancel = cancel
	go func() {
		defer close(s.done)
		s.err = s.member.Run(ctx, s.wire)
	}()
	o.Cleanup(func() {
		cancel(errOver)
		<-s.done
	})
	return s
}

// after waits for a duration.
func (o *memberNet) after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// close closes the member, and returns a channel for the result.
func (s *runningMember) close(ctx context.Context) <-chan error {
	closed := make(chan error, 1)
	go func() { closed <- s.member.Close(ctx) }()
	return closed
}

// add adds tasks as a manager does in a term.
func (s *runningMember) add(tasks ...string) {
	s.Helper()
	for _, task := range tasks {
		require.NoError(s, s.worker.Add(s.ofTerm(), task))
	}
	synctest.Wait()
}

func (s *runningMember) remove(tasks ...string) {
	s.Helper()
	for _, task := range tasks {
		require.NoError(s, s.worker.Remove(s.ofTerm(), task))
	}
	synctest.Wait()
}

func (s *runningMember) ofTerm() context.Context {
	return orchestrator.ContextWithTerm(s.Context(), orchestrator.Term{Epoch: 3, Number: 1})
}

// ended reports whether Run has returned.
func (s *runningMember) ended() bool {
	synctest.Wait()
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}
