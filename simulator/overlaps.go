package simulator

// The truth: which tasks run where, and whether they may.

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
	// leader is the leader that started the run, and term its term. leader is nil if
	// the worker started the run without a leader's order.
	leader *leader
	term   orchestrator.Term
	ended  bool
	// copies is the number of copies when the run began, including the run and the
	// copies that crashed workers may run again.
	copies int
	// unknown is the period in which the worker was not a member, until a leader knows
	// of the run.
	unknown span
}

// intent returns the leader's intent when it started the run.
func (r *run) intent() intent {
	if r.leader == nil {
		return intent{}
	}
	return r.leader.intents[startKey{r.term.Number, writeKey{r.task, r.worker.name}}]
}

// errDown is the result of a task that was started too late.
var errDown = errors.New("the worker has ended")

// runTask is the body of every task.
func (w *world) runTask(ctx context.Context, name, task string) error {
	r := w.started(name, task)
	if r == nil {
		return errDown
	}
	rnd := newRandom(w.seed, "run", uint64(time.Since(w.began)))
	rnd.text(name)
	rnd.text(task)
	slow := func(odds float64) time.Duration {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.settling || r.worker.restoring || !rnd.chance(odds) {
			return 0
		}
		return rnd.between(0, longestStop*w.Timeout)
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

// ignoresStop reports whether a run continues although it was told to stop.
func (w *world) ignoresStop(r *run) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !r.ended && w.resistanceOf(r.task) == stopIgnored
}

func (w *world) count(fault string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report.Faults[fault]++
}

// started records the start of a task, and checks that it is allowed. It returns nil
// if the worker's process has ended.
func (w *world) started(name, task string) *run {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.workers[name]
	if !m.alive && !m.restoring {
		return nil
	}
	r := &run{task: task, worker: m, began: time.Now()}
	if !m.registered {
		r.unknown.since = r.began
	}
	w.running[task] = append(w.running[task], r)
	r.copies = len(w.running[task]) + w.restartable(task)
	var by *arrival
	for _, a := range m.arrivals {
		if a.adds(task) && a.term.Compare(m.highest) >= 0 && (by == nil || by.term.Compare(a.term) < 0) {
			by = a
		}
	}
	w.note(workerLane(0, m.index), "%s runs %s", name, task)
	if by == nil && !m.restoring {
		w.fail(nil, m.highest, Authorized, "%s started %s without a write that it may accept: it has seen %v",
			name, task, m.highest)
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
		restarted: by == nil, stops: maps.Clone(w.stops[task]),
	}
	for _, l := range w.leaders {
		if l.term > l.reviewed {
			o.terms = append(o.terms, termRef{l, l.term})
		}
	}
	w.pending = append(w.pending, o)
	return r
}

// restartable counts the crashed workers that may run a task again. The caller holds
// mu.
func (w *world) restartable(task string) int {
	n := 0
	for _, m := range w.workers {
		if !m.alive && m.registered && slices.Contains(m.lastRan, task) {
			n++
		}
	}
	return n
}

// stopped records the end of a run.
func (w *world) stopped(r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.ended {
		return
	}
	w.end(r)
	w.note(workerLane(0, r.worker.index), "%s no longer runs %s", r.worker.name, r.task)
}

// end removes a run. The caller holds mu.
func (w *world) end(r *run) {
	r.ended = true
	if w.stops[r.task] == nil {
		w.stops[r.task] = make(map[string]stop)
	}
	w.stops[r.task][r.worker.name] = stop{time.Now(), len(w.running[r.task])}
	w.running[r.task] = slices.DeleteFunc(w.running[r.task], func(other *run) bool { return other == r })
}

// endRuns records that a worker's process has ended. The caller holds mu.
func (w *world) endRuns(m *member) {
	for _, runs := range w.running {
		for _, r := range slices.Clone(runs) {
			if r.worker == m {
				w.end(r)
			}
		}
	}
	m.arrivals = nil
}

// loseTrack records that no leader knows any longer what a worker runs. The caller
// holds mu.
func (w *world) loseTrack(m *member) {
	if !m.alive {
		return
	}
	for _, runs := range w.running {
		for _, r := range runs {
			if r.worker == m {
				r.unknown = span{since: time.Now()}
			}
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
		for _, v := range l.views {
			want = max(want, v.tasks[task].Instances)
		}
	}
	return want
}

// overlap is a start that made a task run more often than wanted.
type overlap struct {
	at        time.Time
	task      string
	runs      []*run // the started one is the last
	want      int
	restarted bool            // its worker has crashed, and runs it again
	stops     map[string]stop // by worker
	// terms holds the terms under way at that moment. Which workers they declared
	// lost is known when they have ended.
	terms []termRef
}

// stop is the latest end of a run, and the number of copies before it.
type stop struct {
	at    time.Time
	among int
}

type termRef struct {
	leader *leader
	number uint64
}

// explainOverlaps explains each overlap whose terms have ended, or fails the run. The
// caller holds mu.
func (w *world) explainOverlaps() {
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
		for _, u := range o.terms {
			if !u.leader.stopped && u.leader.reviewed < u.number {
				return false
			}
		}
		w.findCause(o)
		return true
	})
}

// findCause finds the cause of an overlap. It leaves out each run of which a leader
// could not know; at most as many as wanted may remain. The caller holds mu.
func (w *world) findCause(o *overlap) {
	cause := Cause("")
	left, unaware := len(o.runs), 0
	last := o.runs[len(o.runs)-1]
	for _, r := range o.runs {
		c := w.unknown(r, o.since(), o.at)
		known := r.began.Before(o.since()) && (r.leader != last.leader || r.term != last.term)
		if c == "" && !known && o.isHalfMoved(r) {
			c = StartFirst
		}
		switch {
		case c != "":
			left--
			cause = c
		case o.unaware(r):
			unaware++
		}
	}
	by := last.intent()
	want := max(o.want, by.want)
	if o.restarted { // no leader chose this moment
		for _, r := range o.runs {
			want = max(want, r.intent().want)
		}
	}
	switch {
	case len(o.runs) <= want:
		return // that many were wanted when the start was sent
	case left <= want:
	case o.restarted && !w.restartedElsewhere(o):
		cause = SurplusRestarted
	case left <= by.moved, left <= o.movedSince(), o.isConserved(by, left):
		cause = MovedSurplus
	case o.isHalfMoved(last), // one more than before, until the stop that follows
		by.first && o.isConserved(by, left-1): // or until the old copy has ended on its own
		cause = StartFirst
	case by.from != "" && last.leader.added[writeKey{o.task, by.from}]:
		cause = FalseList // it has moved a copy that was never there
	case left-unaware <= want:
		cause = UnawareLeader
	default:
		names := make([]string, len(o.runs))
		for i, r := range o.runs {
			names[i] = r.worker.name
		}
		w.fail(last.leader, last.term, Exclusive, "%s was started on %s %v after the beginning of the run, and then ran on %v; wanted: %d",
			o.task, last.worker.name, o.at.Sub(w.began), names, want)
		return
	}
	w.report.Overlaps[cause]++
}

// isHalfMoved reports whether a run belongs to a move under way that starts first: the
// task still runs at its old place.
func (o *overlap) isHalfMoved(r *run) bool {
	by := r.intent()
	return by.first && slices.ContainsFunc(o.runs, func(other *run) bool { return other.worker.name == by.from })
}

// unaware reports whether a deposed leader, which did not know that it was deposed,
// started the run to replace a copy on a worker that has left. A later leader must
// have started the task too, because it may have emptied that worker.
//
// The deposed leader could learn this only from workers that know the later leader,
// and those would have reported that it is deposed. The run's worker does not know
// the later leader either. Both facts are checked elsewhere.
func (o *overlap) unaware(r *run) bool {
	l := r.leader
	return l != nil && !l.deposed.IsZero() && r.intent().departed.After(l.deposed) &&
		slices.ContainsFunc(o.runs, func(other *run) bool { return other.leader != nil && other.leader.epoch > l.epoch })
}

// movedSince returns how many copies there were when a leader moved one of them
// after the last run's start was decided. For example, the start may have taken
// effect late, when the leader had already counted it.
func (o *overlap) movedSince() int {
	most := 0
	for _, r := range o.runs[:len(o.runs)-1] {
		if by := r.intent(); by.sent.After(o.since()) {
			most = max(most, by.moved)
		}
	}
	return most
}

// isConserved reports whether no more copies run than did when the copy that the last
// start moved was stopped. It adds the copies that were between their own stop and
// start then, and those that came back without a leader's order.
func (o *overlap) isConserved(by intent, left int) bool {
	stopped, moves := o.stoppedFor(by)
	if !moves {
		return false
	}
	copies := stopped.among + o.restartedSince(stopped.at)
	for _, r := range o.runs[:len(o.runs)-1] {
		if other, moves := o.stoppedFor(r.intent()); moves && r.began.After(stopped.at) && other.at.Before(stopped.at) {
			copies++
		}
	}
	return left <= copies
}

// stoppedFor returns the end of the run that a start has moved. It returns false if
// the start moves none, or if that run ended before the leader last listed its
// worker.
func (o *overlap) stoppedFor(by intent) (stop, bool) {
	end := o.stops[by.from]
	return end, by.from != "" && end.at.After(by.asked)
}

// restartedSince counts the runs that workers have begun without a leader's order since
// then.
func (o *overlap) restartedSince(at time.Time) int {
	n := 0
	for _, r := range o.runs {
		if r.leader == nil && r.began.After(at) {
			n++
		}
	}
	return n
}

// since returns when the last run's start was decided. A start is decided when it is
// sent, because it may take effect late. If the worker restarted the task after a
// crash, since returns the time of the crash. A leader may have replaced copies that
// it took for lost since then.
func (o *overlap) since() time.Time {
	last := o.runs[len(o.runs)-1]
	if o.restarted {
		return last.worker.crashed
	}
	return last.intent().sent
}

// restartedElsewhere reports whether, since the worker's crash, a leader that could
// have known of its run started the task elsewhere. That start made too many copies,
// including those that may come back.
func (w *world) restartedElsewhere(o *overlap) bool {
	again := o.runs[len(o.runs)-1]
	if w.unknown(again, o.since(), o.at) != "" {
		return false
	}
	for _, r := range o.runs[:len(o.runs)-1] {
		s := r.intent()
		known := r.leader != nil && r.began.After(again.worker.crashed) && w.unknown(r, o.since(), o.at) == ""
		if known && s.moved == 0 && !s.first && r.copies > s.want {
			return true
		}
	}
	return false
}

// unknown returns why leaders may not have known of a run, or "". The caller holds
// mu.
func (w *world) unknown(r *run, from, to time.Time) Cause {
	for _, l := range w.leaders {
		if l.omitted[writeKey{r.task, r.worker.name}].meet(from, to) {
			return FalseList
		}
	}
	if w.Membership == Leases {
		return ""
	}
	if r.unknown.meets(from, to) {
		return UnfencedLost
	}
	for _, l := range w.leaders {
		if l.lost[r.worker.name].meet(from, to) {
			return UnfencedLost
		}
	}
	return ""
}
