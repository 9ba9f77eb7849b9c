package orchestrator

// One term, from start to end: list, decide, write, publish.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/internal/term"
)

// NextTerm runs one term: it lists every worker, plans the fewest moves to the expected
// state and carries them out. It takes at most five communicator timeouts, after the end
// of any term under way.
//
// It returns nil if nothing failed, otherwise a [*TermError] with every failure. The
// term is complete either way. Callers need not handle the error, because the next term
// retries. Changes that could not begin in time are not failures; LastPlan reports them
// as skipped.
//
// If ctx is done before the writes begin, nothing is written and the error wraps the
// cause. If it is done later, no change begins, those begun are carried through so that
// no task is left stopped, and the cause is among the failures. If the cause is
// [ErrDeposed], or a worker returns it, every call is cancelled immediately. A call left
// over from an earlier term counts too: if it returns ErrDeposed, the term under way
// stops.
//
// With [WithDryRun] it lists and plans without writing.
func (o *Orchestrator[W, T]) NextTerm(ctx context.Context) error {
	return o.runTerm(ctx, false)
}

// Observe runs a term for a process that does not lead: it lists every worker, and leaves a
// snapshot that has no changes. An instance that is missing waits with [ReasonObserved] where a
// leader could start it. Functions of [WithStats] are not called, and nothing is logged. The
// error is as that of [Orchestrator.NextTerm].
//
// A worker would take the epoch of a List for that of a leader, so the Communicator must not call
// workers: that of package replica reads a table. Call either Observe or NextTerm, not both.
func (o *Orchestrator[W, T]) Observe(ctx context.Context) error {
	return o.runTerm(ctx, true)
}

func (o *Orchestrator[W, T]) runTerm(ctx context.Context, observed bool) error {
	if err := o.takeTurn(ctx); err != nil {
		return fmt.Errorf("no term was run: %w", err)
	}
	defer o.endTurn()
	o.number++
	t := &termRun[W, T]{
		o: o, id: Term{Epoch: o.epoch.Load(), Number: o.number}, dry: observed || o.cfg.DryRun,
		fleet: o.fleet, expect: &o.expect, names: o.namesOf,
	}
	t.stats.Observed = observed
	err := t.run(ctx)
	before := o.LastPlan()
	r := t.publish(err)
	o.underWay.Store(nil)
	if !observed {
		t.log(ctx, &before, &r.plan)
		t.stats.runOver = o.runOver.Load() // not in the snapshot
		for _, f := range o.cfg.stats {
			f(t.stats)
		}
	}
	o.observe(r)
	return err
}

// termRun is one term under way.
type termRun[W, T comparable] struct {
	o       *Orchestrator[W, T]
	id      Term
	dry     bool // the term does not write
	fleet   *term.Fleet
	workers []*worker[W, T] // of fleet, in its order
	losers  map[uint64]W    // the names of removed workers, by serial
	expect  *term.Tasks
	// names returns the names of n tasks, of which task returns the numbers.
	names     func(n int, task func(i int) int32) []T
	stats     TermStats
	decision  term.Decision
	rows      []WorkerPlan[W] // by worker, as of the decision
	writing   *writing[W, T]  // nil if nothing was written
	failures  []error
	undecided bool    // the term ended before it could decide
	unused    []int32 // numbers of tasks to release, when the next snapshot replaces the last one

	silenced, returned, lost []*worker[W, T] // for the log
}

// now returns the moment for which the term decides.
func (t *termRun[W, T]) now() term.Moment {
	return term.Moment{Term: t.id.Number, Time: time.Now()}
}

// run goes through the phases.
func (t *termRun[W, T]) run(ctx context.Context) error {
	t.stats.Term, t.stats.Start = t.id, time.Now()
	if wait := t.o.cfg.InitialWait; wait > 0 && t.id.Number == 1 {
		time.AfterFunc(wait, func() { t.o.change(func() bool { return true }) }) // Run runs a term when it ends
	}
	t.update()
	err := t.phases(ctx)
	t.forgetTasks()
	return err
}

func (t *termRun[W, T]) phases(ctx context.Context) error {
	answers, began := t.o.list(ctx, t.id, t.stats.Start)
	t.o.enter(t.id, t.stats.Start, PhasePlan, nil, nil)
	listed := time.Now()
	t.stats.Listing = listed.Sub(t.stats.Start)
	cause := t.applyAnswers(answers, began, ctx.Err() != nil)
	if cause == nil {
		cause = t.o.inflight.takeDeposed()
	}
	if cause == nil && ctx.Err() != nil {
		cause = causeOf(ctx)
	}
	if cause != nil {
		t.undecided, t.stats.Cut = true, true
		return fmt.Errorf("term %d, before its writes: %w", t.id.Number, cause)
	}
	t.fleet.ClearFailures(t.now())
	t.applyNoAnswers(answers)
	var lost []int
	lost, t.stats.MassLoss = t.fleet.Judge(time.Now(), t.o.grace())
	for _, i := range lost {
		t.lost = append(t.lost, t.workers[i])
	}
	t.decision = t.fleet.Decide(t.expect, t.now())
	t.rows = t.rowsBefore()
	planned := time.Now()
	t.stats.Planning = planned.Sub(listed)
	if !t.dry && len(t.decision.Changes) > 0 {
		cause = t.write(ctx)
		t.stats.Writing = time.Since(planned)
	}
	if cause != nil {
		t.stats.Cut = true
		t.failures = slices.Insert(t.failures, 0, cause)
	}
	if len(t.failures) == 0 {
		return nil
	}
	return &TermError{Term: t.id, Failures: t.failures}
}

// update updates the expected tasks, the workers and the late answers. It takes
// O(workers) if members changed, O(tasks) if expectations changed, and O(workers + their
// names) if answers came late.
func (t *termRun[W, T]) update() {
	o := t.o
	o.mu.Lock()
	o.expect.Loaded = o.tasks.loaded
	o.expect.Holds = o.holdsAt(t.stats.Start, o.tasks.weighed)
	tasksChanged := o.tasksVersion != o.tasks.version
	before := o.expected
	weightsChanged := tasksChanged || o.weightsVersion != o.tasks.weights
	if weightsChanged {
		o.tasksVersion, o.weightsVersion, o.expected = o.tasks.version, o.tasks.weights, o.tasks.share()
	}
	membersChanged := o.workersVersion != o.members.version
	var names []W
	var members []term.Member
	if membersChanged {
		o.workersVersion = o.members.version
		names, members = o.members.current()
	}
	o.mu.Unlock()
	t.stats.TasksChanged, t.stats.WeightsChanged, t.stats.WorkersChanged = tasksChanged, weightsChanged && !tasksChanged, membersChanged
	if tasksChanged {
		setExpected(&o.expect, o.expected, o.cfg.Handoff)
		o.fleet.ForgetTasks(&o.expect, changedSince(before, o.expected))
	}
	if weightsChanged {
		setWeights(&o.expect, o.expected)
	}
	if membersChanged {
		o.setMembers(names, members, t.stats.Start)
	}
	t.workers, t.losers = o.workers, o.losers
	now := t.now()
	o.fleet.Begin(term.Moment{Term: now.Term, Time: t.stats.Start}) // before the members were read
	t.stats.InitialWait = o.fleet.WaitsUntil()
	for i, late := range o.takeLate() {
		if late == nil {
			continue
		}
		w := t.workers[i]
		late.answer.same = int32(alike(late.answer.list, w.list))
		if t.applyAnswer(w, &late.answer, late.at, now) != nil {
			w.Miss(late.at)
			continue
		}
		w.fresh, w.awaited = true, late.prompt
	}
}

// numberOf returns the number of a task's name.
func (o *Orchestrator[W, T]) numberOf(name T) int32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tasks.id(name)
}

// applyAnswers records the answers. It returns the error of a worker that knows a later
// leader. cut: calls were cancelled, so their workers did not fail.
func (t *termRun[W, T]) applyAnswers(answers []answer[T], began time.Time, cut bool) (deposed error) {
	now := t.now()
	for i := range answers {
		a, w := &answers[i], t.workers[i]
		if !a.asked {
			continue
		}
		if a.took > 0 || a.err == nil {
			t.stats.List.Seconds.observe(a.took)
		}
		t.stats.List.count(a.err, errors.Is(a.err, ErrSilent))
		w.awaited = a.err == nil || cut && w.awaited
		if a.err != nil {
			if deposed == nil && errors.Is(a.err, ErrDeposed) {
				deposed = &CallError[W, T]{Op: OpList, Worker: w.name, Err: a.err}
			}
			w.failed = cmp.Or(a.why, w.failed)
			continue
		}
		if a.err = t.applyAnswer(w, a, began.Add(a.began+a.took), now); a.err != nil {
			a.missed, w.awaited = true, false
			continue
		}
		t.stats.Instances.Duplicate += w.Duplicates
	}
	return deposed
}

// applyAnswer records one answer. An answer with a name that cannot be compared, or does
// not equal itself, counts as a failed call.
func (t *termRun[W, T]) applyAnswer(w *worker[W, T], a *answer[T], at time.Time, now term.Moment) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("unusable answer: %v", v)
			w.failed = err.Error()
		}
	}()
	tasks, changed := w.numbers(a.list, int(a.same), t.o.numberOf)
	w.list, w.acked, w.err, w.failed = a.list, nil, nil, ""
	if a.held {
		w.err = ErrHeld
		t.failures = append(t.failures, &CallError[W, T]{Op: OpList, Worker: w.name, Err: ErrHeld})
		if w.State == term.Answering {
			t.silenced = append(t.silenced, w)
		}
	}
	if t.fleet.Answer(w.Worker, term.Answer{
		Tasks: tasks, Changed: changed, Pinned: int(a.pins), Held: a.held, At: at, Took: a.took,
	}, now) {
		t.returned = append(t.returned, w)
	}
	return nil
}

// applyNoAnswers records which workers did not answer.
func (t *termRun[W, T]) applyNoAnswers(answers []answer[T]) {
	grace, now := t.o.grace(), time.Now()
	for i := range answers {
		a, w := &answers[i], t.workers[i]
		if a.err == nil {
			continue
		}
		if a.missed && !t.o.isMember(w.name, w.Serial) {
			a.missed = false // it was removed meanwhile, and may have stopped
		}
		before := w.State
		w.err = a.err
		w.NoAnswer(a.missed, a.blocked, now, grace)
		if w.Late {
			continue
		}
		if before == term.Answering {
			t.silenced = append(t.silenced, w)
		}
		t.failures = append(t.failures, &CallError[W, T]{Op: OpList, Worker: w.name, Err: a.err})
	}
}

// isMember reports whether the worker with a serial number is still a member.
func (o *Orchestrator[W, T]) isMember(name W, serial uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	m := o.members.byName[name]
	return m != nil && m.serial == serial
}

// write carries out the decision, and learns from the outcome. It takes O(workers), a
// step for each write, and O(tasks) for each worker written to.
func (t *termRun[W, T]) write(ctx context.Context) error {
	if ctx.Err() != nil {
		return causeOf(ctx)
	}
	o := t.o
	base, abort := context.WithCancelCause(o.callContext(ctx, t.id))
	t.writing = &writing[W, T]{
		o: o, workers: t.workers, changes: t.decision.Changes, names: t.changeNames(),
		Writes: t.fleet.Write(t.decision.Changes, o.applier != nil),
		ctx:    base, abort: abort, calls: &t.stats,
	}
	t.writing.left.Store(int64(len(t.decision.Changes)))
	o.enter(t.id, t.stats.Start, PhaseWrite, nil, t.writing)
	cause := t.writing.write(ctx)
	t.failures = append(t.failures, t.writing.failed...)
	t.writing.Learn(errors.Is(t.writing.cause, ErrDeposed), t.now())
	return cause
}

// changeNames returns the names of the tasks of the changes.
func (t *termRun[W, T]) changeNames() []T {
	return t.names(len(t.decision.Changes), func(i int) int32 { return t.decision.Changes[i].Task })
}

// namesOf returns the names of n tasks, of which task returns the numbers.
func (o *Orchestrator[W, T]) namesOf(n int, task func(i int) int32) []T {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tasks.names(n, task)
}

// forgetTasks forgets the tasks that nothing refers to. It takes O(tasks + instances) if
// many unexpected tasks are known, and no time otherwise. Their numbers are not released yet,
// because the last snapshot may refer to them, and a what-if plan may start from it.
func (t *termRun[W, T]) forgetTasks() {
	o := t.o
	legacies := o.inflight.legacies()
	o.mu.Lock()
	defer o.mu.Unlock()
	t.unused = o.tasks.unused(func(mark func(int32)) {
		o.fleet.Mark(mark)
		t.decision.Mark(mark)
		for _, task := range legacies {
			mark(task)
		}
	})
	o.fleet.Free(t.unused)
}

// outcomeOf returns the outcome of change i.
func (t *termRun[W, T]) outcomeOf(i int) (Outcome, error) {
	switch {
	case t.dry:
		return OutcomeDry, nil
	case t.o == nil:
		return OutcomePlanned, nil
	case t.writing == nil:
		return OutcomeSkipped, ErrSkipped
	}
	return t.writing.outcome(i)
}
