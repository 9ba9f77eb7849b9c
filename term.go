package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/internal/standing"
)

// One term, from start to end: list, decide, write, publish.

// NextTerm runs one term: it lists what every worker runs, plans the fewest
// moves to what is expected, carries them out, and returns when that is done,
// after five communicator timeouts at the latest. If another term is under
// way it waits for its end first.
//
// It returns nil when nothing failed, and else a [*TermError] with every
// failure; the term was a whole one nevertheless. Failures do not add up to
// anything that the caller has to handle: the next term tries again. So it does
// with changes that could not begin in time, which are no failures: LastPlan has
// them as skipped.
//
// If ctx is done before the writes begin, nothing is written, and the cause is
// returned. If it is done later, nothing new begins, what has begun is carried
// through, so that nothing is left stopped half-way, and the cause is among the
// failures; but where the cause is [ErrDeposed], or a worker says so, every call
// is cancelled at once. So it is where a call of an earlier term returns only now
// and says so, and one that has returned between two terms ends the second before
// its writes.
func (o *Orchestrator[W, T]) NextTerm(ctx context.Context) error {
	if err := o.takeTurn(ctx); err != nil {
		return fmt.Errorf("wait for the term before: %w", err)
	}
	defer o.endTurn()
	o.number++
	t := o.newTerm(false)
	err := t.run(ctx)
	var before []Change[W, T]
	if last := o.last.Load(); last != nil {
		before = last.plan.Changes
	}
	r := t.publish(err)
	o.last.Store(r)
	t.log(ctx, before, r.plan.Changes)
	for _, f := range o.cfg.stats {
		f(t.stats)
	}
	return err
}

// Plan returns what a term would do now, with the reasons, and writes nothing.
// It asks the workers for which a term would wait, without the identity of a
// term, so it fences nobody; those that were silent in the last term are silent
// here too. It waits for a term under way first, and changes nothing that later
// terms build on. If some workers did not answer the plan is what a term would do
// all the same, and the error a [*TermError] that names them.
func (o *Orchestrator[W, T]) Plan(ctx context.Context) (Plan[W, T], error) {
	if err := o.takeTurn(ctx); err != nil {
		return Plan[W, T]{}, fmt.Errorf("wait for the term before: %w", err)
	}
	defer o.endTurn()
	t := o.newTerm(true)
	err := t.run(ctx)
	if t.cut {
		return Plan[W, T]{}, err
	}
	return t.publish(err).plan, err
}

// term is one term under way.
type term[W, T comparable] struct {
	o        *Orchestrator[W, T]
	id       Term
	dry      bool // decides, and writes nothing
	fleet    *fleet[W, T]
	book     *standing.Book
	stats    TermStats
	decision decision
	rows     []WorkerPlan[W] // by worker, as it was when the plan was made
	writing  *writing[W, T]  // nil where nothing was written
	failures []error
	cut      bool // ended before it could decide

	silenced, returned, lost []*worker[W, T] // for the log
}

func (o *Orchestrator[W, T]) newTerm(dry bool) *term[W, T] {
	t := &term[W, T]{o: o, dry: dry, id: Term{Epoch: o.cfg.epoch}, fleet: &o.fleet, book: o.book}
	if dry {
		f := o.fleet.clone()
		t.fleet = &f
	} else {
		t.id.Number = o.number
	}
	return t
}

// number returns the number of the term, or of the one that a Plan stands for.
func (t *term[W, T]) number() uint64 {
	if t.dry {
		return t.o.number + 1
	}
	return t.id.Number
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
	answers := t.o.list(ctx, t.fleet, t.id, t.dry)
	listed := time.Now()
	t.stats.Listing = listed.Sub(t.stats.Start)
	cause := t.hear(answers)
	if cause == nil && !t.dry {
		cause = t.o.lines.told()
	}
	if cause == nil && ctx.Err() != nil {
		cause = causeOf(ctx)
	}
	if cause != nil {
		t.cut, t.stats.Cut = true, true
		return fmt.Errorf("term %d, before its writes: %w", t.id.Number, cause)
	}
	t.unheard(answers)
	t.judge()
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

// begin takes over what is expected and who is there: O(workers), where members
// changed or answers came late, with the names of these; O(tasks) where any
// expectation changed.
func (t *term[W, T]) begin() {
	o, f := t.o, t.fleet
	o.mu.Lock()
	o.tasks.snapshot(&o.expect)
	var seats []seat[W]
	changed := f.version != o.members.version
	if changed {
		f.version = o.members.version
		seats = o.members.seats()
	}
	o.mu.Unlock()
	if t.dry {
		t.book = o.book.Clone()
	}
	if o.bookOf != o.expect.version {
		t.book.ForgetTasks(func(task int32) bool { return !o.expect.expected(task) })
	}
	if !t.dry {
		o.bookOf = o.expect.version
		if t.id.Number%standing.Lifetime == 0 {
			o.book.Expire(t.id.Number)
		}
	}
	if changed {
		gone := f.part(seats)
		t.forget(gone) // before a new worker of the same name joins
		f.join(seats, gone, t.stats.Start, o.lines.of)
	}
	for i, late := range o.late(f.workers, !t.dry) {
		// One that was overtaken by an answer in time says nothing any more.
		if w := f.workers[i]; late != nil && late.term > w.answered {
			w.missed = t.takeIn(w, late.list, alike(late.list, w.list), late.term, late.at) != nil
		}
	}
}

// forget drops what is known of workers that were removed. A Plan does so in its
// own book, and leaves the lines to the next term.
func (t *term[W, T]) forget(gone []*worker[W, T]) {
	serials := make(map[uint64]bool, len(gone))
	for _, w := range gone {
		serials[w.serial] = true
	}
	if !t.dry {
		t.o.lines.forget(gone)
	}
	t.book.ForgetWorkers(func(worker uint64) bool { return serials[worker] })
}

// numberOf gives a task's name its number.
func (o *Orchestrator[W, T]) numberOf(name T) int32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tasks.id(name)
}

// hear takes in the answers, and returns why the leader may not go on, if one
// of them says so.
func (t *term[W, T]) hear(answers []answer[T]) (deposed error) {
	for i := range answers {
		a, w := &answers[i], t.fleet.workers[i]
		if !a.asked {
			continue
		}
		if a.took > 0 || a.err == nil {
			t.stats.List.Seconds.observe(a.took)
		}
		t.stats.List.count(a.err, errors.Is(a.err, ErrSilent))
		if a.err != nil {
			if deposed == nil && errors.Is(a.err, ErrDeposed) {
				deposed = &CallError[W, T]{Op: OpList, Worker: w.name, Err: a.err}
			}
			w.failed = cmp.Or(a.why, w.failed)
			continue
		}
		returned := w.heard && w.state != Answering
		if a.err = t.takeIn(w, a.list, a.same, t.id.Number, a.at); a.err != nil {
			a.missed = true
			continue
		}
		if returned {
			t.returned = append(t.returned, w)
		}
		w.took = a.took
		t.stats.Instances.Duplicate += w.duplicates
		t.absolve(w)
	}
	return deposed
}

// takeIn takes over what a worker answered to the List of a term. An answer with a
// name that cannot be compared, or is not equal to itself, counts as a failed call.
func (t *term[W, T]) takeIn(w *worker[W, T], list []T, same int, term uint64, at time.Time) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("its answer cannot be used: %v", v)
			w.failed = err.Error()
		}
	}()
	t.fleet.heard(w, list, same, term, at, t.o.numberOf)
	return nil
}

// absolve forgets the failed starts that turn out to have happened: O(what it
// runs) for a worker of which any failed.
func (t *term[W, T]) absolve(w *worker[W, T]) {
	if !t.book.Concerns(w.serial) {
		return
	}
	for _, task := range w.runs {
		if p := (standing.Pair{Task: task, Worker: w.serial}); t.book.Has(p) {
			t.book.Succeeded(p)
		}
	}
}

// unheard takes in which workers did not answer.
func (t *term[W, T]) unheard(answers []answer[T]) {
	for i := range answers {
		a, w := &answers[i], t.fleet.workers[i]
		if a.err == nil {
			continue
		}
		if w.state == Answering {
			t.silenced = append(t.silenced, w)
		}
		t.fleet.silent(w, a.missed, a.err)
		t.failures = append(t.failures, &CallError[W, T]{Op: OpList, Worker: w.name, Err: a.err})
	}
}

func (t *term[W, T]) judge() {
	t.lost, t.stats.MassLoss = t.fleet.judge(time.Now(), &t.o.cfg)
}

// decide plans the term.
func (t *term[W, T]) decide() {
	o := t.o
	o.mu.Lock()
	known := len(o.tasks.defs)
	o.mu.Unlock()
	t.fleet.grow(known)
	o.expect.grow(known)
	t.decision = o.decider.decide(t.fleet, t.book, &o.expect, t.number(), o.cfg.maxMoves, o.cfg.handoff)
	t.rows = t.begun()
}

// write carries out what was decided, and learns from how it went: O(workers),
// a step for each write, and O(what it runs) for each worker written to.
func (t *term[W, T]) write(ctx context.Context) error {
	if ctx.Err() != nil {
		return causeOf(ctx)
	}
	o, f := t.o, t.fleet
	tasks := make([]int32, len(t.decision.changes))
	for i := range tasks {
		tasks[i] = t.decision.changes[i].Task
	}
	base, abort := context.WithCancelCause(callContext(ctx, t.id, false))
	t.writing = &writing[W, T]{
		o: o, fleet: f, changes: t.decision.changes, names: o.namesOf(tasks),
		ctx: base, abort: abort, calls: &t.stats,
	}
	cause := t.writing.write(ctx)
	for _, w := range f.workers {
		f.settle(w)
	}
	t.failures = append(t.failures, t.writing.failed...)
	t.book.Learn(o.number, t.writing.starts,
		func(serial uint64) bool {
			i, ok := slices.BinarySearchFunc(f.workers, serial, func(w *worker[W, T], s uint64) int {
				return compareSerial(w.serial, s)
			})
			return ok && len(f.workers[i].runs) > 0
		},
		func(task int32) bool { return f.flags[task]&taskSeen != 0 })
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

// end gives back the numbers of tasks that nobody refers to any more; and after
// a Plan, the lines to workers that no term has seen. It takes no time, or where
// many unexpected tasks are known, O(tasks + instances).
func (t *term[W, T]) end() {
	o := t.o
	fleets := []*fleet[W, T]{&o.fleet}
	if t.dry {
		fleets = append(fleets, t.fleet)
		o.lines.forget(t.strangers())
	}
	legacies := o.lines.legacies()
	o.mu.Lock()
	defer o.mu.Unlock()
	freed := o.tasks.sweep(func(mark func(int32)) {
		for _, f := range fleets {
			f.mark(mark)
		}
		t.decision.mark(mark)
		o.book.Tasks(mark)
		for _, task := range legacies {
			mark(task)
		}
	})
	for _, f := range fleets {
		for _, id := range freed {
			if int(id) < len(f.flags) {
				f.flags[id] = 0
			}
		}
	}
}

// strangers returns the workers that only this Plan knows.
func (t *term[W, T]) strangers() (strangers []*worker[W, T]) {
	known := make(map[W]bool, len(t.o.fleet.workers))
	for _, w := range t.o.fleet.workers {
		known[w.name] = true
	}
	for _, w := range t.fleet.workers {
		if !known[w.name] {
			strangers = append(strangers, w)
		}
	}
	return strangers
}

// outcomeOf says what came of change i.
func (t *term[W, T]) outcomeOf(i int) (Outcome, error) {
	if t.dry {
		return OutcomePlanned, nil
	}
	if t.writing == nil {
		return OutcomeSkipped, ErrSkipped
	}
	return t.writing.outcome(i)
}
