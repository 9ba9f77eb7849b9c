package simulator

// The workers' side of the network: the calls that reach a worker, their effects,
// and whether the worker may accept them.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/communicatortest"
)

// errOtherProcess is the answer to a call that is meant for an earlier process.
var errOtherProcess = errors.New("the call is meant for another process")

// arrival holds writes that have reached a worker, until they are answered.
type arrival struct {
	term   orchestrator.Term
	writes []orchestrator.Write[string]
}

func (a *arrival) adds(task string) bool {
	return slices.Contains(a.writes, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: task})
}

// workerNet delivers calls to the workers, one write at a time.
type workerNet struct{ w *world }

// batchWorkerNet is a workerNet that implements Applier.
type batchWorkerNet struct{ workerNet }

// workersSide returns the Communicator that the network passes calls to.
func (w *world) workersSide() orchestrator.Communicator[string, string] {
	if w.applier {
		return batchWorkerNet{workerNet{w}}
	}
	return workerNet{w}
}

// arrive waits for the instant at which a leader's call reaches a worker.
func (wn workerNet) arrive(ctx context.Context, name string) (*member, orchestrator.Term, error) {
	w := wn.w
	term, _ := orchestrator.TermFromContext(ctx)
	w.mu.Lock()
	l, m := w.byEpoch[term.Epoch], w.workers[name]
	w.mu.Unlock()
	if m == nil {
		return nil, term, fmt.Errorf("there is no worker %s", name)
	}
	return m, term, workerLane(l.lane(), m.index).awaitOr(ctx)
}

// isTarget reports whether a call is meant for this process.
func (m *member) isTarget(ctx context.Context) bool {
	to, ok := ctx.Value(addressKey{}).(address)
	return !ok || to == address{m.session, m.process}
}

// List implements orchestrator.Communicator.
func (wn workerNet) List(ctx context.Context, name string) ([]string, error) {
	w := wn.w
	m, term, err := wn.arrive(ctx, name)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	if !m.isTarget(ctx) {
		w.mu.Unlock()
		return nil, errOtherProcess
	}
	if m.alive {
		m.highest = later(m.highest, term)
	}
	w.mu.Unlock()
	tasks, err := w.cluster.List(ctx, name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && !w.settling && time.Now().Before(m.falseListsUntil) {
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
		case l != nil:
			key := writeKey{task, m.name}
			l.omitted[key] = append(l.omitted[key], span{since: time.Now()})
		}
	}
	if rnd.chance(0.3) {
		invented := fmt.Sprint("t", rnd.oneTo(max(w.Tasks, 1)))
		listed = append(listed, invented)
		if l != nil {
			l.added[writeKey{invented, m.name}] = true
		}
	}
	if rnd.chance(0.1) {
		listed = append(listed, "nonsense")
	}
	w.report.Faults["false list"]++
	w.note(workerLane(l.lane(), m.index), "%s runs %v, and lists %v", m.name, truth, listed)
	return listed
}

// Add implements orchestrator.Communicator.
func (wn workerNet) Add(ctx context.Context, name, task string) error {
	return wn.write(ctx, name, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: task})
}

// Remove implements orchestrator.Communicator.
func (wn workerNet) Remove(ctx context.Context, name, task string) error {
	return wn.write(ctx, name, orchestrator.Write[string]{Op: orchestrator.OpRemove, Task: task})
}

func (wn workerNet) write(ctx context.Context, name string, write orchestrator.Write[string]) error {
	return wn.deliver(ctx, name, []orchestrator.Write[string]{write}, func([]orchestrator.Write[string]) []error {
		if write.Op == orchestrator.OpAdd {
			return []error{wn.w.cluster.Add(ctx, name, write.Task)}
		}
		return []error{wn.w.cluster.Remove(ctx, name, write.Task)}
	})[0]
}

// Apply implements orchestrator.Applier.
func (bw batchWorkerNet) Apply(ctx context.Context, name string, writes []orchestrator.Write[string]) []error {
	return bw.deliver(ctx, name, writes, func(writes []orchestrator.Write[string]) []error {
		errs := bw.w.cluster.Apply(ctx, name, writes)
		if errs == nil {
			errs = make([]error, len(writes))
		}
		return errs
	})
}

// deliver passes on the writes that are not refused on the way, and checks that the
// worker has not accepted a write that it must refuse.
func (wn workerNet) deliver(ctx context.Context, name string, writes []orchestrator.Write[string],
	hand func([]orchestrator.Write[string]) []error,
) []error {
	w := wn.w
	errs := make([]error, len(writes))
	m, term, err := wn.arrive(ctx, name)
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	w.mu.Lock()
	var let []orchestrator.Write[string]
	var at []int
	for i, write := range writes {
		if errs[i] = w.refusal(ctx, m, term, write); errs[i] == nil {
			let, at = append(let, write), append(at, i)
		}
	}
	before, gen := m.highest, m.process
	a := &arrival{term: term, writes: let}
	if len(let) > 0 && m.alive {
		m.highest = later(m.highest, term)
		m.arrivals = append(m.arrivals, a)
	}
	w.mu.Unlock()
	if len(let) == 0 {
		return errs
	}
	answers := hand(let)
	w.mu.Lock()
	defer w.mu.Unlock()
	m.arrivals = slices.DeleteFunc(m.arrivals, func(other *arrival) bool { return other == a })
	for j, err := range answers {
		errs[at[j]] = err
		stale := errors.Is(err, orchestrator.ErrStale) || errors.Is(err, orchestrator.ErrDeposed)
		if stale {
			w.report.Refused++
		}
		if !stale && term.Compare(before) < 0 && gen == m.process && m.alive && !errors.Is(err, orchestrator.ErrRejected) {
			w.fail(w.byEpoch[term.Epoch], term, Fenced, "%s has seen %v, and answered %v %s of %v: %v",
				name, before, let[j].Op, let[j].Task, term, err)
		}
		w.note(workerLane(w.byEpoch[term.Epoch].lane(), m.index), "  %s gets %v %s of term %d: %s",
			name, let[j].Op, let[j].Task, term.Number, answerText(err))
	}
	return errs
}

// refusal returns why a write never reaches the worker.Worker, or nil. The caller
// holds mu.
func (w *world) refusal(ctx context.Context, m *member, term orchestrator.Term, write orchestrator.Write[string]) error {
	rnd := newRandom(w.seed, "refusal", term.Epoch, term.Number, uint64(m.index))
	rnd.text(write.Task)
	refuse := func(err error) error {
		if rnd.chance(0.5) {
			err = fmt.Errorf("%w: %w", orchestrator.ErrRejected, err)
		}
		return err
	}
	switch {
	case !m.isTarget(ctx):
		w.report.Faults["write to a process that is gone"]++
		return refuse(errOtherProcess)
	case write.Op == orchestrator.OpRemove && w.resistanceOf(write.Task) == stopRefused:
		w.report.Faults["stop of a stuck task refused"]++
		return refuse(errors.New("the task cannot be stopped"))
	case write.Op != orchestrator.OpAdd:
	case w.isActive(w.outage):
		w.report.Faults["start refused in an outage"]++
		return refuse(errors.New("nothing can be started"))
	case w.isActive(m.brokenUntil):
		w.report.Faults["start refused by a broken worker"]++
		return refuse(errors.New("the worker is broken"))
	case w.isActive(w.poisonTasks[write.Task]):
		w.report.Faults["start of a poison task refused"]++
		return refuse(errors.New("the task cannot be started"))
	}
	return nil
}

// decide returns the fault that the network applies to a call.
func (w *world) decide(c communicatortest.Call[string, string]) communicatortest.Fault {
	fault := w.drawFault(c)
	w.mu.Lock()
	defer w.mu.Unlock()
	l, m := w.byEpoch[c.Term.Epoch], w.workers[c.Worker]
	w.report.Calls++
	if m == nil {
		return communicatortest.Fault{}
	}
	latency := fault.Latency
	switch {
	case w.settling:
		fault, latency = communicatortest.Fault{}, 100*time.Microsecond
	case l != nil && l.isolated, m.network == cut:
		fault.Kind = communicatortest.LostRequest
	case m.network == oneWay:
		fault.Kind = communicatortest.LostAnswer
	}
	if !w.settling {
		latency += m.latency
	}
	if c.Op == orchestrator.OpList && w.isActive(m.slowListsUntil) {
		latency += m.listDelay
		w.report.Faults["slow List"]++
	}
	switch {
	case c.Op == orchestrator.OpAdd && (w.isActive(m.hangingUntil) || w.isActive(w.hangingTasks[c.Task])),
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

// answerText returns an answer as text.
func answerText(err error) string {
	if err == nil {
		return "done"
	}
	return err.Error()
}
