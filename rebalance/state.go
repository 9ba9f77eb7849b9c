package rebalance

// The state of a plan in the making: where each copy is. Steps only take copies and put them,
// and diff compares the result with what runs. So no step needs to know what an earlier one did:
// a copy that is put back where it runs is simply not gone any more.

import (
	"iter"
	"math"
)

// flag is the state of a copy that runs, by its position in the lists of Problem.Running.
type flag uint8

const (
	gone     flag = 1 << iota // it has left its worker
	pinned                    // it stays where it is
	leaving                   // it must leave its worker if it has another place
	repeated                  // the list names its task a second time: it is no copy
)

// A ref names a copy: its position if it runs, or ^i for fresh[i].
type ref = int32

const noRef ref = math.MinInt32

// fresh is a copy on a worker that does not run it.
type fresh struct {
	task, worker int32 // worker is None once the copy has left again
	nextOn       int32 // the next one of the worker, plus one
	nextOf       int32 // the next one of the task, plus one
}

// holder is a worker that runs a task. next is the next one of the task, plus one.
type holder struct {
	task, worker int32
	copy         ref
	next         int32
}

// trail is what the plan knows of the copies of a task: the latest fresh copy, the latest holder
// that a copy has left, and the first holder in the index. All plus one.
type trail struct{ fresh, left, held int32 }

// worker is a worker as the plan has it so far.
type worker struct {
	offset  int32 // the position of the first copy of its list
	skip    int32 // so many copies at the beginning of its list are gone
	load    int32 // copies of wanted tasks
	leaving int32 // of these, how many must leave
	lost    int32 // copies that are gone
	got     int32 // fresh copies
	fresh   int32 // the latest of these, plus one
	hub     int32
	zone    int32
	room    int32 // the most copies that it may run
	share   int32 // 1 if all are equal
	state   State
}

// takesPart reports whether the worker's load counts for an even spread.
func (w *worker) takesPart() bool { return w.state == Open || w.state == Quarantined }

// remaining is the load that an even spread is about: without the copies that must leave.
func (w *worker) remaining() int32 { return w.load - w.leaving }

// isOver reports whether the worker has more copies than it may. Then it gains none, not even in
// exchange for another one.
func (w *worker) isOver() bool { return w.load > w.room }

// hasRoom reports whether the worker can have one copy more: a new one, or, if it is quarantined,
// one of those that it runs.
func (w *worker) hasRoom() bool {
	return w.load < w.room && (w.state == Open || w.state == Quarantined && w.lost > 0)
}

// marks are the tasks of a worker, if it is known: those with the stamp.
type marks struct {
	worker int32
	stamp  uint32
	stamps []uint32 // by task
}

type state struct {
	Problem
	gate
	ranks

	workers []worker
	flags   []flag // by position
	fresh   []fresh
	left    []holder // of copies that have left, and may be back
	held    []holder // the index: the copies that run of the tasks in indexed
	indexed set
	rows    set     // by row: the workers that run a task with many copies
	rowOf   []int32 // by task: its row, plus one; not in use while there are no rows
	trails  []trail // by task

	open    int32    // workers that may gain
	largest int32    // the largest share
	added   int      // fresh copies on all workers
	taken   int      // how often a copy was taken
	staying int      // copies that must leave and have no other place
	multi   bool     // a task may have several copies, so a worker may run what another one gives
	marks   [2]marks // of the two workers that were asked about last
	latest  int      // which of them was the last one

	counts  []tally  // by task, unless the scan was the single one
	weights []Weight // by task, if they differ
	bits    int      // a weight is counted in units of its 2^-bits
	weight  []int64  // by worker: its load by weight, if weights differ, in units
	level   []int64  // by worker: what that should be
}

// begin prepares the state for a problem.
func (s *state) begin(pr *Problem) {
	s.forget()
	s.Problem, s.weights, s.counts, s.inUse, s.added, s.open, s.staying = *pr, nil, nil, false, 0, 0, 0
	s.marks[0].worker, s.marks[1].worker = None, None
	s.workers = sized(s.workers, len(s.States))
	at := int32(0)
	for w, list := range s.Running {
		s.workers[w].offset, s.workers[w].state = at, s.States[w]
		if s.States[w] == Open {
			s.open++
		}
		at += int32(len(list))
	}
	s.flags = sized(s.flags, int(at))
	s.indexed, s.rows, s.runners.known = s.indexed[:0], s.rows[:0], false
}

// forget clears the trails of the last plan.
func (s *state) forget() {
	if len(s.fresh)+len(s.left)+len(s.held) > len(s.trails)/8 {
		clear(s.trails)
	} else {
		for _, f := range s.fresh {
			s.trails[f.task] = trail{}
		}
		for _, h := range s.left {
			s.trails[h.task] = trail{}
		}
		for _, h := range s.held {
			s.trails[h.task] = trail{}
		}
	}
	s.fresh, s.left, s.held = s.fresh[:0], s.left[:0], s.held[:0]
}

// prepare lists the workers of hubs, and makes room for changes. A plan without any needs neither.
func (s *state) prepare() {
	s.listHubs()
	if len(s.trails) < len(s.Want) {
		s.trails = make([]trail, len(s.Want))
	}
	if s.multi {
		s.roomForMarks()
	}
}

func (s *state) roomForMarks() {
	for i := range s.marks {
		if m := &s.marks[i]; len(m.stamps) < len(s.Want) {
			m.stamps, m.stamp = make([]uint32, len(s.Want)), 0
		}
	}
}

// forget removes all marks.
func (m *marks) forget() {
	if m.stamp++; m.stamp == 0 {
		clear(m.stamps)
		m.stamp = 1
	}
}

// index lists the copies that run of some tasks, by task. It is one pass over what runs. A task of which many
// copies run or are wanted gets a row, which takes no more memory than they do.
func (s *state) index(of set) {
	s.indexed, s.rows = append(s.indexed[:0], of...), s.rows[:0]
	if words := s.rowWords(); s.counts != nil {
		for t := range of.members {
			if int(max(s.copies(t), min(s.Want[t], s.open))) >= max(1, 2*words) {
				s.addRow(t, words)
			}
		}
	}
	for w, list := range s.Running {
		if s.States[w] == Frozen {
			continue
		}
		first := s.workers[w].offset
		for k, t := range list {
			if at := first + int32(k); of.has(t) && s.flags[at]&(gone|repeated) == 0 {
				s.held = append(s.held, holder{t, int32(w), at, s.trails[t].held})
				s.trails[t].held = int32(len(s.held))
				s.setRow(t, int32(w), 1)
			}
		}
	}
}

func (s *state) rowWords() int { return (len(s.workers) + 63) / 64 }

// addRow gives t a row.
func (s *state) addRow(t int32, words int) {
	if len(s.rows) == 0 {
		s.rowOf = sized(s.rowOf, len(s.Want))
	}
	s.rows = append(s.rows, make(set, words)...)
	s.rowOf[t] = int32(len(s.rows) / words)
}

// row returns the workers that run t, or nil if t has no row.
func (s *state) row(t int32) set {
	if len(s.rows) == 0 || s.rowOf[t] == 0 {
		return nil
	}
	words := s.rowWords()
	return s.rows[int(s.rowOf[t]-1)*words:][:words]
}

// setRow notes in its row that t runs on w, or that it does not any more.
func (s *state) setRow(t, w, n int32) {
	switch row := s.row(t); {
	case row == nil:
	case n > 0:
		row.add(w)
	default:
		row.remove(w)
	}
}

// holders calls visit with each holder in the index of t, the last worker first, until it returns
// false.
func (s *state) holders(t int32) func(visit func(h *holder) bool) {
	return func(visit func(h *holder) bool) {
		for i := s.trails[t].held; i > 0; i = s.held[i-1].next {
			if !visit(&s.held[i-1]) {
				return
			}
		}
	}
}

// taskOf returns the task of a copy on w.
func (s *state) taskOf(w int32, r ref) int32 {
	if r < 0 {
		return s.fresh[^r].task
	}
	return s.Running[w][r-s.workers[w].offset]
}

// isThere reports whether a copy is on w and may move.
func (s *state) isThere(w int32, r ref) bool {
	if r < 0 {
		return s.fresh[^r].worker == w
	}
	return s.flags[r]&(gone|pinned|repeated) == 0
}

// take takes a copy off its worker.
func (s *state) take(w int32, r ref) (t int32) {
	at := &s.workers[w]
	s.taken++
	t = s.taskOf(w, r)
	if r < 0 {
		s.unlink(&at.fresh, r, func(f *fresh) *int32 { return &f.nextOn })
		s.unlink(&s.trails[t].fresh, r, func(f *fresh) *int32 { return &f.nextOf })
		s.fresh[^r].worker = None
		at.got--
		s.added--
	} else {
		s.flags[r] |= gone
		at.lost++
		if s.flags[r]&leaving != 0 {
			at.leaving--
			if s.zoned && at.state != Draining && s.admitsClass(t, at.hub) {
				s.flags[r] &^= leaving // any other copy of its zone may leave instead
			}
		}
		if s.leftAt(t, w, 0) == noRef {
			s.left = append(s.left, holder{t, w, r, s.trails[t].left})
			s.trails[t].left = int32(len(s.left))
		}
	}
	s.adjust(t, w, -1)
	return t
}

// unlink takes a fresh copy out of a list.
func (s *state) unlink(at *int32, r ref, next func(f *fresh) *int32) {
	for *at != ^r+1 {
		at = next(&s.fresh[*at-1])
	}
	*at = *next(&s.fresh[^r])
}

// put gives a copy to a worker. If the worker runs it, it stays there.
func (s *state) put(t, w int32) {
	at := &s.workers[w]
	if c := s.goneFrom(t, w); c != noRef {
		s.flags[c] &^= gone
		at.lost--
		at.skip = min(at.skip, c-at.offset)
		if s.flags[c]&leaving != 0 {
			at.leaving++
		}
	} else {
		at.got++
		s.added++
		s.fresh = append(s.fresh, fresh{t, w, at.fresh, s.trails[t].fresh})
		at.fresh, s.trails[t].fresh = int32(len(s.fresh)), int32(len(s.fresh))
		if s.labels {
			s.classesOf(w).add(s.class(t))
			s.runners.add(s.class(t), w)
		}
	}
	s.adjust(t, w, 1)
}

// goneFrom returns the copy of t that w runs and that is gone, or noRef.
func (s *state) goneFrom(t, w int32) ref {
	if s.workers[w].lost == 0 {
		return noRef
	}
	return s.leftAt(t, w, gone)
}

// leftAt returns the copy of t that has left w once, if it has some flags, or noRef.
func (s *state) leftAt(t, w int32, flags flag) ref {
	for i := s.trails[t].left; i > 0; i = s.left[i-1].next {
		if h := &s.left[i-1]; h.worker == w && s.flags[h.copy]&flags == flags {
			return h.copy
		}
	}
	return noRef
}

// adjust adds n copies of t to the figures of w.
func (s *state) adjust(t, w, n int32) {
	s.workers[w].load += n
	if s.weights != nil {
		s.weight[w] += int64(n) * s.weightOf(t)
	}
	if s.zoned {
		s.inZone[int(t)*s.zones+int(s.zone(w))] += n
	}
	s.setRow(t, w, n)
	for i := range s.marks {
		if m := &s.marks[i]; m.worker == w {
			m.stamps[t] = m.stamp * uint32(max(n, 0))
		}
	}
	s.update(w)
}

// runs reports whether w runs t.
func (s *state) runs(t, w int32) bool {
	if !s.multi {
		return false // the only copy is on the worker that gives it
	}
	if len(s.indexed) == 0 || !s.indexed.has(t) {
		m := s.mark(w)
		return m.stamps[t] == m.stamp
	}
	if row := s.row(t); row != nil {
		return row.has(w)
	}
	for h := range s.holders(t) {
		if h.worker == w {
			return s.flags[h.copy]&gone == 0
		}
	}
	for i := s.trails[t].fresh; i > 0; i = s.fresh[i-1].nextOf {
		if s.fresh[i-1].worker == w {
			return true
		}
	}
	return false
}

// copiesOn calls visit with each copy on w, until it returns false.
func (s *state) copiesOn(w int32) iter.Seq2[int32, ref] {
	return func(visit func(t int32, c ref) bool) {
		at := &s.workers[w]
		for k, t := range s.Running[w] {
			if c := at.offset + int32(k); s.flags[c]&gone == 0 && !visit(t, c) {
				return
			}
		}
		for i := at.fresh; i > 0; i = s.fresh[i-1].nextOn {
			if !visit(s.fresh[i-1].task, ^(i - 1)) {
				return
			}
		}
	}
}

// mark returns the tasks of w. Two workers that exchange copies are asked about in turn.
func (s *state) mark(w int32) *marks {
	if s.marks[s.latest].worker != w {
		s.latest = 1 - s.latest
	}
	m := &s.marks[s.latest]
	if m.worker == w {
		return m
	}
	m.forget()
	m.worker = w
	for t := range s.copiesOn(w) {
		m.stamps[t] = m.stamp
	}
	return m
}

// copyOf returns the copy of t on w, or noRef.
func (s *state) copyOf(t, w int32) ref {
	for x, c := range s.copiesOn(w) {
		if x == t {
			return c
		}
	}
	return noRef
}

// next returns the place in the list of w of the first copy that is not gone.
func (s *state) next(w int32) int {
	at := &s.workers[w]
	for int(at.skip) < len(s.Running[w]) && s.flags[at.offset+at.skip]&gone != 0 {
		at.skip++
	}
	return int(at.skip)
}

// markLeaving marks a copy that must leave its worker.
func (s *state) markLeaving(w int32, r ref) {
	s.flags[r] |= leaving
	s.workers[w].leaving++
	s.update(w)
}

// stay lets a copy stay that must leave and has no other place. leave takes that back.
func (s *state) stay(w int32, r ref) {
	s.flags[r] |= pinned
	s.staying++
	s.workers[w].leaving--
	s.update(w)
}

func (s *state) leave(w int32, r ref) {
	s.flags[r] &^= pinned
	s.staying--
	s.workers[w].leaving++
	s.update(w)
}

// stays reports whether a copy stays although it must leave.
func (s *state) stays(r ref) bool { return s.flags[r] == pinned|leaving }

// hop is a part of a path: a copy moves from one worker to another one.
type hop struct {
	from, to int32
	copy     ref
	task     int32
	other    int32 // the task that starts at the end instead of it, plus one; or 0
	leaves   bool  // the copy must leave its worker
}

// arriving returns the task of the copy at the end of the hop.
func (h *hop) arriving() int32 {
	if h.other > 0 {
		return h.other - 1
	}
	return h.task
}

// apply makes all hops, or none if a rule forbids one. All copies leave before the first one
// arrives, so a path may come to a worker twice. It does not look at the room of the workers.
func (s *state) apply(hops []hop) bool {
	for i := range hops {
		h := &hops[i]
		if !s.isThere(h.from, h.copy) {
			s.restore(hops[:i])
			return false
		}
		h.leaves = h.copy >= 0 && s.flags[h.copy]&leaving != 0
		h.task = s.take(h.from, h.copy)
	}
	for i := range hops {
		h := &hops[i]
		if !s.can(h.arriving(), h.to, None) {
			s.undo(hops[:i])
			s.restore(hops[i:])
			return false
		}
		s.put(h.arriving(), h.to)
	}
	return true
}

// undo takes back hops that have been made.
func (s *state) undo(hops []hop) {
	for i := range hops {
		h := &hops[i]
		s.take(h.to, s.copyOf(h.arriving(), h.to))
	}
	s.restore(hops)
}

// restore puts copies back that have been taken.
func (s *state) restore(hops []hop) {
	for _, h := range hops {
		s.put(h.task, h.from)
		if h.leaves && s.flags[h.copy]&leaving == 0 {
			s.markLeaving(h.from, h.copy)
		}
	}
}

// starts returns how many starts hops add.
func (s *state) starts(hops []hop) (n int) {
	for _, h := range hops {
		if h.copy >= 0 {
			n++
		}
		if s.goneFrom(s.taskOf(h.from, h.copy), h.to) != noRef {
			n--
		}
	}
	return n
}
