package term

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"
)

// maxRememberedWorkers is how many of the workers that failed to start a task are kept: the
// last ones. In a long outage each task fails on all workers.
const maxRememberedWorkers = 8

// maxRejected bounds how many rejections are remembered.
const maxRejected = 1 << 16

// forgetAfterTerms is the number of terms without a try after which a failure is dropped.
const forgetAfterTerms = 4 * maxPauseTerms

// breakers holds the starts that failed, and the pauses because of them.
type breakers struct {
	fleet   *Fleet
	longest time.Duration
	// answering is how many workers answer, and open how many of them may gain tasks,
	// quarantined ones too, as of the last call of learn.
	answering, open int

	tasks   map[int32]*failedTask
	workers map[uint64]*failedWorker
	// left holds the tasks that have asked to leave a worker, with their pauses there. Those
	// that run elsewhere stay in it after the pause.
	left map[taskOn]Pause
	// rejected holds the tasks that a worker has rejected since their settings last changed, or
	// those of the worker.
	rejected map[taskOn]struct{}
	// moves is the pause of all moves. When it is over and has failures, one move may be
	// tried.
	moves Pause
	// learnt counts the starts whose results b knows. cleared holds, by worker, the value
	// of learnt up to which no failure counts against the worker.
	learnt  uint64
	cleared map[uint64]uint64
}

// failedTask is what is known of a task since its last acknowledged start.
type failedTask struct {
	on      map[uint64]*Pause // by worker that failed to start it
	suspect bool
	last    uint64 // the worker that failed last
	tried   uint64 // the term of that failure
	// failures and timeouts count those on all workers.
	failures, timeouts int
	pause              Pause // of a suspect
	// roomIn is the latest term in which healthy tasks made room for the task, and roomless: that
	// start failed.
	roomIn   uint64
	roomless bool
	// ran is the number of the latest start that gave the task back.
	ran uint64
}

// failedWorker is what is known of a worker since its last acknowledged start.
type failedWorker struct {
	failedTasks map[int32]uint64 // by task that failed here and started elsewhere: the number of that failure
	pause       Pause            // Failures is 0 until it is quarantined
}

// taskOn is a task on a worker.
type taskOn struct {
	Task   int32
	Worker uint64
}

// startResult is how a start ended. Err is nil if it was acknowledged.
type startResult struct {
	taskOn
	Err      error
	TimedOut bool
	Rejected bool // the worker answered that it does not run the task
	// Back: the start gave a task back to the worker that it came from.
	Back bool
	// Elsewhere: the task runs on another worker, from which it was to move.
	Elsewhere bool
}

// newBreakers returns breakers of a fleet that hold nothing. No pause lasts longer than
// longest.
func newBreakers(fleet *Fleet, longest time.Duration) *breakers {
	return &breakers{
		fleet: fleet, longest: longest,
		tasks: make(map[int32]*failedTask), workers: make(map[uint64]*failedWorker),
		cleared: make(map[uint64]uint64), left: make(map[taskOn]Pause), rejected: make(map[taskOn]struct{}),
	}
}

// clone returns a copy for a fleet that shares nothing with b.
func (b *breakers) clone(fleet *Fleet) *breakers {
	c := *b
	c.fleet, c.cleared, c.left = fleet, maps.Clone(b.cleared), maps.Clone(b.left)
	c.rejected = maps.Clone(b.rejected)
	c.tasks, c.workers = make(map[int32]*failedTask, len(b.tasks)), make(map[uint64]*failedWorker, len(b.workers))
	for id, t := range b.tasks {
		copied := *t
		copied.on = make(map[uint64]*Pause, len(t.on))
		for w, p := range t.on {
			pause := *p
			copied.on[w] = &pause
		}
		c.tasks[id] = &copied
	}
	for serial, w := range b.workers {
		c.workers[serial] = &failedWorker{maps.Clone(w.failedTasks), w.pause}
	}
	return &c
}

// empty reports whether b holds nothing.
func (b *breakers) empty() bool {
	return len(b.tasks) == 0 && len(b.workers) == 0 && len(b.left) == 0 && b.moves.Failures == 0
}

// learn records how the writes of a term ended: the starts, in the order in which they
// ended. stranded is the error of a move that left its task stopped, or nil.
func (b *breakers) learn(now Moment, starts []startResult, stranded error) {
	b.answering, b.open = b.fleet.available()
	started, before := false, b.learnt
	for _, s := range starts {
		b.learnt++
		switch {
		case s.Err == nil:
			started = started || !s.Back
			b.succeeded(s.taskOn, b.learnt, now, s.Back)
		case !s.Back: // a give-back that fails counts against no worker
			b.failed(s, now)
			if s.Elsewhere && !b.failsEverywhere(b.tasks[s.Task]) {
				b.countAgainst(s.Worker, s.Task, b.learnt, s.Err, now)
			}
		}
	}
	maps.DeleteFunc(b.tasks, func(_ int32, t *failedTask) bool { return t.isForgotten(now) })
	switch {
	case stranded != nil && !started:
		b.moves.fail(now, b.longest, stranded, maxMovesPauseTerms)
		b.moves.number = before
	case started:
		b.moves = Pause{}
	}
}

func (b *breakers) failed(s startResult, now Moment) {
	t := b.tasks[s.Task]
	if t == nil || t.isForgotten(now) {
		t = &failedTask{on: make(map[uint64]*Pause)}
		b.tasks[s.Task] = t
	}
	p := t.on[s.Worker]
	if p == nil {
		p = &Pause{}
		t.on[s.Worker] = p
		t.forgetOldest()
	}
	p.fail(now, b.longest, s.Err, maxPauseTerms)
	p.number = b.learnt
	t.roomless = t.roomless || t.roomIn == now.Term
	if s.Rejected {
		if len(b.rejected) >= maxRejected {
			clear(b.rejected)
		}
		b.rejected[s.taskOn] = struct{}{}
	}
	t.last, t.tried = s.Worker, now.Term
	t.failures++
	if s.TimedOut {
		t.timeouts++
	}
	t.suspect = t.suspect || len(t.on) > 1
	if t.suspect {
		t.pause.Failures, t.pause.Err = t.failures, s.Err
		length := pauseTerms(b.step(t))
		if s.TimedOut { // it costs the others little, see rationHanging
			length = min(length, maxPauseTerms/2)
		}
		t.pause.hold(now, b.longest, length)
	}
	if b.failsEverywhere(t) {
		for serial := range b.workers {
			b.clearAgainst(serial, func(task int32, _ uint64) bool { return task == s.Task })
		}
		return
	}
	// A quarantined worker has failed its trial.
	if w := b.workers[s.Worker]; w != nil && w.pause.Failures > 0 {
		w.pause.fail(now, b.longest, s.Err, maxPauseTerms)
	}
}

// failsEverywhere reports whether a task failed on so many workers since it last started
// that its failures do not count against any of them.
func (b *breakers) failsEverywhere(t *failedTask) bool {
	n := 0
	for _, p := range t.on {
		if p.number > t.ran {
			n++
		}
	}
	return n > max(1, min(b.open/2, maxRememberedWorkers-1))
}

// isForgotten reports whether the failures of a task are too old to count.
func (t *failedTask) isForgotten(now Moment) bool {
	return !t.suspect && now.Term > t.tried+forgetAfterTerms
}

// forgetOldest drops the worker that failed longest ago, if too many are remembered.
// One that was just added has not failed yet.
func (t *failedTask) forgetOldest() {
	if len(t.on) <= maxRememberedWorkers {
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
func (b *breakers) step(t *failedTask) int {
	return max(t.timeouts, 1) + t.failures/max(b.answering, 2)
}

// happened records that a worker runs a task. If a start of it there failed, that start has
// happened, and clears what failed before it.
func (b *breakers) happened(p taskOn, now Moment) {
	number := b.pauseOn(p).number
	if w := b.workers[p.Worker]; w != nil {
		number = max(number, w.failedTasks[p.Task])
	}
	if number > 0 {
		b.succeeded(p, number, now, false)
		if number > b.moves.number {
			b.moves = Pause{}
		}
	}
}

// leaves records that a worker refuses a task because it has asked to run elsewhere. That
// counts against neither.
func (b *breakers) leaves(p taskOn, err error, now Moment) {
	pause := Pause{Failures: 1, Err: err}
	pause.hold(now, b.longest, maxPauseTerms)
	b.left[p] = pause
}

// leftTwo returns the tasks that have asked to leave more than one worker, in order.
func (b *breakers) leftTwo() []int32 {
	var tasks []int32
	on := make(map[int32]int)
	for p := range b.left {
		if on[p.Task]++; on[p.Task] == 2 {
			tasks = append(tasks, p.Task)
		}
	}
	slices.Sort(tasks)
	return tasks
}

// succeeded records that the start with a number has happened: it clears its task and its
// worker of the failures before it. Those of the task on other workers now count against
// these, unless the workers have been cleared since. back: it is the give-back of a move that
// failed, and the pauses of the task stay.
func (b *breakers) succeeded(p taskOn, number uint64, now Moment, back bool) {
	b.cleared[p.Worker] = max(b.cleared[p.Worker], number)
	b.clearAgainst(p.Worker, func(_ int32, failure uint64) bool { return failure <= number })
	delete(b.left, p)
	delete(b.rejected, p)
	t := b.tasks[p.Task]
	if t == nil {
		return
	}
	maps.DeleteFunc(t.on, func(serial uint64, pause *Pause) bool {
		older := pause.number <= number
		if older && serial != p.Worker && pause.number > b.cleared[serial] {
			b.countAgainst(serial, p.Task, pause.number, pause.Err, now)
		}
		return older && !back
	})
	if len(t.on) == 0 {
		delete(b.tasks, p.Task)
		return
	}
	if back {
		t.ran = number
	}
	t.suspect, t.failures, t.timeouts = len(t.on) > 1 && !back, len(t.on), min(t.timeouts, len(t.on))
}

func (b *breakers) countAgainst(serial uint64, task int32, number uint64, err error, now Moment) {
	w := b.workers[serial]
	if w == nil {
		w = &failedWorker{failedTasks: make(map[int32]uint64)}
		b.workers[serial] = w
	}
	w.failedTasks[task] = number
	if w.pause.Failures == 0 && b.mustQuarantine(serial, w) {
		w.pause.fail(now, b.longest, err, maxPauseTerms)
	}
}

// mustQuarantine reports whether enough tasks count against a worker to quarantine it.
func (b *breakers) mustQuarantine(serial uint64, w *failedWorker) bool {
	of := b.fleet.bySerial(serial) // nil if it was removed
	return len(w.failedTasks) > 1 || len(w.failedTasks) == 1 && (of == nil || len(of.runs) == 0)
}

// clearAgainst removes some failures from what counts against a worker.
func (b *breakers) clearAgainst(serial uint64, which func(task int32, failure uint64) bool) {
	w := b.workers[serial]
	if w == nil {
		return
	}
	before := len(w.failedTasks)
	maps.DeleteFunc(w.failedTasks, which)
	if len(w.failedTasks) == 0 {
		delete(b.workers, serial)
	} else if len(w.failedTasks) < before && !b.mustQuarantine(serial, w) {
		w.pause = Pause{}
	}
}

// quarantined returns the pause of a quarantined worker, and false for any other
// worker. When the pause is over the worker may gain one task.
func (b *breakers) quarantined(worker uint64) (Pause, bool) {
	w := b.workers[worker]
	if w == nil || w.pause.Failures == 0 {
		return Pause{}, false
	}
	return w.pause, true
}

// hangs reports whether a suspect used up the time of a start since it last started.
func (b *breakers) hangs(task int32) bool {
	t := b.tasks[task]
	return t != nil && t.suspect && t.timeouts > 0
}

// failing reports whether the last start of a task failed, on any worker.
func (b *breakers) failing(task int32) bool { return b.tasks[task] != nil }

// pauseOn returns the pause of a task on a worker, or the zero Pause.
func (b *breakers) pauseOn(p taskOn) Pause {
	if t := b.tasks[p.Task]; t != nil && t.on[p.Worker] != nil {
		return *t.on[p.Worker]
	}
	return Pause{}
}

// failedOn reports whether a start of a task on a worker failed, and the failure is
// remembered: the task has not started elsewhere since, or the failure counts against the
// worker.
func (b *breakers) failedOn(p taskOn) bool {
	w := b.workers[p.Worker]
	return b.pauseOn(p).Failures > 0 || w != nil && w.failedTasks[p.Task] > 0
}

// failedIn counts the tasks whose latest failure was in a term.
func (b *breakers) failedIn(term uint64) (n int) {
	for _, t := range b.tasks {
		if t.tried == term {
			n++
		}
	}
	return n
}

// suspects returns the suspects, those tried longest ago first.
func (b *breakers) suspects() []suspect {
	var all []suspect
	for id, t := range b.tasks {
		if t.suspect {
			all = append(all, suspect{Task: id, Last: t.last, Pause: t.pause})
		}
	}
	slices.SortFunc(all, func(s, t suspect) int {
		return cmp.Or(cmp.Compare(b.tasks[s.Task].tried, b.tasks[t.Task].tried), cmp.Compare(s.Task, t.Task))
	})
	return all
}

// pairs yields the pauses of tasks on workers, those that are over too, by worker and
// then by task.
func (b *breakers) pairs() iter.Seq2[taskOn, Pause] {
	return func(yield func(taskOn, Pause) bool) {
		pairs := slices.Collect(maps.Keys(b.left))
		for id, t := range b.tasks {
			for serial := range t.on {
				if p := (taskOn{Task: id, Worker: serial}); b.left[p].Failures == 0 {
					pairs = append(pairs, p)
				}
			}
		}
		slices.SortFunc(pairs, func(p, q taskOn) int {
			return cmp.Or(cmp.Compare(p.Worker, q.Worker), cmp.Compare(p.Task, q.Task))
		})
		for _, p := range pairs {
			pause, ok := b.left[p]
			if !ok {
				pause = *b.tasks[p.Task].on[p.Worker]
			}
			if !yield(p, pause) {
				return
			}
		}
	}
}

// failedWorkers returns the workers of which b holds a failed start, or nil if b holds
// none.
func (b *breakers) failedWorkers() map[uint64]bool {
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

// forgetQuarantines ends the quarantines whose pause ended long ago: no start was tried
// there since, and a fleet in which nothing starts would keep them for ever.
func (b *breakers) forgetQuarantines(now Moment) {
	maps.DeleteFunc(b.workers, func(_ uint64, w *failedWorker) bool {
		return w.pause.Failures > 0 && now.Term > w.pause.Until+forgetAfterTerms
	})
}

// forgetWorkers drops what is held against workers that are gone.
func (b *breakers) forgetWorkers(gone func(worker uint64) bool) {
	maps.DeleteFunc(b.workers, func(serial uint64, _ *failedWorker) bool { return gone(serial) })
	maps.DeleteFunc(b.cleared, func(serial, _ uint64) bool { return gone(serial) })
	maps.DeleteFunc(b.left, func(p taskOn, _ Pause) bool { return gone(p.Worker) })
	b.readmit(func(p taskOn) bool { return gone(p.Worker) })
	for id, t := range b.tasks {
		maps.DeleteFunc(t.on, func(serial uint64, _ *Pause) bool { return gone(serial) })
		if len(t.on) == 0 {
			delete(b.tasks, id)
		}
	}
}

// readmit forgets rejections, because the settings of the task or the worker changed.
func (b *breakers) readmit(which func(taskOn) bool) {
	for p := range b.rejected {
		if which(p) {
			delete(b.rejected, p)
			if t := b.tasks[p.Task]; t != nil {
				t.roomless = false
			}
		}
	}
}

// forgetTasks drops what is held against tasks that are gone. What counts against
// workers stays.
func (b *breakers) forgetTasks(gone func(task int32) bool) {
	maps.DeleteFunc(b.tasks, func(id int32, _ *failedTask) bool { return gone(id) })
	maps.DeleteFunc(b.left, func(p taskOn, _ Pause) bool { return gone(p.Task) })
	b.readmit(func(p taskOn) bool { return gone(p.Task) })
}
