package breaker

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"
)

// remembered is how many workers a task remembers that failed to start it: the last
// ones. In a long outage each task fails on all workers.
const remembered = 8

// forgotten is after how many terms without a try a failure is dropped.
const forgotten = 4 * Ladder

// Breakers holds the pauses. Use New.
type Breakers struct {
	longest time.Duration
	tasks   map[int32]*task
	workers map[uint64]*worker
	moves   Pause
	// outage holds the workers that failed to start tasks since the last term in which
	// a start was acknowledged.
	outage map[uint64]struct{}
}

// task is what is known of a task since its last acknowledged start.
type task struct {
	on      map[uint64]*Pause // by worker that failed to start it
	suspect bool
	last    uint64 // the worker that failed last
	tried   uint64 // the term of that failure
	// failures and timeouts count those on all workers.
	failures, timeouts int
	pause              Pause // of a suspect
}

// worker is what is known of a worker since its last acknowledged start.
type worker struct {
	against map[int32]struct{} // tasks that failed here and started elsewhere
	pause   Pause              // Failures is 0 until it is quarantined
}

// Pair is a task on a worker.
type Pair struct {
	Task   int32
	Worker uint64
}

// Start is how a start ended. Err is nil if it was acknowledged.
type Start struct {
	Pair
	Err      error
	TimedOut bool
	// Back: the start gave a task back to the worker that it came from.
	Back bool
	// Elsewhere: the task runs on another worker, from which it was to move.
	Elsewhere bool
}

// Fleet is what the rules need to know of the workers after the starts.
type Fleet struct {
	Workers int                      // how many answer
	Open    int                      // how many of them may gain tasks, quarantined ones too
	Empty   func(worker uint64) bool // reports whether a worker runs nothing
}

// New returns breakers that hold nothing. No pause lasts longer than longest.
func New(longest time.Duration) *Breakers {
	return &Breakers{
		longest: longest, tasks: make(map[int32]*task), workers: make(map[uint64]*worker), outage: make(map[uint64]struct{}),
	}
}

// Clone returns a copy that shares nothing with b, in which number gives each task
// its number.
func (b *Breakers) Clone(number func(task int32) int32) *Breakers {
	c := New(b.longest)
	c.moves, c.outage = b.moves, maps.Clone(b.outage)
	for id, t := range b.tasks {
		copied := *t
		copied.on = make(map[uint64]*Pause, len(t.on))
		for w, p := range t.on {
			pause := *p
			copied.on[w] = &pause
		}
		c.tasks[number(id)] = &copied
	}
	for serial, w := range b.workers {
		copied := *w
		copied.against = make(map[int32]struct{}, len(w.against))
		for id := range w.against {
			copied.against[number(id)] = struct{}{}
		}
		c.workers[serial] = &copied
	}
	return c
}

// Empty reports whether b holds nothing.
func (b *Breakers) Empty() bool {
	return len(b.tasks) == 0 && len(b.workers) == 0 && b.moves.Failures == 0
}

// Writes is how the writes of a term ended.
type Writes struct {
	Starts []Start // in the order in which they ended
	// Skipped holds the tasks of which a start was planned and did not begin.
	Skipped []int32
	// Stranded is the error of a move that left its task stopped, or nil.
	Stranded error
}

// Learn records how the writes of a term ended.
func (b *Breakers) Learn(now Moment, writes Writes, fleet Fleet) {
	started := false
	b.endOutage(writes.Starts, fleet.Open)
	for _, s := range writes.Starts {
		switch {
		case s.Err == nil:
			started = started || !s.Back
			b.succeeded(s.Pair, now, fleet.Empty)
		case !s.Back: // a give-back that fails counts against no worker
			b.failed(s, now, fleet)
			if s.Elsewhere && !b.tasks[s.Task].failsAnywhere(fleet.Open) {
				b.accuse(s.Worker, s.Task, s.Err, now, fleet.Empty)
			}
		}
	}
	for _, id := range writes.Skipped {
		// A suspect whose worker timed out before had its turn. It waits for the next
		// term that suspects share.
		if t := b.tasks[id]; t != nil && t.suspect && t.timeouts > 0 && !t.pause.Active(now) {
			b.align(t, now, fleet.Workers)
		}
	}
	maps.DeleteFunc(b.tasks, func(_ int32, t *task) bool { return t.isForgotten(now) })
	switch {
	case writes.Stranded != nil && !started:
		b.moves.fail(now, b.longest, writes.Stranded, movesLadder)
	case started:
		b.moves = Pause{}
	}
}

// endOutage excuses the failures of an outage when a start is acknowledged again: if more
// than half of the open workers failed to start tasks in the terms since the last one,
// these failures count against none of them.
func (b *Breakers) endOutage(starts []Start, open int) {
	if len(starts) == 0 {
		return
	}
	if !slices.ContainsFunc(starts, func(s Start) bool { return s.Err == nil && !s.Back }) {
		for _, s := range starts {
			if s.Err != nil && !s.Back {
				b.outage[s.Worker] = struct{}{}
			}
		}
		return
	}
	if 2*len(b.outage) > max(open, 2) {
		for _, t := range b.tasks {
			for serial, p := range t.on {
				if _, ok := b.outage[serial]; ok {
					p.excused = true
				}
			}
		}
	}
	clear(b.outage)
}

func (b *Breakers) failed(s Start, now Moment, fleet Fleet) {
	t := b.tasks[s.Task]
	if t == nil || t.isForgotten(now) {
		t = &task{on: make(map[uint64]*Pause)}
		b.tasks[s.Task] = t
	}
	p := t.on[s.Worker]
	if p == nil {
		p = &Pause{}
		t.on[s.Worker] = p
		t.forgetOldest()
	}
	p.Fail(now, b.longest, s.Err)
	t.last, t.tried = s.Worker, now.Term
	t.failures++
	if s.TimedOut {
		t.timeouts++
	}
	t.suspect = t.suspect || len(t.on) > 1
	if t.suspect {
		t.pause.Failures, t.pause.Err = t.failures, s.Err
		if s.TimedOut {
			b.align(t, now, fleet.Workers)
		} else {
			t.pause.hold(now, b.longest, terms(t.step(fleet.Workers)))
		}
	}
	if t.failsAnywhere(fleet.Open) {
		b.acquit(s.Task, fleet.Empty)
		return
	}
	// A quarantined worker has failed its trial.
	if w := b.workers[s.Worker]; w != nil && w.pause.Failures > 0 {
		w.pause.Fail(now, b.longest, s.Err)
	}
}

// failsAnywhere reports whether a task failed on so many workers since it last started
// that it says nothing of any of them.
func (t *task) failsAnywhere(open int) bool {
	return len(t.on) > max(1, min(open/2, remembered-1))
}

// isForgotten reports whether the failures of a task are too old to count.
func (t *task) isForgotten(now Moment) bool { return !t.suspect && now.Term > t.tried+forgotten }

// align makes a suspect that timed out wait for a term that suspects share.
func (b *Breakers) align(t *task, now Moment, workers int) {
	most := uint64(Ladder)
	if b.moves.Failures > 0 {
		most = outageLadder
	}
	t.pause.align(now, b.longest, t.step(workers), most)
}

// forgetOldest drops the worker that failed longest ago, if too many are remembered.
// One that was just added has not failed yet.
func (t *task) forgetOldest() {
	if len(t.on) <= remembered {
		return
	}
	var oldest uint64
	var of *Pause
	for serial, p := range t.on {
		if p.Failures > 0 && (of == nil || cmp.Or(cmp.Compare(p.from, of.from), cmp.Compare(serial, oldest)) < 0) {
			oldest, of = serial, p
		}
	}
	delete(t.on, oldest)
}

// step is the step of a suspect's pause.
func (t *task) step(workers int) int {
	return max(t.timeouts, 1) + t.failures/max(workers, 2)
}

// Happened records failed starts that did happen: the workers run the tasks. It takes
// all at once, because a worker must not be accused of a task that it runs.
func (b *Breakers) Happened(pairs []Pair, now Moment, empty func(worker uint64) bool) {
	for _, p := range pairs {
		if t := b.tasks[p.Task]; t != nil {
			delete(t.on, p.Worker)
		}
	}
	for _, p := range pairs {
		b.succeeded(p, now, empty)
		b.moves = Pause{}
	}
}

// Missing records that a worker does not run a task, though it may have started it
// when it failed. If that was not known for some terms the pause begins again.
func (b *Breakers) Missing(p Pair, now Moment) {
	if t := b.tasks[p.Task]; t != nil && t.on[p.Worker] != nil {
		t.on[p.Worker].restart(now, b.longest)
	}
}

// succeeded clears a task and its worker. Failures of the task on other workers now
// count against those.
func (b *Breakers) succeeded(p Pair, now Moment, empty func(worker uint64) bool) {
	delete(b.workers, p.Worker)
	t := b.tasks[p.Task]
	if t == nil {
		return
	}
	delete(b.tasks, p.Task)
	for serial, pause := range t.on {
		if serial != p.Worker && !pause.excused {
			b.accuse(serial, p.Task, pause.Err, now, empty)
		}
	}
}

func (b *Breakers) accuse(serial uint64, task int32, err error, now Moment, empty func(uint64) bool) {
	w := b.workers[serial]
	if w == nil {
		w = &worker{against: make(map[int32]struct{})}
		b.workers[serial] = w
	}
	w.against[task] = struct{}{}
	if w.pause.Failures == 0 && w.isSick(serial, empty) {
		w.pause.Fail(now, b.longest, err)
	}
}

// isSick reports whether so much counts against a worker that it is quarantined.
func (w *worker) isSick(serial uint64, empty func(worker uint64) bool) bool {
	return len(w.against) > 1 || len(w.against) == 1 && empty(serial)
}

// acquit takes back what a task counts against workers.
func (b *Breakers) acquit(task int32, empty func(worker uint64) bool) {
	maps.DeleteFunc(b.workers, func(serial uint64, w *worker) bool {
		if _, ok := w.against[task]; !ok {
			return false
		}
		delete(w.against, task)
		if !w.isSick(serial, empty) {
			w.pause = Pause{}
		}
		return len(w.against) == 0
	})
}

// Quarantined returns the pause of a quarantined worker, and false for any other
// worker. When the pause is over the worker may gain one task.
func (b *Breakers) Quarantined(worker uint64) (Pause, bool) {
	w := b.workers[worker]
	if w == nil || w.pause.Failures == 0 {
		return Pause{}, false
	}
	return w.pause, true
}

// Moves returns the pause of all moves. When it is over and has failures, one
// move may be tried.
func (b *Breakers) Moves() Pause { return b.moves }

// Failed reports whether the last start of a task failed, on any worker.
func (b *Breakers) Failed(task int32) bool { return b.tasks[task] != nil }

// IsSuspect reports whether a task failed on more than one worker in a row.
func (b *Breakers) IsSuspect(task int32) bool { return b.tasks[task] != nil && b.tasks[task].suspect }

// FailedOn reports whether the last start of a task on a worker failed, and none
// succeeded elsewhere since, or counts against the worker.
func (b *Breakers) FailedOn(p Pair) bool {
	if t := b.tasks[p.Task]; t != nil && t.on[p.Worker] != nil {
		return true
	}
	w := b.workers[p.Worker]
	if w == nil {
		return false
	}
	_, against := w.against[p.Task]
	return against
}

// FailuresOn counts the failed starts of a task on a worker that are remembered.
func (b *Breakers) FailuresOn(p Pair) int {
	if t := b.tasks[p.Task]; t != nil && t.on[p.Worker] != nil {
		return t.on[p.Worker].Failures
	}
	return 0
}

// PausedOn reports whether a task pauses on a worker.
func (b *Breakers) PausedOn(p Pair, now Moment) bool {
	t := b.tasks[p.Task]
	return t != nil && t.on[p.Worker] != nil && t.on[p.Worker].Active(now)
}

// FailedIn counts the tasks whose latest failure was in a term.
func (b *Breakers) FailedIn(term uint64) (n int) {
	for _, t := range b.tasks {
		if t.tried == term {
			n++
		}
	}
	return n
}

// Suspect is a task that fails to start on more than one worker.
type Suspect struct {
	Task  int32
	Last  uint64 // the worker that failed last
	Pause Pause
}

// Suspects returns the suspects, those tried longest ago first.
func (b *Breakers) Suspects() []Suspect {
	var all []Suspect
	for id, t := range b.tasks {
		if t.suspect {
			all = append(all, Suspect{Task: id, Last: t.last, Pause: t.pause})
		}
	}
	slices.SortFunc(all, func(s, t Suspect) int {
		return cmp.Or(cmp.Compare(b.tasks[s.Task].tried, b.tasks[t.Task].tried), cmp.Compare(s.Task, t.Task))
	})
	return all
}

// Pairs yields the pauses of tasks on workers, those that are over too, by worker and
// then by task.
func (b *Breakers) Pairs() iter.Seq2[Pair, Pause] {
	return func(yield func(Pair, Pause) bool) {
		var pairs []Pair
		for id, t := range b.tasks {
			for serial := range t.on {
				pairs = append(pairs, Pair{Task: id, Worker: serial})
			}
		}
		slices.SortFunc(pairs, func(p, q Pair) int {
			return cmp.Or(cmp.Compare(p.Worker, q.Worker), cmp.Compare(p.Task, q.Task))
		})
		for _, p := range pairs {
			if !yield(p, *b.tasks[p.Task].on[p.Worker]) {
				return
			}
		}
	}
}

// FailedWorkers returns the workers for which FailedOn holds with some task, or nil.
func (b *Breakers) FailedWorkers() map[uint64]bool {
	if len(b.tasks) == 0 && len(b.workers) == 0 {
		return nil
	}
	workers := make(map[uint64]bool)
	for _, t := range b.tasks {
		for serial := range t.on {
			workers[serial] = true
		}
	}
	for serial := range b.workers {
		workers[serial] = true
	}
	return workers
}

// Tasks yields every task that b holds something of.
func (b *Breakers) Tasks() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for id := range b.tasks {
			if !yield(id) {
				return
			}
		}
		for _, w := range b.workers {
			for id := range w.against {
				if !yield(id) {
					return
				}
			}
		}
	}
}

// ForgetQuarantines ends the quarantines whose pause ended long ago: no start was tried
// there since, and a fleet in which nothing starts would keep them for ever.
func (b *Breakers) ForgetQuarantines(now Moment) {
	maps.DeleteFunc(b.workers, func(_ uint64, w *worker) bool {
		return w.pause.Failures > 0 && now.Term > w.pause.Until+forgotten
	})
}

// ForgetWorkers drops what is held against workers that are gone.
func (b *Breakers) ForgetWorkers(gone func(worker uint64) bool) {
	maps.DeleteFunc(b.workers, func(serial uint64, _ *worker) bool { return gone(serial) })
	maps.DeleteFunc(b.outage, func(serial uint64, _ struct{}) bool { return gone(serial) })
	for id, t := range b.tasks {
		maps.DeleteFunc(t.on, func(serial uint64, _ *Pause) bool { return gone(serial) })
		if len(t.on) == 0 {
			delete(b.tasks, id)
		}
	}
}

// ForgetTasks drops what is held against tasks that are gone. What counts against
// workers stays.
func (b *Breakers) ForgetTasks(gone func(task int32) bool) {
	maps.DeleteFunc(b.tasks, func(id int32, _ *task) bool { return gone(id) })
}
