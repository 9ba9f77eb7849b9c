package simulator

// Which tasks run where: every start is judged by what runs at that moment. No task may run
// more often than wanted (T4, T8), and no start may break a rule of placement (P10).

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
)

// run is one run of a task on a worker.
type run struct {
	task   string
	worker *member
	began  time.Time
	order  *order // nil if the worker started the run without a leader's order
	ended  bool
	// unknown is why leaders may not know of the run: a leader took its worker for lost, or the
	// worker was no member, or it left the task out of a List.
	unknown Cause
}

// runTask is the body of every task.
func (w *world) runTask(ctx context.Context, name, task string) error {
	r := w.started(name, task)
	if r == nil {
		return errors.New("the worker has ended")
	}
	rnd := newRandom(w.seed, "run", uint64(time.Since(w.began)))
	rnd.text(name)
	rnd.text(task)
	slow := func(odds float64, what string) <-chan time.Time {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.settling || r.worker.restoring != nil || !rnd.chance(odds) {
			return time.After(0)
		}
		w.report.Faults[what]++
		return time.After(stopLane(r.worker.index).after(rnd.between(0, longestStop*w.Timeout)))
	}
	select {
	case <-slow(w.slowLoad, "slow to be ready"):
	case <-ctx.Done():
	}
	worker.Ready(ctx)
	<-ctx.Done()
	<-slow(w.slowStop, "slow to stop")
	for !w.stopped(r) {
		<-time.After(stopLane(r.worker.index).after(w.Timeout / 2))
	}
	return nil
}

// stopped ends a run, unless it ignores the stop.
func (w *world) stopped(r *run) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.ended || w.resistanceOf(r.task) == stopIgnored {
		return r.ended
	}
	w.note(workerLane(0, r.worker.index), "%s no longer runs %s", r.worker.name, r.task)
	w.end(r)
	return true
}

// started records the start of a task, and checks that the worker may start it. It returns
// nil if the worker's process has ended.
func (w *world) started(name, task string) *run {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.workers[name]
	before := slices.IndexFunc(m.restoring, func(r *run) bool { return r.task == task })
	if !m.alive && before < 0 {
		return nil
	}
	r := &run{task: task, worker: m, began: time.Now()}
	others := w.copies(task)
	w.running[task] = append(w.running[task], r)
	w.note(workerLane(0, m.index), "%s runs %s", name, task)
	by, ordered := m.ordered[task]
	l := w.byEpoch[by.Epoch]
	if ordered && l != nil && by.Compare(m.highest) >= 0 {
		r.order = l.orders[orderKey{by.Number, task, name}]
	}
	switch {
	case r.order != nil:
		lost := func(l *leader) bool {
			known := l.contacts[name]
			return known != nil && known.lost && (l == r.order.leader || !l.stopped)
		}
		if !m.registered || slices.ContainsFunc(w.leaders, lost) {
			w.forget(name, task, UnfencedLost)
		}
		w.judgeLater(r, others)
	case before >= 0:
		r.unknown = m.restoring[before].unknown
		w.forget(name, task, UnfencedLost)
	default:
		w.fail(nil, m.highest, Authorized, "%s started %s without a write of a leader that it may accept: it has seen %v", name, task, m.highest)
	}
	return r
}

// end records the end of a run. The caller holds mu.
func (w *world) end(r *run) {
	r.ended = true
	w.running[r.task] = slices.DeleteFunc(w.running[r.task], func(other *run) bool { return other == r })
}

// copies returns the runs of a task, and those of crashed members, which may come back and
// run it again. The caller holds mu.
func (w *world) copies(task string) []*run {
	copies := slices.Clone(w.running[task])
	for _, name := range w.names {
		m := w.workers[name]
		for _, r := range m.crashed {
			if m.registered && r.task == task {
				copies = append(copies, r)
			}
		}
	}
	return copies
}

// forget records that leaders may not know of the runs of a worker, or of one of its tasks. The
// caller holds mu.
func (w *world) forget(worker, task string, why Cause) {
	if w.Membership == Leases && why == UnfencedLost {
		return // it has stopped
	}
	var all []*run
	for name := range w.running {
		all = append(all, w.copies(name)...)
	}
	for _, s := range w.pending {
		all = append(append(all, s.run), s.copies...) // they may have ended since
	}
	for _, r := range all {
		if r.worker.name == worker && (task == "" || task == r.task) {
			r.unknown = why
		}
	}
}

// wanted returns the largest number of instances of a task that any leader may
// expect. The caller holds mu.
func (w *world) wanted(task string) int {
	want := 0
	for _, l := range w.leaders {
		if l.stopped {
			continue
		}
		want = max(want, l.view.tasks[task].Instances, l.expected.tasks[task].Instances)
	}
	return want
}

// start is a start that a leader has ordered, and what ran at that moment.
type start struct {
	*order
	run    *run
	copies []*run // of the task, on other workers, and those that crashed workers may run again
	beside []*run // on the same worker
	want   int
}

// judgeLater keeps a start until the terms under way have ended: only then is it known which
// changes they make, and which workers they have declared lost. The caller holds mu.
func (w *world) judgeLater(r *run, copies []*run) {
	want := max(w.wanted(r.task), r.order.view.tasks[r.task].Instances)
	for _, other := range copies {
		if other.order != nil && other.order.at().Compare(r.order.at()) > 0 { // r's is late, and a later term wanted more
			want = max(want, other.order.view.tasks[r.task].Instances)
		}
	}
	if len(copies) < want && !w.rules.some() {
		return
	}
	s := &start{order: r.order, run: r, copies: copies, want: want}
	for _, runs := range w.running {
		for _, other := range runs {
			if other.worker == r.worker && other != r {
				s.beside = append(s.beside, other)
			}
		}
	}
	w.pending = append(w.pending, s)
}

// judgeStarts judges the starts for which all terms have ended that were under way, or all
// starts. The caller holds mu.
func (w *world) judgeStarts(all bool) {
	w.pending = slices.DeleteFunc(w.pending, func(s *start) bool {
		over := all || time.Since(s.run.began) > 6*w.Timeout // a term takes at most five
		if over {
			w.judgeCopies(s)
		}
		return over
	})
}

// judgeCopies finds out why a task runs more often than wanted. It leaves out each copy that
// the leader could not know, and of each move under way one copy; at most as many as
// wanted may remain.
func (w *world) judgeCopies(s *start) {
	if len(s.copies) < s.want {
		return
	}
	cause, left, unaware := s.run.unknown, 0, s.unaware(s.order)
	if cause == "" {
		left = 1
	}
	for _, r := range s.copies {
		switch {
		case r.unknown != "":
			cause = r.unknown
		case r.order.isMove() && !r.order.back && s.runsOn(r.order.change.From):
			cause = cmp.Or(cause, StartFirst)
		case r.order.isMove() && r.began.After(s.sent): // of a copy that was there before
			cause = cmp.Or(cause, MovedSurplus)
		default:
			left++
			unaware = unaware || s.unaware(r.order)
		}
	}
	keeps := w.keepsCount(s)
	switch {
	case left <= s.want:
	case keeps != "":
		cause = keeps
	case unaware:
		cause = UnawareLeader
	default:
		names := []string{s.worker}
		for _, r := range s.copies {
			names = append(names, r.worker.name)
		}
		w.fail(s.leader, s.at(), Exclusive,
			"%s was started on %s %v after the beginning of the run, and then ran on %v, or may have; wanted: %d",
			s.task, s.worker, s.run.began.Sub(w.began), names, s.want)
		return
	}
	w.report.Overlaps[cause]++
}

// keepsCount reports why a start does not raise the number of copies for good: it belongs to
// a move that has stopped a copy or will stop it.
func (w *world) keepsCount(s *start) Cause {
	if !s.isMove() {
		return ""
	}
	other := s.change.From
	if s.back {
		other = s.change.To
	}
	switch {
	case !s.runsOn(other):
		return MovedSurplus
	case !s.back && cmp.Or(s.view.tasks[s.task].Handoff, w.Handoff) == orchestrator.StartThenStop:
		return StartFirst
	}
	return ""
}

// runsOn reports whether another worker ran the task.
func (s *start) runsOn(name string) bool {
	return slices.ContainsFunc(s.copies, func(r *run) bool { return r.worker.name == name })
}

// unaware reports whether a start was ordered by a deposed leader that did not know that it
// was deposed, in place of a copy on a worker that has left since or was declared lost. A later leader may
// have emptied that worker.
func (s *start) unaware(o *order) bool {
	if o == nil || o.leader.deposed.IsZero() || !o.leader.departed.After(o.leader.deposed) {
		return false
	}
	later := func(other *order) bool { return other != nil && other.leader.epoch > o.leader.epoch }
	return later(s.order) || slices.ContainsFunc(s.copies, func(r *run) bool { return later(r.order) })
}

// judgeRules checks a start against the rules of placement as its leader knew them. It
// counts the copies that the leader knew. A copy that is given back may break a rule.
func (w *world) judgeRules(s *start) {
	p, task := s.view.worker(s.worker), s.view.tasks[s.task]
	if s.back || s.change == nil {
		return
	}
	why := ""
	if label := lacking(&p.settings, task.Requires); label != "" {
		why = fmt.Sprintf("does not fulfil %q", label)
	}
	known := func(r *run) bool {
		c := s.leader.contacts[r.worker.name]
		mine := r.order != nil && r.order.leader == s.leader
		return r.began.Before(s.sent) && r.unknown == "" && (mine || c != nil && slices.Contains(c.tasks, r.task))
	}
	if most := p.settings.MaxTasks; most > 0 && countIf(s.beside, known) >= most {
		why = fmt.Sprintf("runs %d other tasks; its limit is %d", countIf(s.beside, known), most)
	}
	zoneOf := func(name string) string {
		if p := s.view.worker(name); p != nil {
			return p.settings.Zone
		}
		return "?"
	}
	inside := func(c *orchestrator.Change[string, string]) bool { return zoneOf(c.From) == p.settings.Zone }
	inZone := func(r *run) bool {
		moves := r.order.isMove() && inside(r.order.change) && s.runsOn(r.order.change.From)
		return zoneOf(r.worker.name) == p.settings.Zone && known(r) && !moves
	}
	if n := countIf(s.copies, inZone); task.MaxPerZone > 0 && n >= task.MaxPerZone && (!s.isMove() || !inside(s.change)) {
		why = fmt.Sprintf("is in zone %q, where %d copies run; the limit is %d", p.settings.Zone, n, task.MaxPerZone)
	}
	if why != "" {
		w.fail(s.leader, s.at(), Ruled, "%s was started by %v on %s, which %s",
			s.task, s.change.Kind, s.worker, why)
	}
}

func countIf[V any](all []V, is func(V) bool) (n int) {
	for _, v := range all {
		if is(v) {
			n++
		}
	}
	return n
}
