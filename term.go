package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/internal/breaker"
)

// One term, from start to end: list, decide, write, publish.

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
	if err := o.takeTurn(ctx); err != nil {
		return fmt.Errorf("no term was run: %w", err)
	}
	defer o.endTurn()
	o.number++
	t := &term[W, T]{
		o: o, id: Term{Epoch: o.cfg.epoch, Number: o.number}, dry: o.cfg.dryRun,
		fleet: &o.fleet, breakers: o.breakers, expect: &o.expect, names: o.namesOf,
	}
	err := t.run(ctx)
	var before Plan[W, T]
	if last := o.last.Load(); last != nil {
		before = last.plan
	}
	r := t.publish(err)
	o.last.Store(r)
	t.log(ctx, &before, &r.plan)
	for _, f := range o.cfg.stats {
		f(t.stats)
	}
	return err
}

// term is one term under way.
type term[W, T comparable] struct {
	o        *Orchestrator[W, T]
	id       Term
	dry      bool // the term does not write
	fleet    *fleet[W, T]
	breakers *breaker.Breakers
	expect   *expectation
	names    func(tasks []int32) []T
	stats    TermStats
	decision decision
	rows     []WorkerPlan[W] // by worker, as of the decision
	writing  *writing[W, T]  // nil if nothing was written
	failures []error
	failed   map[uint64]bool // the workers that failed to start a task
	cut      bool            // the term ended before it could decide

	silenced, returned, lost []*worker[W, T] // for the log
}

// now returns the moment for which the term decides.
func (t *term[W, T]) now() breaker.Moment {
	return breaker.Moment{Term: t.id.Number, Time: time.Now()}
}

// run goes through the phases.
func (t *term[W, T]) run(ctx context.Context) error {
	t.stats.Term, t.stats.Start = t.id, time.Now()
	t.begin()
	err := t.phases(ctx)
	t.end()
	return err
}

func (t *term[W, T]) phases(ctx context.Context) error {
	answers, began := t.o.list(ctx, t.fleet, t.id)
	listed := time.Now()
	t.stats.Listing = listed.Sub(t.stats.Start)
	cause := t.applyAnswers(answers, began, ctx.Err() != nil)
	if cause == nil {
		cause = t.o.inflight.told()
	}
	if cause == nil && ctx.Err() != nil {
		cause = causeOf(ctx)
	}
	if cause != nil {
		t.cut, t.stats.Cut = true, true
		return fmt.Errorf("term %d, before its writes: %w", t.id.Number, cause)
	}
	t.clearFailures()
	t.applyNoAnswers(answers)
	t.lost, t.stats.MassLoss = t.fleet.judge(time.Now(), &t.o.cfg, t.o.grace())
	t.decide()
	planned := time.Now()
	t.stats.Planning = planned.Sub(listed)
	if !t.dry && len(t.decision.changes) > 0 {
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

// begin updates the expected tasks, the workers and the late answers. It takes
// O(workers) if members changed, O(tasks) if expectations changed, and O(workers + their
// names) if answers came late.
func (t *term[W, T]) begin() {
	o, f := t.o, t.fleet
	o.mu.Lock()
	o.tasks.snapshot(&o.expect)
	var views []memberView[W]
	changed := f.version != o.members.version
	if changed {
		f.version = o.members.version
		views = o.members.views()
	}
	o.mu.Unlock()
	if o.breakersOf != o.expect.version {
		o.breakersOf = o.expect.version
		o.breakers.ForgetTasks(func(task int32) bool { return !o.expect.expected(task) })
	}
	if changed {
		gone := f.part(views)
		o.forget(gone) // before a new worker of the same name joins
		f.join(views, gone, t.stats.Start, o.inflight.of)
	}
	o.breakers.ForgetQuarantines(t.now())
	t.failed = o.breakers.FailedWorkers()
	for i, late := range o.takeLate(f.workers) {
		if late == nil {
			continue
		}
		w := f.workers[i]
		late.answer.same = int32(alike(late.answer.list, w.list))
		if t.applyAnswer(w, &late.answer, late.at) != nil {
			w.missed = late.at
			continue
		}
		w.fresh, w.awaited = true, late.prompt
	}
}

// forget drops the state of removed workers.
func (o *Orchestrator[W, T]) forget(gone []*worker[W, T]) {
	serials := make(map[uint64]bool, len(gone))
	for _, w := range gone {
		serials[w.serial] = true
	}
	o.inflight.forget(gone)
	o.breakers.ForgetWorkers(func(worker uint64) bool { return serials[worker] })
}

// numberOf returns the number of a task's name.
func (o *Orchestrator[W, T]) numberOf(name T) int32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tasks.id(name)
}

// applyAnswers records the answers. It returns the error of a worker that knows a later
// leader. cut: calls were cancelled, so their workers did not fail.
func (t *term[W, T]) applyAnswers(answers []answer[T], began time.Time, cut bool) (deposed error) {
	for i := range answers {
		a, w := &answers[i], t.fleet.workers[i]
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
		if a.err = t.applyAnswer(w, a, began.Add(a.began+a.took)); a.err != nil {
			a.missed, w.awaited = true, false
			continue
		}
		t.stats.Instances.Duplicate += w.duplicates
	}
	return deposed
}

// clearFailures forgets the failed starts whose tasks turn out to run. It takes O(tasks)
// for each worker that failed to start one.
func (t *term[W, T]) clearFailures() {
	if len(t.failed) == 0 {
		return
	}
	var happened []breaker.Pair
	for _, w := range t.fleet.workers {
		if !t.failed[w.serial] || w.state != Answering {
			continue
		}
		for _, task := range w.runs {
			if p := (breaker.Pair{Task: task, Worker: w.serial}); t.breakers.FailedOn(p) {
				happened = append(happened, p)
			}
		}
	}
	t.breakers.Happened(happened, t.now(), t.fleet.runsNothing)
}

// applyAnswer records one answer. An answer with a name that cannot be compared, or does
// not equal itself, counts as a failed call.
func (t *term[W, T]) applyAnswer(w *worker[W, T], a *answer[T], at time.Time) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("unusable answer: %v", v)
			w.failed = err.Error()
		}
	}()
	returned, unsure := w.heard && w.state != Answering, w.maybe
	t.fleet.applyAnswer(w, a.list, int(a.pins), int(a.same), at, t.o.numberOf)
	if returned {
		t.returned = append(t.returned, w)
	}
	w.took = a.took
	if t.failed[w.serial] {
		t.fleet.deny(w, unsure, t.breakers, t.now())
	}
	return nil
}

// applyNoAnswers records which workers did not answer.
func (t *term[W, T]) applyNoAnswers(answers []answer[T]) {
	grace, now := t.o.grace(), time.Now()
	for i := range answers {
		a, w := &answers[i], t.fleet.workers[i]
		if a.err == nil {
			continue
		}
		if a.missed && !t.o.isMember(w.name, w.serial) {
			a.missed = false // it was removed meanwhile, and may have stopped
		}
		before := w.state
		t.fleet.applyNoAnswer(w, a.missed, a.err, now, grace)
		if w.late {
			continue
		}
		if before == Answering {
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

// decide plans the term.
func (t *term[W, T]) decide() {
	o := t.o
	o.mu.Lock()
	known := len(o.tasks.defs)
	o.mu.Unlock()
	t.fleet.grow(known)
	t.expect.grow(known)
	t.decision = o.decider.decide(t.fleet, t.breakers, t.expect, t.now(), &o.cfg)
	t.rows = t.begun()
}

// write carries out the decision, and learns from the outcome. It takes O(workers), a
// step for each write, and O(tasks) for each worker written to.
func (t *term[W, T]) write(ctx context.Context) error {
	if ctx.Err() != nil {
		return causeOf(ctx)
	}
	o, f := t.o, t.fleet
	tasks := make([]int32, len(t.decision.changes))
	for i := range tasks {
		tasks[i] = t.decision.changes[i].Task
	}
	base, abort := context.WithCancelCause(o.callContext(ctx, t.id))
	t.writing = &writing[W, T]{
		o: o, fleet: f, changes: t.decision.changes, names: t.names(tasks),
		ctx: base, abort: abort, calls: &t.stats,
	}
	cause := t.writing.write(ctx)
	after := breaker.Fleet{Empty: f.runsNothing}
	for _, w := range f.workers {
		f.settle(w)
		if w.state == Answering {
			after.Workers++
		}
		if w.isOpen() {
			after.Open++
		}
	}
	t.failures = append(t.failures, t.writing.failed...)
	t.writing.limitGains()
	t.breakers.Learn(t.now(), t.writing.outcomes(), after)
	return cause
}

// namesOf returns the names of tasks.
func (o *Orchestrator[W, T]) namesOf(tasks []int32) []T {
	o.mu.Lock()
	defer o.mu.Unlock()
	names := make([]T, len(tasks))
	for i, task := range tasks {
		names[i] = o.tasks.defs[task].name
	}
	return names
}

// end frees the numbers of tasks that nothing refers to. It takes O(tasks + instances)
// if many unexpected tasks are known, and no time otherwise.
func (t *term[W, T]) end() {
	o := t.o
	legacies := o.inflight.legacies()
	o.mu.Lock()
	defer o.mu.Unlock()
	freed := o.tasks.sweep(func(mark func(int32)) {
		o.fleet.mark(mark)
		t.decision.mark(mark)
		o.breakers.Tasks()(func(task int32) bool { mark(task); return true })
		for _, task := range legacies {
			mark(task)
		}
	})
	for _, id := range freed {
		if int(id) < len(o.fleet.flags) {
			o.fleet.flags[id] = 0
		}
	}
}

// outcomeOf returns the outcome of change i.
func (t *term[W, T]) outcomeOf(i int) (Outcome, error) {
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
