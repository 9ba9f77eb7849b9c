package simulator

// The network: its layers, the calls that a leader makes, and how they reach the workers.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/communicatortest"
)

type (
	communicator = orchestrator.Communicator[string, string]
	applier      = orchestrator.Applier[string, string]
	write        = orchestrator.Write[string]
)

// message is a call to a worker: a List, or a write, or writes that travel together.
type message struct {
	worker string
	writes []write // none: List
	batch  bool    // it came by Apply
}

// answers returns the same error for each part of a message.
func (m *message) answers(err error) []error {
	return slices.Repeat([]error{err}, max(1, len(m.writes)))
}

// pass passes a message on, and returns the list and an error for each part.
type pass func(context.Context, message) ([]string, []error)

// passTo passes messages to a Communicator.
func passTo(next communicator) pass {
	return func(ctx context.Context, m message) ([]string, []error) {
		switch {
		case m.batch:
			errs := next.(applier).Apply(ctx, m.worker, m.writes) //nolint:errcheck // a batch comes only from a layer over an applier
			if errs == nil {
				errs = m.answers(nil)
			}
			return nil, errs
		case len(m.writes) == 0:
			tasks, err := next.List(ctx, m.worker)
			return tasks, []error{err}
		case m.writes[0].Op == orchestrator.OpAdd:
			return nil, []error{next.Add(ctx, m.worker, m.writes[0].Task)}
		}
		return nil, []error{next.Remove(ctx, m.worker, m.writes[0].Task)}
	}
}

// layer is the Communicator of a function.
type layer struct{ pass pass }

// batchLayer is a layer that implements Applier.
type batchLayer struct{ layer }

// newLayer returns the Communicator of a function. It is an Applier if batches is true.
func newLayer(do pass, batches bool) communicator {
	if batches {
		return batchLayer{layer{do}}
	}
	return layer{do}
}

// List implements orchestrator.Communicator.
func (l layer) List(ctx context.Context, worker string) ([]string, error) {
	tasks, errs := l.pass(ctx, message{worker: worker})
	return tasks, errs[0]
}

// Add implements orchestrator.Communicator.
func (l layer) Add(ctx context.Context, worker, task string) error {
	_, errs := l.pass(ctx, message{worker: worker, writes: []write{{Op: orchestrator.OpAdd, Task: task}}})
	return errs[0]
}

// Remove implements orchestrator.Communicator.
func (l layer) Remove(ctx context.Context, worker, task string) error {
	_, errs := l.pass(ctx, message{worker: worker, writes: []write{{Op: orchestrator.OpRemove, Task: task}}})
	return errs[0]
}

// Apply implements orchestrator.Applier.
func (l batchLayer) Apply(ctx context.Context, worker string, writes []write) []error {
	_, errs := l.pass(ctx, message{worker: worker, writes: writes, batch: true})
	return errs
}

// errCrashed fails every call of a crashed leader.
var errCrashed = errors.New("the leader has crashed")

// errNoAnswer is recorded for a call that panicked, or one of several that got too few answers.
var errNoAnswer = errors.New("there was no answer")

// connect returns the Communicator that the leader calls. It passes messages on to next.
func (l *leader) connect(next communicator) communicator {
	_, batches := next.(applier)
	send := passTo(next)
	return newLayer(func(ctx context.Context, m message) (tasks []string, errs []error) {
		calls := l.newCalls(ctx, m)
		errs = m.answers(errNoAnswer)
		defer func() { l.recordAnswers(calls, tasks, errs) }() // also if the user's layer panics
		return l.send(ctx, calls, m, send)
	}, batches)
}

// laneOf returns the lane in which the answers of a worker reach the leader.
func (l *leader) laneOf(worker string) lane { return leaderLane(l.number, l.w.workers[worker].index) }

// newCalls records the calls of a message, and checks that they are allowed: one message at a
// time to each worker (C1), and none for a Plan.
func (l *leader) newCalls(ctx context.Context, m message) (calls []*call) {
	w, name, now := l.w, m.worker, time.Now()
	term, _ := orchestrator.TermFromContext(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if term.Number > l.term {
		l.term, l.expected = term.Number, l.view
		if l.epoch == w.epoch {
			w.number = term.Number
		}
	}
	p := l.expected.worker(name)
	switch other := l.requests[name]; {
	case p == nil:
		w.fail(l, term, Planned, "%v went to %s, which is not a member", m.writes, name)
		p = &expectedWorker{}
	case other != nil:
		w.fail(l, term, Bounded, "%v was sent to %s while a call of term %d was under way", m.writes, name, other[0].term.Number)
	case l.isPlanning:
		w.fail(l, term, Predicted, "%v was sent to %s during a Plan", m.writes, name)
	}
	first := call{term: term, op: orchestrator.OpList, worker: name, session: p.session, sent: now, deadline: now.Add(w.Timeout)}
	for _, write := range m.writes {
		c := first
		if c.op, c.task = write.Op, write.Task; c.op == orchestrator.OpAdd {
			key := orderKey{term.Number, c.task, name}
			l.orders[key] = &order{leader: l, orderKey: key, view: l.expected, sent: now}
		}
		calls = append(calls, &c)
	}
	if len(calls) == 0 {
		calls = []*call{&first}
	}
	l.requests[name] = calls
	l.calls = append(l.calls, calls...)
	return calls
}

// send passes a message on, and waits for the instant at which its answer reaches the leader.
func (l *leader) send(ctx context.Context, calls []*call, m message, send pass) (tasks []string, errs []error) {
	inner := ctx
	if m.batch {
		inner = orchestrator.ContextWithApplied(ctx, func(write write) { l.applied(ctx, calls[slices.Index(m.writes, write)], write) })
	}
	if errs = m.answers(errCrashed); !l.crashed.Load() {
		tasks, errs = send(inner, m)
	}
	if time.Now().Equal(calls[0].sent) {
		<-time.After(1) // nothing is answered at the instant of the call
	}
	l.laneOf(m.worker).wait()
	return tasks, errs
}

// applied records that a write is done before its call returns, and passes that on.
func (l *leader) applied(ctx context.Context, c *call, write write) {
	at := l.laneOf(c.worker)
	at.wait()
	l.w.mu.Lock()
	c.returned = time.Now()
	l.w.note(at, "leader %d: %v %s %s is done, other writes of its call are not", l.number, c.op, c.task, c.worker)
	l.w.mu.Unlock()
	orchestrator.Applied(ctx, write)
}

// recordAnswers records the answers to the calls of a message.
func (l *leader) recordAnswers(calls []*call, tasks []string, errs []error) {
	w, at := l.w, l.laneOf(calls[0].worker)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, c := range calls {
		if !c.returned.IsZero() {
			continue // done before
		}
		c.returned, c.tasks, c.err = time.Now(), tasks, errNoAnswer
		if len(errs) == len(calls) {
			c.err = errs[i]
		}
		w.note(at, "leader %d: %v %s %s, sent %v ago in term %d: %v %v",
			l.number, c.op, c.task, c.worker, c.returned.Sub(c.sent), c.term.Number, c.err, c.tasks)
	}
	delete(l.requests, calls[0].worker)
}

// address is the target of a call.
type address struct {
	session int
	process int // as in member
}

type addressKey struct{}

// bind returns a Communicator that binds every message to its target, as a transport must: the
// worker that had joined when the leader learned of it. A write is also bound to the process
// that answered the leader's last List, so a later process of the same name does not receive
// it.
func (l *leader) bind(next communicator) communicator {
	_, batches := next.(applier)
	send := passTo(next)
	processes := make(map[string]int) // by worker; guarded by l.w.mu
	return newLayer(func(ctx context.Context, m message) ([]string, []error) {
		l.w.mu.Lock()
		to := address{l.sessions[m.worker], processes[m.worker]}
		if worker := l.w.workers[m.worker]; worker != nil && len(m.writes) == 0 {
			to.process = worker.process
		}
		l.w.mu.Unlock()
		tasks, errs := send(context.WithValue(ctx, addressKey{}, to), m)
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		if len(m.writes) == 0 && errs[0] == nil {
			processes[m.worker] = to.process
		}
		return tasks, errs
	}, batches)
}

// deliver delivers a message to a worker.
func (w *world) deliver(ctx context.Context, msg message) ([]string, []error) {
	term, _ := orchestrator.TermFromContext(ctx)
	w.mu.Lock()
	l, m := w.byEpoch[term.Epoch], w.workers[msg.worker]
	w.mu.Unlock()
	if err := workerLane(l.lane(), m.index).await(ctx); err != nil {
		return nil, msg.answers(err)
	}
	if len(msg.writes) > 0 {
		return nil, w.deliverWrites(ctx, m, term, msg)
	}
	tasks, err := w.deliverList(ctx, m, term)
	return tasks, []error{err}
}

// isTarget reports whether a call is meant for this process.
func (m *member) isTarget(ctx context.Context) bool {
	to, ok := ctx.Value(addressKey{}).(address)
	return !ok || to == address{m.session, m.process}
}

// deliverList asks a worker for its tasks. The answer may be false.
func (w *world) deliverList(ctx context.Context, m *member, term orchestrator.Term) ([]string, error) {
	w.mu.Lock()
	target := m.isTarget(ctx)
	if target && m.alive {
		m.highest = later(m.highest, term)
	}
	w.mu.Unlock()
	if !target {
		return nil, errors.New("the call is meant for another process")
	}
	tasks, err := w.cluster.List(ctx, m.name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && w.isActive(FalseLists, m.name) {
		tasks = w.falseList(m, term, tasks)
	}
	return tasks, err
}

// falseList returns a false list. The caller holds mu.
func (w *world) falseList(m *member, term orchestrator.Term, truth []string) (listed []string) {
	rnd := newRandom(w.seed, "lie", term.Epoch, term.Number, uint64(m.index))
	l := w.byEpoch[term.Epoch]
	for _, task := range truth {
		switch {
		case !rnd.chance(0.3):
			listed = append(listed, task)
		case rnd.chance(0.3):
			listed = append(listed, task, task)
		default:
			w.forget(m.name, task, FalseList)
		}
	}
	if rnd.chance(0.3) {
		listed = append(listed, fmt.Sprint("t", rnd.oneTo(max(w.Tasks, 1))))
	}
	if rnd.chance(0.1) {
		listed = append(listed, "nonsense")
	}
	w.report.Faults["false list"]++
	w.note(workerLane(l.lane(), m.index), "%s runs %v, and lists %v", m.name, truth, listed)
	return listed
}

// deliverWrites passes on the writes that are not refused on the way, and checks that the
// worker has not accepted a write that it must refuse.
func (w *world) deliverWrites(ctx context.Context, m *member, term orchestrator.Term, msg message) []error {
	errs := msg.answers(nil)
	let, at := msg, []int(nil)
	let.writes = nil
	w.mu.Lock()
	for i, write := range msg.writes {
		if errs[i] = w.refusal(ctx, m, term, write); errs[i] == nil {
			let.writes, at = append(let.writes, write), append(at, i)
			if write.Op == orchestrator.OpAdd && m.alive {
				m.ordered[write.Task] = later(m.ordered[write.Task], term)
			}
		}
	}
	before, process := m.highest, m.process
	if len(at) > 0 && m.alive {
		m.highest = later(m.highest, term)
	}
	w.mu.Unlock()
	if len(at) == 0 {
		return errs
	}
	_, answers := passTo(w.cluster)(ctx, let)
	w.mu.Lock()
	defer w.mu.Unlock()
	for j, err := range answers {
		errs[at[j]] = err
		write, l := let.writes[j], w.byEpoch[term.Epoch]
		if write.Op == orchestrator.OpAdd && m.ordered[write.Task] == term {
			delete(m.ordered, write.Task)
		}
		if stale := errors.Is(err, orchestrator.ErrStale) || errors.Is(err, orchestrator.ErrDeposed); stale {
			w.report.Faults["write refused by a fence"]++
		} else if term.Compare(before) < 0 && process == m.process && m.alive && !errors.Is(err, orchestrator.ErrRejected) {
			w.fail(l, term, Fenced, "%s has seen %v, and answered %v %s of %v: %v", m.name, before, write.Op, write.Task, term, err)
		}
		w.note(workerLane(l.lane(), m.index), "  %s gets %v %s of term %d: %v", m.name, write.Op, write.Task, term.Number, err)
	}
	return errs
}

// refusal returns why a write never reaches the worker.Worker, or nil. The caller
// holds mu.
func (w *world) refusal(ctx context.Context, m *member, term orchestrator.Term, write write) error {
	rnd := newRandom(w.seed, "refusal", term.Epoch, term.Number, uint64(m.index))
	rnd.text(write.Task)
	why, starts := "", write.Op == orchestrator.OpAdd
	switch {
	case !m.isTarget(ctx):
		why = "write to a process that is gone"
	case !starts && w.resistanceOf(write.Task) == stopRefused:
		why = "stop of a stuck task refused"
	case starts && w.isActive(Outage, ""):
		why = "start refused in an outage"
	case starts && w.isActive(BrokenWorker, m.name):
		why = "start refused by a broken worker"
	case starts && w.isActive(PoisonTask, write.Task):
		why = "start of a poison task refused"
	default:
		return nil
	}
	w.report.Faults[why]++
	if rnd.chance(0.5) {
		return fmt.Errorf("%w: %s", orchestrator.ErrRejected, why)
	}
	return errors.New(why)
}

// decide returns the fault that the network applies to a call.
func (w *world) decide(c communicatortest.Call[string, string]) communicatortest.Fault {
	fault := w.drawFault(c)
	w.mu.Lock()
	defer w.mu.Unlock()
	l, m := w.byEpoch[c.Term.Epoch], w.workers[c.Worker]
	w.report.Calls++
	latency := fault.Latency
	switch {
	case w.settling:
		fault, latency = communicatortest.Fault{}, 100*time.Microsecond
	case w.isActive(Isolation, fmt.Sprint(l.lane())), w.isActive(Partition, m.name) && !m.oneWay:
		fault.Kind = communicatortest.LostRequest
	case w.isActive(Partition, m.name):
		fault.Kind = communicatortest.LostAnswer
	}
	if w.isActive(Slowness, m.name) {
		latency += m.latency
	}
	if c.Op == orchestrator.OpList && w.isActive(SlowLists, m.name) {
		latency += m.listDelay
		w.report.Faults["slow List"]++
	}
	switch {
	case c.Op == orchestrator.OpAdd && (w.isActive(HangingWorker, m.name) || w.isActive(HangingTask, c.Task)),
		c.Op == orchestrator.OpRemove && w.resistanceOf(c.Task) == stopHangs:
		fault.Kind = communicatortest.LostRequest
		w.report.Faults["hanging "+c.Op.String()]++
	}
	fault.Latency = workerLane(l.lane(), m.index).after(latency)
	if fault.Kind != communicatortest.NoFault {
		w.report.Faults[fault.Kind.String()]++
		w.note(workerLane(l.lane(), m.index), "  %v %s %s meets %v", c.Op, c.Task, c.Worker, fault.Kind)
	}
	return fault
}
