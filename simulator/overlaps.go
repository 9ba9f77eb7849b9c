package simulator

// The truth: what runs where, and what must never run where.

import (
	"context"
	"errors"
	"maps"
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
	// leader is who has started it, and term in which term; nil where the worker
	// did so by itself.
	leader *leader
	term   orchestrator.Term
	over   bool
	// copies is how many there were when it began, with it, and with those that a
	// worker may run again that has crashed.
	copies int
	// stray is when its worker was no member, until a leader has heard of the
	// run.
	stray spell
}

// start returns what the leader had in belief.
func (r *run) start() start {
	if r.leader == nil {
		return start{}
	}
	return r.leader.starts[startKey{r.term.Number, writeKey{r.task, r.worker.name}}]
}

// errDown is returned by a task that was started too late.
var errDown = errors.New("the worker is gone")

// runTask is what every task does.
func (w *world) runTask(ctx context.Context, name, task string) error {
	r := w.started(name, task)
	if r == nil {
		return errDown
	}
	d := throw(w.seed, "run", uint64(time.Since(w.began)))
	d.text(name)
	d.text(task)
	slow := func(odds float64) time.Duration {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.calm || r.worker.restoring || !d.chance(odds) {
			return 0
		}
		return d.between(0, longestStop*w.Timeout)
	}
	if pause := slow(w.slowLoad); pause > 0 {
		w.count("slow to be ready")
		select {
		case <-time.After(stopLane(r.worker.index).after(pause)):
		case <-ctx.Done():
		}
	}
	worker.Ready(ctx)
	<-ctx.Done()
	if pause := slow(w.slowStop); pause > 0 {
		w.count("slow to stop")
		<-time.After(stopLane(r.worker.index).after(pause))
	}
	for w.ignoresStop(r) {
		<-time.After(stopLane(r.worker.index).after(w.Timeout / 2))
	}
	w.stopped(r)
	return nil
}

// ignoresStop reports whether a run goes on though it was told to stop.
func (w *world) ignoresStop(r *run) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !r.over && w.resists(r.task) == stopIgnored
}

func (w *world) count(fault string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report.Faults[fault]++
}

// started records the start of a task, and checks that it may be.
func (w *world) started(name, task string) *run {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.workers[name]
	if !m.alive && !m.restoring {
		return nil
	}
	r := &run{task: task, worker: m, began: time.Now()}
	if !m.registered {
		r.stray.since = r.began
	}
	w.running[task] = append(w.running[task], r)
	r.copies = len(w.running[task]) + w.remembered(task)
	var by *arrival
	for _, a := range m.adds {
		if a.adds(task) && a.term.Compare(m.seen) >= 0 && (by == nil || by.term.Compare(a.term) < 0) {
			by = a
		}
	}
	w.note(farLane(0, m.index), "%s runs %s", name, task)
	if by == nil && !m.restoring {
		w.fail(nil, m.seen, Caused, "%s has started %s, and no write that it may accept has told it to: it has seen %v",
			name, task, m.seen)
		return r
	}
	if by != nil {
		r.leader, r.term = w.byEpoch[by.term.Epoch], by.term
	}
	want := w.wanted(task)
	if len(w.running[task]) <= want {
		return r
	}
	o := &overlap{
		at: time.Now(), task: task, runs: slices.Clone(w.running[task]), want: want,
		again: by == nil, stops: maps.Clone(w.stops[task]),
	}
	for _, l := range w.leaders {
		if l.under > l.reviewed {
			o.waits = append(o.waits, underway{l, l.under})
		}
	}
	w.pending = append(w.pending, o)
	return r
}

// remembered counts the workers that have crashed and may run a task again. mu is
// held.
func (w *world) remembered(task string) int {
	n := 0
	for _, m := range w.workers {
		if !m.alive && m.registered && slices.Contains(m.memory, task) {
			n++
		}
	}
	return n
}

// stopped records the end of a run.
func (w *world) stopped(r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.over {
		return
	}
	w.end(r)
	w.note(farLane(0, r.worker.index), "%s runs %s no more", r.worker.name, r.task)
}

// end removes a run. mu is held.
func (w *world) end(r *run) {
	r.over = true
	if w.stops[r.task] == nil {
		w.stops[r.task] = make(map[string]stop)
	}
	w.stops[r.task][r.worker.name] = stop{time.Now(), len(w.running[r.task])}
	w.running[r.task] = slices.DeleteFunc(w.running[r.task], func(other *run) bool { return other == r })
}

// allStopped records that a worker's process is gone. mu is held.
func (w *world) allStopped(m *member) {
	for _, runs := range w.running {
		for _, r := range slices.Clone(runs) {
			if r.worker == m {
				w.end(r)
			}
		}
	}
	m.adds = nil
}

// astray records that no leader knows any longer what a worker runs. mu is held.
func (w *world) astray(m *member) {
	if !m.alive {
		return
	}
	for _, runs := range w.running {
		for _, r := range runs {
			if r.worker == m {
				r.stray = spell{since: time.Now()}
			}
		}
	}
}

// wanted returns how many instances of a task any leader may have in belief. mu is
// held.
func (w *world) wanted(task string) int {
	want := 0
	for _, l := range w.leaders {
		if l.gone {
			continue
		}
		for _, v := range l.views {
			want = max(want, v.tasks[task].Instances)
		}
	}
	return want
}

// overlap is a start that made a task run more often than it wanted.
type overlap struct {
	at    time.Time
	task  string
	runs  []*run // the last of them is the one that was started
	want  int
	again bool            // its worker has crashed, and runs it again
	stops map[string]stop // by worker
	// waits holds the terms under way at that moment: what they took for lost
	// is known when they have ended.
	waits []underway
}

// stop is the latest end of a run, and how many there were before.
type stop struct {
	at    time.Time
	among int
}

type underway struct {
	leader *leader
	number uint64
}

// judgeOverlaps explains each overlap of which everything is known, or fails.
// mu is held.
func (w *world) judgeOverlaps() {
	slices.SortStableFunc(w.pending, func(a, b *overlap) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		if a.task < b.task {
			return -1
		}
		return 1
	})
	w.pending = slices.DeleteFunc(w.pending, func(o *overlap) bool {
		for _, u := range o.waits {
			if !u.leader.gone && u.leader.reviewed < u.number {
				return false
			}
		}
		w.explain(o)
		return true
	})
}

// explain finds the cause of an overlap: each run is left out that a leader had
// reason not to know of, and the rest must not be more than was wanted. mu is
// held.
func (w *world) explain(o *overlap) {
	cause := Cause("")
	left, untold := len(o.runs), 0
	last := o.runs[len(o.runs)-1]
	for _, r := range o.runs {
		c := w.unknown(r, o.since(), o.at)
		known := r.began.Before(o.since()) && (r.leader != last.leader || r.term != last.term)
		if c == "" && !known && o.halfWay(r) {
			c = StartFirst
		}
		switch {
		case c != "":
			left--
			cause = c
		case o.untold(r):
			untold++
		}
	}
	by := last.start()
	want := max(o.want, by.want)
	if o.again { // no leader chose this moment
		for _, r := range o.runs {
			want = max(want, r.start().want)
		}
	}
	switch {
	case len(o.runs) <= want:
		return // so many were wanted when it was sent
	case left <= want:
	case o.again && !w.afresh(o):
		cause = SurplusAgain
	case left <= by.moved, left <= o.movedSince(), o.conserved(by, left):
		cause = MovedSurplus
	case o.halfWay(last), // one more than there were, until the stop that follows
		by.first && o.conserved(by, left-1): // or that has come by itself meanwhile
		cause = StartFirst
	case by.from != "" && last.leader.invented[writeKey{o.task, by.from}]:
		cause = LiedTo // it has moved what was never there
	case left-untold <= want:
		cause = Untold
	default:
		names := make([]string, len(o.runs))
		for i, r := range o.runs {
			names[i] = r.worker.name
		}
		w.fail(last.leader, last.term, NeverTwice, "%s was started on %s %v after the start, and then ran on %v; wanted: %d",
			o.task, last.worker.name, o.at.Sub(w.began), names, want)
		return
	}
	w.report.Overlaps[cause]++
}

// halfWay reports whether a run is that of a move that is under way: it was started
// before it is stopped where it comes from, and there it still runs.
func (o *overlap) halfWay(r *run) bool {
	by := r.start()
	return by.first && slices.ContainsFunc(o.runs, func(other *run) bool { return other.worker.name == by.from })
}

// untold reports whether a run was started by a leader in the place of one on a worker
// that has left, when another leader had been elected that has started the task too:
// it may have emptied that worker before. The first one could only know of that from
// workers that have heard of the second, and those would have told it that it is
// deposed; nor has the worker heard of that one on which it has started the task. Both
// is checked elsewhere.
func (o *overlap) untold(r *run) bool {
	l := r.leader
	return l != nil && !l.deposed.IsZero() && r.start().bereft.After(l.deposed) &&
		slices.ContainsFunc(o.runs, func(other *run) bool { return other.leader != nil && other.leader.epoch > l.epoch })
}

// movedSince returns how many copies there were, as far as a leader could know,
// that has moved one of them since it was decided that the task is to run where it
// started: such as when that start landed late, and had been counted.
func (o *overlap) movedSince() int {
	most := 0
	for _, r := range o.runs[:len(o.runs)-1] {
		if by := r.start(); by.sent.After(o.since()) {
			most = max(most, by.moved)
		}
	}
	return most
}

// conserved reports whether there are no more copies than ran when the one stopped
// that the last start has moved. Those count with them that were between their own
// stop and start just then, and those that came back by themselves.
func (o *overlap) conserved(by start, left int) bool {
	stopped, moves := o.stoppedFor(by)
	if !moves {
		return false
	}
	copies := stopped.among + o.backSince(stopped.at)
	for _, r := range o.runs[:len(o.runs)-1] {
		if other, moves := o.stoppedFor(r.start()); moves && r.began.After(stopped.at) && other.at.Before(stopped.at) {
			copies++
		}
	}
	return left <= copies
}

// stoppedFor returns the end of the run that a start has moved, if it has moved one
// and that has stopped since its worker was asked: by the move, or by itself.
func (o *overlap) stoppedFor(by start) (stop, bool) {
	end := o.stops[by.from]
	return end, by.from != "" && end.at.After(by.asked)
}

// backSince counts the runs that workers have begun by themselves since then.
func (o *overlap) backSince(at time.Time) int {
	n := 0
	for _, r := range o.runs {
		if r.leader == nil && r.began.After(at) {
			n++
		}
	}
	return n
}

// since is when it was decided that the task is to run where it started: a start
// may land late, and a worker that has crashed comes back when it likes. What
// leaders have taken for lost since then they had reason to replace.
func (o *overlap) since() time.Time {
	last := o.runs[len(o.runs)-1]
	if o.again {
		return last.worker.crashed
	}
	return last.start().sent
}

// afresh reports whether a leader has started a task elsewhere, since the worker
// crashed that runs it again now, and was to know better: that made them too many,
// with those that may come back.
func (w *world) afresh(o *overlap) bool {
	again := o.runs[len(o.runs)-1]
	if w.unknown(again, o.since(), o.at) != "" {
		return false
	}
	for _, r := range o.runs[:len(o.runs)-1] {
		s := r.start()
		known := r.leader != nil && r.began.After(again.worker.crashed) && w.unknown(r, o.since(), o.at) == ""
		if known && s.moved == 0 && !s.first && r.copies > s.want {
			return true
		}
	}
	return false
}

// unknown returns why leaders may not have known of a run, or "". mu is held.
func (w *world) unknown(r *run, from, to time.Time) Cause {
	for _, l := range w.leaders {
		if l.hidden[writeKey{r.task, r.worker.name}].meet(from, to) {
			return LiedTo
		}
	}
	if w.Membership == Leases {
		return ""
	}
	if r.stray.meets(from, to) {
		return UnfencedLost
	}
	for _, l := range w.leaders {
		if l.lost[r.worker.name].meet(from, to) {
			return UnfencedLost
		}
	}
	return ""
}
