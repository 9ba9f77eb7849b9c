package simulator

// Checks of a plan: its reasons are true, it accounts for every instance (P1, P7),
// the term's error names every failure (T11), and Plan predicts it.

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// checkPlan compares the plan with what the leader knew when it was made.
func (r *review) checkPlan() {
	if r.incomplete() {
		return
	}
	after := maps.Clone(r.listedCopies)
	mentioned := make(map[writeKey]bool) // copies on answering workers that the plan mentions
	for i := range r.plan.Changes {
		c := &r.plan.Changes[i]
		if !r.reasonable(c) {
			r.fail(Explained, "%v %s, from %q to %q, was on %q: the reason is false", c.Kind, c.Task, c.From, c.To, c.Was)
		}
		mentioned[writeKey{c.Task, c.From}] = true
		switch c.Kind.Op {
		case orchestrator.Start:
			after[c.Task]++
		case orchestrator.Stop:
			after[c.Task]--
		}
	}
	waiting := make(map[string]int) // instances without a place on an answering worker
	for _, w := range r.plan.Waiting {
		if ofOutcome(w) {
			continue // its start is among the changes
		}
		if wb := r.l.belief.workers[w.Worker]; w.Named && wb != nil && wb.answers() {
			mentioned[writeKey{w.Task, w.Worker}] = true
			continue
		}
		waiting[w.Task] += w.Instances
	}
	staying := make(map[string]int) // copies whose stop pauses
	pausing := make(map[pauseKey]bool)
	for _, p := range r.plan.Paused {
		pausing[pauseKey{p.Kind, p.Worker, p.Task}] = true
	}
	for name, tasks := range r.listedOn {
		for task := range tasks {
			key := pauseKey{orchestrator.PauseStop, name, task}
			if _, ok := r.l.pauses[key]; ok || pausing[key] {
				staying[task]++
				mentioned[writeKey{task, name}] = true
			}
		}
	}
	for _, task := range slices.Sorted(maps.Keys(r.view.tasks)) {
		want := r.view.tasks[task].Instances
		if after[task]+waiting[task] < want {
			r.fail(Explained, "%s is wanted %d times; after the plan %d copies answer and %d wait, and the others are not mentioned",
				task, want, after[task], waiting[task])
		}
		if most := max(want-r.frozenCopies[task], min(want, r.listedCopies[task])); after[task] > most+staying[task] {
			r.fail(Planned, "%s is wanted %d times, frozen workers may run %d, and after the plan %d answer", task, want, r.frozenCopies[task], after[task])
		}
	}
	missing := 0
	for _, w := range r.plan.Waiting {
		if kind := w.Kind(); kind == orchestrator.WaitingUnplaced || kind == orchestrator.WaitingFailing {
			missing += w.Instances
		}
	}
	if missing != r.stats.Instances.Missing {
		r.fail(Explained, "%d instances are missing, and the plan explains %d", r.stats.Instances.Missing, missing)
	}
	if r.plan.Stats.Deferred > 0 {
		return
	}
	for _, name := range r.l.belief.workerNames() {
		for _, task := range slices.Sorted(maps.Keys(r.listedOn[name])) {
			if r.l.belief.workers[name].draining && !mentioned[writeKey{task, name}] {
				r.fail(Explained, "%s drains, and the plan does not mention %s, which it runs", name, task)
			}
		}
	}
}

// ofOutcome reports whether an instance waits because of the outcome of a change.
func ofOutcome(w orchestrator.Waiting[string, string]) bool {
	return w.Reason == orchestrator.ReasonFailed || w.Reason == orchestrator.ReasonSkipped
}

// reasonable reports whether the reason of a change is true.
func (r *review) reasonable(c *orchestrator.Change[string, string]) bool {
	_, expected := r.view.tasks[c.Task]
	drains := c.From != "" && r.l.belief.workers[c.From].draining
	switch c.Kind {
	case orchestrator.ChangeKind{Op: orchestrator.Start, Reason: orchestrator.ReasonMissing}:
		return !r.lostTasks[c.Task]
	case orchestrator.ChangeKind{Op: orchestrator.Start, Reason: orchestrator.ReasonLost}:
		return r.l.lostTasks[writeKey{c.Task, c.Was}]
	case orchestrator.ChangeKind{Op: orchestrator.Start, Reason: orchestrator.ReasonVanished}:
		was := r.l.belief.workers[c.Was]
		former := r.l.lostTasks[writeKey{c.Task, c.Was}] // it was a member before, and may be again
		return c.Was != "" && (was == nil || former || was.everSeen[c.Task] && !r.listedOn[c.Was][c.Task])
	case orchestrator.ChangeKind{Op: orchestrator.Stop, Reason: orchestrator.ReasonUnexpected}:
		return !expected
	case orchestrator.ChangeKind{Op: orchestrator.Stop, Reason: orchestrator.ReasonSurplus}:
		return expected
	case orchestrator.ChangeKind{Op: orchestrator.Move, Reason: orchestrator.ReasonDrain}:
		return drains
	case orchestrator.ChangeKind{Op: orchestrator.Move, Reason: orchestrator.ReasonRebalance}:
		return !drains
	}
	return c.Kind.Op == orchestrator.Move && !drains && r.reasonableEviction(c)
}

// callKey identifies the call of a CallError.
type callKey struct {
	op orchestrator.Op
	writeKey
}

// checkFailures compares the term's error with the calls that failed. A term that is
// deposed cancels the calls in flight and does not report them.
func (r *review) checkFailures() {
	if r.incomplete() || errors.Is(r.stats.Err, orchestrator.ErrDeposed) {
		return
	}
	want := make(map[callKey]error)
	either := make(map[callKey]bool) // the expectations changed at that very instant
	for name, wb := range r.l.belief.workers {
		if wb.state != orchestrator.Answering {
			want[callKey{orchestrator.OpList, writeKey{"", name}}] = nil
		}
	}
	for _, c := range r.own() {
		at := c.settled()
		if c.op == orchestrator.OpList || !c.fails(at) || c.returned.Equal(at) && stopUnderWay(c.err) {
			continue
		}
		err := orchestrator.ErrSilent
		if c.returned.Equal(at) {
			err = c.err
			if c.op == orchestrator.OpAdd && certainlyNot(c.err) {
				v := r.l.viewAt(at)
				_, expected := v.tasks[c.task]
				if either[callKey{c.op, writeKey{c.task, c.worker}}] = v.at.Equal(at); v.at.Equal(at) || !expected {
					continue // no longer wanted
				}
			}
		}
		want[callKey{c.op, writeKey{c.task, c.worker}}] = err
	}
	got := r.failures()
	for _, f := range sortedKeys(want) {
		switch err, ok := got[f]; {
		case !ok:
			r.fail(Reported, "%v %s %s has failed, and the term's error omits it: %v", f.op, f.task, f.worker, answerText(r.stats.Err))
		case want[f] != nil && !errors.Is(err, want[f]):
			r.fail(Reported, "%v %s %s has failed, %v; the term's error says: %v", f.op, f.task, f.worker, want[f], err)
		}
	}
	for _, f := range sortedKeys(got) {
		if _, ok := want[f]; !ok && !either[f] {
			r.fail(Reported, "the term's error has a failure of %v %s %s, which did not fail", f.op, f.task, f.worker)
		}
	}
}

// failures returns the failed calls in the term's error. The error may also hold the
// cause of the context.
func (r *review) failures() map[callKey]error {
	got := make(map[callKey]error)
	var whole *orchestrator.TermError
	if !errors.As(r.stats.Err, &whole) {
		return got
	}
	for i, err := range whole.Failures {
		var call *orchestrator.CallError[string, string]
		switch {
		case errors.As(err, &call):
			got[callKey{call.Op, writeKey{call.Task, call.Worker}}] = call.Err
		case i > 0 || r.l.cause == nil || !errors.Is(err, r.l.cause):
			r.fail(Reported, "the term's error holds something other than a failed call: %v", err)
		}
	}
	if whole.Term != r.stats.Term {
		r.fail(Reported, "the term's error names %v", whole.Term)
	}
	return got
}

func sortedKeys(all map[callKey]error) []callKey {
	var keys []callKey
	for f := range all {
		keys = append(keys, f)
	}
	slices.SortFunc(keys, func(a, b callKey) int {
		return cmp.Or(cmp.Compare(a.op, b.op), cmp.Compare(a.worker, b.worker), cmp.Compare(a.task, b.task))
	})
	return keys
}

// prediction is the result of Plan, and its inputs.
type prediction struct {
	plan    orchestrator.Plan[string, string]
	view    time.Time           // when the latest change arrived
	answers map[string][]string // by worker
}

// predict calls Plan before a drawn subset of terms, once with a hypothesis and once
// without. The review of the term uses the result.
func (l *leader) predict() {
	w := l.w
	rnd := newRandom(w.seed, "plan", uint64(l.number), uint64(time.Since(w.began)))
	if !w.callsPlan || !rnd.chance(0.3) {
		return
	}
	before := l.o.LastPlan().Stats.Term
	w.mu.Lock()
	l.isPlanning = true
	v := l.views[len(l.views)-1]
	w.mu.Unlock()
	f := &prediction{view: v.at, answers: make(map[string][]string)}
	for _, state := range l.o.LastActual() {
		p, wb := v.worker(state.Name), l.belief.workers[state.Name]
		if state.State == orchestrator.Answering && p != nil && wb != nil && p.serial == wb.serial {
			f.answers[state.Name] = state.Tasks
		}
	}
	var h orchestrator.Hypothesis[string, string]
	for _, p := range v.workers {
		for _, names := range []*[]string{&h.Drain, &h.Silence, &h.Lose} {
			if rnd.chance(0.1) {
				*names = append(*names, p.name)
			}
		}
	}
	for _, task := range slices.Sorted(maps.Keys(v.tasks)) {
		if rnd.chance(0.1) {
			h.RemoveTasks = append(h.RemoveTasks, task)
		}
	}
	began := time.Now()
	what, err := l.o.Plan(h)
	var err2 error
	f.plan, err2 = l.o.Plan(orchestrator.Hypothesis[string, string]{})
	took := time.Since(began)
	after := l.o.LastPlan().Stats.Term
	w.mu.Lock()
	defer w.mu.Unlock()
	l.isPlanning = false
	w.report.Plans++
	w.note(loopLane(l.number), "leader %d plans %d changes: %v", l.number, len(f.plan.Changes), answerText(err2))
	for _, c := range f.plan.Changes {
		w.note(loopLane(l.number), "  predicted: %v %s, from %q to %q", c.Kind, c.Task, c.From, c.To)
	}
	fail := func(format string, args ...any) { w.fail(l, f.plan.Stats.Term, Predicted, format, args...) }
	switch none := before.Number == 0; {
	case after != before || took > 0:
		fail("Plan took %v; LastPlan was of %v before, and of %v after", took, before, after)
	case none && errors.Is(err, orchestrator.ErrNoTerm) && errors.Is(err2, orchestrator.ErrNoTerm):
		return
	case none || err != nil || err2 != nil:
		fail("before term %d Plan returned: %v, and with %+v: %v", before.Number+1, answerText(err2), h, answerText(err))
	}
	gone := slices.Concat(h.Drain, h.Silence, h.Lose)
	for _, c := range what.Changes {
		if c.Outcome != orchestrator.OutcomePlanned || slices.Contains(gone, c.To) ||
			c.Kind.Op != orchestrator.Stop && slices.Contains(h.RemoveTasks, c.Task) {
			fail("with %+v a Plan has the %v of %s to %q: %s", h, c.Kind, c.Task, c.To, c.Outcome)
		}
	}
	l.predicted = f
}

// checkPredicted checks that the term has done what Plan returned just before, if all
// workers answered as the leader expected then.
func (r *review) checkPredicted() {
	f := r.l.predicted
	r.l.predicted = nil
	if f == nil || r.incomplete() || !r.view.at.Equal(f.view) {
		return
	}
	for _, wb := range r.l.belief.workers {
		c, answer := r.lists(wb), f.answers[wb.name]
		if !wb.answers() || c == nil || answer == nil || !slices.Equal(c.tasks, answer) {
			return
		}
	}
	for _, p := range r.l.pauses {
		if r.listed.After(p.since.Add(r.w.maxPause)) {
			return // the pause may have ended in the meantime
		}
	}
	isHeld := func(p orchestrator.Waiting[string, string]) bool { return p.Reason == orchestrator.ReasonEvictionHeld }
	if slices.ContainsFunc(f.plan.Waiting, isHeld) != slices.ContainsFunc(r.plan.Waiting, isHeld) {
		return // evictions have been held long enough in the meantime
	}
	r.w.report.PlansCompared++
	did, predicted := r.plan.Changes, f.plan.Changes
	if !slices.EqualFunc(did, predicted, func(a, b orchestrator.Change[string, string]) bool {
		return a.Kind.Op == b.Kind.Op && a.Task == b.Task && a.From == b.From && a.To == b.To
	}) {
		r.fail(Predicted, "Plan had %d changes, and the term after it %d or other ones, though all workers answered the same", len(predicted), len(did))
	}
	if waiting := slices.DeleteFunc(slices.Clone(r.plan.Waiting), ofOutcome); !reflect.DeepEqual(waiting, f.plan.Waiting) {
		r.fail(Predicted, "Plan had %v waiting, and the term after it %v", f.plan.Waiting, waiting)
	}
}

// dryRun runs a term with WithDryRun before the leader's first term, in some of
// the runs. It must write nothing and fence no worker.
func (l *leader) dryRun(ctx context.Context) {
	w := l.w
	if rnd := newRandom(w.seed, "rehearsal", uint64(l.number)); !w.callsPlan || !rnd.chance(0.2) {
		return
	}
	w.mu.Lock()
	v := l.views[len(l.views)-1]
	w.report.DryRuns++
	w.mu.Unlock()
	o, err := orchestrator.New(dryRunNet{l}, append(w.options(), orchestrator.WithDryRun())...)
	l.require(err)
	if err != nil {
		return
	}
	for _, p := range v.workers {
		l.require(o.AddWorker(p.name, orchestrator.WithWorkerSettings(p.settings)))
	}
	l.require(o.UpdateTasks(slices.Collect(maps.Values(v.tasks))))
	_ = o.NextTerm(ctx)
	for _, c := range o.LastPlan().Changes {
		if c.Outcome != orchestrator.OutcomeDry {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.fail(l, orchestrator.Term{}, Predicted, "in a dry run the %v of %s is %s", c.Kind, c.Task, c.Outcome)
			return
		}
	}
}

// dryRunNet is the Communicator of a dry run.
type dryRunNet struct{ l *leader }

// List takes the network's latency. It fails when ctx ends if the worker cannot be
// reached.
func (dn dryRunNet) List(ctx context.Context, name string) ([]string, error) {
	l, w := dn.l, dn.l.w
	rnd := newRandom(w.seed, "peek", uint64(l.number), uint64(time.Since(w.began)))
	rnd.text(name)
	w.mu.Lock()
	if term, ok := orchestrator.TermFromContext(ctx); ok {
		w.fail(l, term, Predicted, "List %s carries %v in a dry run", name, term)
	}
	m := w.workers[name]
	latency := rnd.between(w.network.MinLatency, w.network.MaxLatency) + m.latency
	through := m.network == connected && m.alive && !l.isolated && !l.crashed
	w.mu.Unlock()
	timer := time.NewTimer(workerLane(l.lane(), m.index).after(latency))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		through = false
	}
	if !through {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	tasks, err := w.cluster.List(ctx, name)
	leaderLane(l.number, m.index).await()
	return tasks, err
}

// Add fails the run.
func (dn dryRunNet) Add(_ context.Context, worker, task string) error {
	return dn.write(orchestrator.OpAdd, worker, task)
}

// Remove fails the run.
func (dn dryRunNet) Remove(_ context.Context, worker, task string) error {
	return dn.write(orchestrator.OpRemove, worker, task)
}

func (dn dryRunNet) write(op orchestrator.Op, worker, task string) error {
	dn.l.w.mu.Lock()
	defer dn.l.w.mu.Unlock()
	dn.l.w.fail(dn.l, orchestrator.Term{}, Predicted, "%v %s %s was sent in a dry run", op, task, worker)
	return errCrashed
}
