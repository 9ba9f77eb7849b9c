package simulator

// The leader's side of the network: every call that a leader makes, and its answer.

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// errCrashed fails every call of a crashed leader.
var errCrashed = errors.New("the leader has crashed")

// call is a call as its leader sees it. Each write of an Apply is a separate call.
type call struct {
	term      orchestrator.Term
	op        orchestrator.Op
	worker    string
	task      string // of a write
	place     int    // of a write, among those that travel together
	sent      time.Time
	deadline  time.Time // when its term stops waiting for it
	returned  time.Time // zero: not yet
	tasks     []string  // the answer to a List
	err       error
	serial    uint64 // of the member that it is meant for
	processed bool   // its answer has been processed
	// limit is how long a List may take for the next term to wait for its worker.
	limit time.Duration

	// cancelled reports whether the call's context has ended. cut: the leader had
	// cancelled it when the call returned.
	cancelled func() bool
	cut       bool
}

// underWay reports whether the call was sent before a moment and had not returned by
// then.
func (c *call) underWay(at time.Time) bool {
	return c.sent.Before(at) && (c.returned.IsZero() || c.returned.After(at))
}

// settled returns when the call's term continues: when the call is answered, or at
// its deadline.
func (c *call) settled() time.Time {
	if c.returned.IsZero() || c.returned.After(c.deadline) {
		return c.deadline
	}
	return c.returned
}

// fails reports whether the call counts as failed in its term. settled is the result
// of [call.settled].
func (c *call) fails(settled time.Time) bool { return !c.returned.Equal(settled) || c.err != nil }

// stopUnderWay reports whether an error means that a stop is under way, which is not
// a failure.
func stopUnderWay(err error) bool {
	return errors.Is(err, orchestrator.ErrStopping) && !errors.Is(err, orchestrator.ErrRejected)
}

// intentKey returns the key of the start that the call makes.
func (c *call) intentKey() startKey {
	return startKey{c.term.Number, writeKey{c.task, c.worker}}
}

// request holds the calls under way to one worker.
type request struct {
	calls []*call
	sent  time.Time
}

// leaderNet is the Communicator that a leader calls.
type leaderNet struct {
	l    *leader
	next orchestrator.Communicator[string, string]
}

// batchLeaderNet is a leaderNet whose next layer is an Applier.
type batchLeaderNet struct {
	leaderNet
	next orchestrator.Applier[string, string]
}

func newLeaderNet(l *leader, next orchestrator.Communicator[string, string]) orchestrator.Communicator[string, string] {
	n := leaderNet{l, next}
	if applier, ok := next.(orchestrator.Applier[string, string]); ok {
		return batchLeaderNet{n, applier}
	}
	return n
}

// List implements orchestrator.Communicator.
func (ln leaderNet) List(ctx context.Context, name string) ([]string, error) {
	var tasks []string
	errs := ln.make(ctx, name, []*call{{op: orchestrator.OpList}}, func() []error {
		var err error
		tasks, err = ln.next.List(ctx, name)
		return []error{err}
	}, &tasks)
	return tasks, errs[0]
}

// Add implements orchestrator.Communicator.
func (ln leaderNet) Add(ctx context.Context, name, task string) error {
	return ln.make(ctx, name, []*call{{op: orchestrator.OpAdd, task: task}}, func() []error {
		return []error{ln.next.Add(ctx, name, task)}
	}, nil)[0]
}

// Remove implements orchestrator.Communicator.
func (ln leaderNet) Remove(ctx context.Context, name, task string) error {
	return ln.make(ctx, name, []*call{{op: orchestrator.OpRemove, task: task}}, func() []error {
		return []error{ln.next.Remove(ctx, name, task)}
	}, nil)[0]
}

// Apply implements orchestrator.Applier.
func (bl batchLeaderNet) Apply(ctx context.Context, name string, writes []orchestrator.Write[string]) []error {
	calls := make([]*call, len(writes))
	for i, write := range writes {
		calls[i] = &call{op: write.Op, task: write.Task, place: i}
	}
	inner := orchestrator.ContextWithApplied(ctx, func(write orchestrator.Write[string]) {
		bl.applied(ctx, name, calls[slices.Index(writes, write)], write)
	})
	return bl.make(ctx, name, calls, func() []error {
		errs := bl.next.Apply(inner, name, writes)
		if errs == nil {
			errs = make([]error, len(writes))
		}
		return errs
	}, nil)
}

// applied records that a write is done before its call returns, and passes that on.
func (ln leaderNet) applied(ctx context.Context, name string, c *call, write orchestrator.Write[string]) {
	w := ln.l.w
	w.mu.Lock()
	index := w.workers[name].index
	w.mu.Unlock()
	leaderLane(ln.l.number, index).await()
	w.mu.Lock()
	c.returned = time.Now()
	w.note(leaderLane(ln.l.number, index), "leader %d: %v %s %s is done, other writes of its call are not", ln.l.number, c.op, c.task, name)
	w.mu.Unlock()
	orchestrator.Applied(ctx, write)
}

// make makes calls that travel together.
func (ln leaderNet) make(ctx context.Context, name string, calls []*call, do func() []error, tasks *[]string) []error {
	w := ln.l.w
	term, _ := orchestrator.TermFromContext(ctx)
	f := &request{calls: calls, sent: time.Now()}
	deadline := f.sent.Add(w.Timeout)
	if d, ok := ctx.Deadline(); ok && calls[0].op == orchestrator.OpList {
		deadline = d.Add(w.Timeout / 10_000) // its context ends before that
	}
	for _, c := range calls {
		c.term, c.worker, c.sent, c.deadline = term, name, f.sent, deadline
		c.cancelled = func() bool { return ctx.Err() != nil }
	}
	w.mu.Lock()
	m := w.workers[name]
	crashed := ln.l.crashed
	ln.l.recordRequest(f, name)
	w.mu.Unlock()

	var errs []error
	if crashed {
		errs = make([]error, len(calls))
		for i := range errs {
			errs[i] = errCrashed
		}
	} else {
		errs = ln.guard(term, name, len(calls), do)
	}
	if time.Now().Equal(f.sent) {
		<-time.After(1) // nothing is answered at the instant of the call
	}
	leaderLane(ln.l.number, m.index).await()

	w.mu.Lock()
	defer w.mu.Unlock()
	if tasks != nil {
		calls[0].tasks = *tasks
	}
	for i, c := range calls {
		if !c.returned.IsZero() {
			continue // done before
		}
		c.returned = time.Now()
		c.cut = errors.Is(ctx.Err(), context.Canceled)
		if len(errs) == len(calls) {
			c.err = errs[i]
		} else {
			c.err = errors.New("the number of answers differs from the number of writes")
		}
		w.note(leaderLane(ln.l.number, m.index), "leader %d: %v %s %s, sent %v ago in term %d: %s %v",
			ln.l.number, c.op, c.task, name, c.returned.Sub(c.sent), term.Number, answerText(c.err), c.tasks)
	}
	delete(ln.l.requests, name)
	return errs
}

// guard makes a call, and ends the run if the user's layer panics or ends the
// goroutine, as a failing test does. Otherwise the orchestrator would turn the panic
// into an error.
func (ln leaderNet) guard(term orchestrator.Term, name string, calls int, do func() []error) (errs []error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		text := "a call ended its goroutine"
		if v := recover(); v != nil {
			text = fmt.Sprintf("a call panicked: %v\n%s", v, debug.Stack())
		}
		ln.l.w.mu.Lock()
		defer ln.l.w.mu.Unlock()
		delete(ln.l.requests, name)
		ln.l.w.fail(ln.l, term, LayerReturns, "%s", text)
		errs = make([]error, calls)
	}()
	errs = do()
	returned = true
	return errs
}

// recordRequest records outgoing calls and checks that they are allowed. The caller holds
// w.mu.
func (l *leader) recordRequest(f *request, name string) {
	w, term := l.w, f.calls[0].term
	if other := l.requests[name]; other != nil {
		w.fail(l, term, Bounded, "%v %s was sent while a call of term %d was under way", f.calls[0].op, name, other.calls[0].term.Number)
	}
	l.requests[name] = f
	if l.isPlanning {
		w.fail(l, term, Predicted, "%v %s %s was sent during a Plan", f.calls[0].op, f.calls[0].task, name)
	}
	l.calls = append(l.calls, f.calls...)
	if term.Number > l.term {
		l.term, l.termBegan, l.expected = term.Number, f.sent, l.viewAt(f.sent)
		if l.epoch == w.epoch {
			w.number = term.Number
		}
	}
	p := l.expected.worker(name)
	if p == nil {
		w.fail(l, term, Planned, "%v went to %s, which is not a member", f.calls[0].op, name)
		return
	}
	for _, c := range f.calls {
		c.serial = p.serial
		if c.deadline.Before(f.sent.Add(w.Timeout * 15 / 16)) {
			w.fail(l, term, Bounded, "%v %s has only %v", c.op, name, c.deadline.Sub(f.sent))
		}
		if c.op == orchestrator.OpAdd {
			l.intents[c.intentKey()] = intent{want: l.expected.tasks[c.task].Instances, sent: c.sent}
		}
	}
	lists := f.calls[0].op == orchestrator.OpList
	inFlight := 0
	for name, other := range l.requests {
		// Calls of earlier terms may last until their deadlines.
		c := other.calls[0]
		list := c.op == orchestrator.OpList
		if p := l.expected.worker(name); p != nil && p.serial == c.serial && c.term == term && list == lists && time.Now().Before(c.deadline) {
			inFlight++
		}
	}
	if inFlight > 2*w.Concurrency || !lists && inFlight > w.Concurrency {
		w.fail(l, term, Bounded, "%d calls are in flight, want at most %d, and as many that the term does not wait for", inFlight, w.Concurrency)
	}
}

// countGoroutines checks that leaders have at most as many goroutines as calls in
// flight, plus more. The caller holds mu.
func (w *world) countGoroutines(l *leader, term orchestrator.Term, more int) {
	if w.census == nil || w.violation != nil {
		return
	}
	inFlight := 0
	for _, l := range w.leaders {
		inFlight += len(l.requests)
	}
	if n := w.census(); n > inFlight+more {
		w.fail(l, term, Bounded, "leaders have %d goroutines, with %d calls in flight", n, inFlight)
	}
}

// bound binds every call to its target, as a transport must: the worker that had
// joined when the leader learned of it. A write is also bound to the process that
// answered the leader's last List, so a later process of the same name does not
// receive it. The leader forgets what it knows of a process when it learns that the
// worker has left.
type bound struct {
	l         *leader
	next      orchestrator.Communicator[string, string]
	processes map[string]int // by worker; guarded by l.w.mu
}

// address is the target of a call.
type address struct {
	session int
	process int // as in member
}

type addressKey struct{}

// batchBound is a bound whose next layer is an Applier.
type batchBound struct {
	*bound
	next orchestrator.Applier[string, string]
}

func newBound(l *leader, next orchestrator.Communicator[string, string]) orchestrator.Communicator[string, string] {
	b := &bound{l, next, make(map[string]int)}
	if applier, ok := next.(orchestrator.Applier[string, string]); ok {
		return batchBound{b, applier}
	}
	return b
}

// List implements orchestrator.Communicator.
func (b *bound) List(ctx context.Context, name string) ([]string, error) {
	w := b.l.w
	w.mu.Lock()
	to := address{session: b.l.sessions[name]}
	if m := w.workers[name]; m != nil {
		to.process = m.process
	}
	w.mu.Unlock()
	tasks, err := b.next.List(context.WithValue(ctx, addressKey{}, to), name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		b.processes[name] = to.process
	}
	return tasks, err
}

// Add implements orchestrator.Communicator.
func (b *bound) Add(ctx context.Context, name, task string) error {
	return b.next.Add(b.to(ctx, name), name, task)
}

// Remove implements orchestrator.Communicator.
func (b *bound) Remove(ctx context.Context, name, task string) error {
	return b.next.Remove(b.to(ctx, name), name, task)
}

// Apply implements orchestrator.Applier.
func (bb batchBound) Apply(ctx context.Context, name string, writes []orchestrator.Write[string]) []error {
	return bb.next.Apply(bb.to(ctx, name), name, writes)
}

// to returns a context that addresses a write.
func (b *bound) to(ctx context.Context, name string) context.Context {
	b.l.w.mu.Lock()
	defer b.l.w.mu.Unlock()
	return context.WithValue(ctx, addressKey{}, address{b.l.sessions[name], b.processes[name]})
}
