package term

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Config holds the settings of a leader that its decisions depend on.
type Config struct {
	Timeout  time.Duration // of a call to a worker
	MaxPause time.Duration // the longest pause after failures
	MaxLoss  float64       // the part of the workers that may be silent before it is a mass loss
	MaxMoves int           // moves in a term; negative: no limit
	Seed     uint64        // decides ties between workers
	Band     int32         // how far from its level a load may be, in millionths
	// FirstMoves is how many moves to a worker may be under way before it has
	// acknowledged a start in the term.
	FirstMoves int
	// InitialWait is how long after the first term workers that are not known yet may run any task.
	InitialWait time.Duration
}

// Fleet is a leader's view of its workers, and of the starts and stops that failed. Use
// New.
type Fleet struct {
	// Workers holds the workers, in ascending order of their serials.
	Workers []*Worker

	cfg      Config
	breakers *breakers
	// started: there was a term with workers. The workers of the first such term are
	// initial.
	started bool
	// waitUntil is the end of the initial wait; zero before the first term and without a wait.
	// waits: the term began before.
	waitUntil time.Time
	waits     bool
	// massLossSince is when too many workers fell silent, and massLossEnded when enough
	// answered again. They are zero without a mass loss. silentSince is when moves for an even
	// spread began to wait for silent workers.
	massLossSince, massLossEnded, silentSince time.Time
	// singleIn is the term in which one copy moves at most: in the one before, moves that all
	// start first waited for each other's room, and one was for an even spread.
	singleIn uint64
	// falls holds the falls of hosts (T17).
	falls map[string]falls
	// runs holds the tasks of each worker as of the last snapshot, which shares it.
	runs [][]int32
	// losses holds, by task, the workers that had its missing instances, oldest first.
	losses map[int32][]loss

	// moved holds the tasks that rest after a move for an even spread by weight; nil before one.
	moved map[int32]moved

	// flags holds the flags of the tasks, by number.
	flags []taskFlags
	// stamps holds the round in which each task was last visited, by number.
	stamps []uint32
	round  uint32

	rules   rules
	storm   storm
	decider decider
}

// New returns a fleet without workers.
func New(cfg Config) *Fleet {
	f := &Fleet{cfg: cfg, losses: make(map[int32][]loss), falls: make(map[string]falls), rules: rules{stale: true}}
	f.breakers = newBreakers(f, cfg.MaxPause)
	return f
}

// taskFlags is the state of a task beyond its workers.
type taskFlags uint8

const (
	// taskSeen: some worker has listed it or acknowledged its start.
	taskSeen taskFlags = 1 << iota
	// taskSuspect: it is outside the plan of the term that is being decided.
	taskSuspect
	// taskLate: some worker failed to stop it, or it failed to start last. Other tasks move before it.
	taskLate
)

// Set is a set of tasks, by number. A nil set is empty.
type Set map[int32]struct{}

func (s Set) add(task int32) { s[task] = struct{}{} }

// sorted returns the members in order.
func (s Set) sorted() []int32 { return slices.Sorted(maps.Keys(s)) }

// State is a worker's state in a term.
type State uint8

// The states of a worker.
const (
	Silent    State = iota // it did not answer; it keeps its tasks
	Answering              // it answers
	Lost                   // it was silent for longer than the grace period
)

// Worker is a leader's view of one worker. Only this package writes its fields.
type Worker struct {
	// Most passes over all workers read only the first fields, so these are close
	// together.

	Serial   uint64 // never reused
	State    State
	Draining bool
	// initial: it was among the first workers, or joined in the initial wait, so it may run tasks of
	// an earlier leader.
	initial bool
	// Heard: it has answered.
	Heard bool
	// Late: this term has no answer, and the call may still be under way.
	Late bool
	// runs holds the tasks of its answer, once each, with the acknowledged writes since.
	// It is replaced, never changed in place: snapshots share it, and ids may.
	runs []int32
	// pins is how many tasks at the end of ids must not move (C8).
	pins int
	unsettled

	// Since is the time of its last answer. Before the first answer it is the time at
	// which the worker was added or, for an initial worker, of the first term with
	// workers.
	Since      time.Time
	took       time.Duration // of the call of its last answer
	ids        []int32       // its last answer
	Duplicates int           // how many of ids repeat an earlier one
	acked      []ack         // the writes acknowledged since ids, oldest first; nil once it is lost
	standing   *Standing     // as of the last snapshot
	Rules      *WorkerRules  // nil: none
	Host       string        // its falls outlive it; "": they do not count
	// OutOfBand is since when every plan has left its weight out of its band; zero: the last did not.
	OutOfBand time.Time
}

// unsettled is the state that few workers have.
type unsettled struct {
	// unsure holds the starts sent since the last answer that were neither acknowledged
	// nor certainly refused.
	unsure Set
	// stops holds the stops that did not succeed, as long as their task is listed. While
	// stopPause holds, none that failed is tried again.
	stops map[int32]*stop
	// restsIn is a term in which it gains nothing, because it could not begin all its starts, or
	// failed several, in the term before.
	restsIn uint64
	// Missed is when a call last failed or used up its timeout, zero if an answer came
	// after that. A worker that missed is silent, not late: a late one may not have
	// been called.
	Missed    time.Time
	stopPause Pause
	hangs     time.Time // when a start that may hang was last tried
	// Stuck: it is silent because an earlier call to it has not returned.
	Stuck bool
}

// clone returns a copy that shares nothing with u.
func (u *unsettled) clone() *unsettled {
	c := *u
	c.unsure, c.stops = maps.Clone(u.unsure), make(map[int32]*stop, len(u.stops))
	for task, s := range u.stops {
		copied := *s
		c.stops[task] = &copied
	}
	return &c
}

// ack is an acknowledged write.
type ack struct {
	task  int32
	start bool // otherwise a stop
}

// Holds returns how many tasks w runs or may run.
func (w *Worker) Holds() int { return len(w.runs) + len(w.unsure) }

// Listed returns the tasks of its last answer, as often as they were listed. They must not
// change.
func (w *Worker) Listed() []int32 { return w.ids }

// Legacy returns, after Retain has removed w, the starts sent to it since its last answer
// that may have happened. The set must not change.
func (w *Worker) Legacy() Set { return w.unsure }

// isFrozen reports whether a worker keeps exactly its tasks, because it has not answered
// this term.
func (w *Worker) isFrozen() bool { return w.State == Silent || w.Late }

// isOpen reports whether a worker may gain and lose tasks, quarantine aside.
func (w *Worker) isOpen() bool {
	return w.State == Answering && !w.Late && !w.Draining
}

// holds returns the tasks that w runs or may run; a task may appear twice.
func (w *Worker) holds() []int32 {
	if len(w.unsure) == 0 {
		return w.runs
	}
	return slices.Concat(w.runs, w.unsure.sorted())
}

// Begin begins a term: old quarantines and falls end. The first call begins the initial wait. The
// members of the term must have been read after now.
func (f *Fleet) Begin(now Moment) {
	if f.cfg.InitialWait > 0 && f.waitUntil.IsZero() {
		f.waitUntil = now.Time.Add(f.cfg.InitialWait)
	}
	f.waits = now.Time.Before(f.waitUntil)
	maps.DeleteFunc(f.falls, func(_ string, x falls) bool { return now.Time.Sub(x.last) >= fallMemory })
	maps.DeleteFunc(f.moved, func(_ int32, m moved) bool { return !m.rests(now) })
	f.breakers.forgetQuarantines(now)
}

// ForgetTasks forgets the failed starts of tasks that are no longer expected, the rules of
// all, and which tasks of other settings workers have rejected.
func (f *Fleet) ForgetTasks(t *Tasks, changed func(task int32) bool) {
	f.rules.stale = true
	f.breakers.forgetTasks(func(task int32) bool { return !t.Expects(task) })
	f.breakers.readmit(func(p taskOn) bool { return changed(p.Task) })
}

// Member is an expected worker.
type Member struct {
	Serial   uint64
	Draining bool
	Rules    *WorkerRules // nil: none
	Host     string       // what falls with it (T17)
}

// Retain removes the workers that are no longer members. Members are in ascending order
// of their serials.
func (f *Fleet) Retain(members []Member, now time.Time) {
	var stay []*Worker
	gone := make(map[uint64]bool)
	for _, w := range f.Workers {
		for len(members) > 0 && members[0].Serial < w.Serial {
			members = members[1:]
		}
		if len(members) > 0 && members[0].Serial == w.Serial {
			stay = append(stay, w)
			continue
		}
		legacy := w.sinceAnswer()
		if len(w.runs) > 0 && !w.Draining {
			f.fall(w, now)
		}
		f.MarkLost(w)
		w.unsure = legacy
		gone[w.Serial] = true
	}
	f.Workers = stay
	f.breakers.forgetWorkers(func(worker uint64) bool { return gone[worker] })
}

// sinceAnswer returns the starts sent to w since its last answer that may have
// happened, and were not followed by an acknowledged stop.
func (w *Worker) sinceAnswer() Set {
	starts := make(Set)
	for _, a := range w.acked {
		if a.start {
			starts.add(a.task)
		} else {
			delete(starts, a.task)
		}
	}
	maps.Copy(starts, w.unsure) // an acknowledged stop removes its task from unsure
	return starts
}

// Join adds the new members, after Retain has removed the others. legacy returns, for the
// member at an index, the legacy of a removed worker of its name. A worker that joins after a term
// of the initial wait is initial, because it may have been added before the end of the wait.
//
// A worker that takes the name of a removed one may run the tasks that were started on
// that one last: if it is removed during a term, and added again for a new process, that
// process receives the term's starts. If they were forgotten with the first worker, and the
// new process did not answer the next List, the tasks would start elsewhere too.
func (f *Fleet) Join(members []Member, now time.Time, legacy func(i int) Set) {
	changed := make(map[uint64]bool)
	for i, m := range members {
		if i == len(f.Workers) {
			w := &Worker{Serial: m.Serial, initial: !f.started || f.waits, Since: now}
			w.unsure = maps.Clone(legacy(i))
			f.Workers = append(f.Workers, w)
		}
		w := f.Workers[i]
		if w.Draining && !m.Draining {
			f.fall(w, now) // undrained
		}
		changed[w.Serial] = w.Rules != m.Rules
		w.Draining, w.Rules, w.Host = m.Draining, m.Rules, m.Host
	}
	f.breakers.readmit(func(p taskOn) bool { return changed[p.Worker] })
	f.rules.stale = true
	f.started = f.started || len(members) > 0
}

// Mark calls f with every task that the fleet refers to.
func (f *Fleet) Mark(mark func(task int32)) {
	for _, w := range f.Workers {
		for _, ids := range [][]int32{w.ids, w.runs, w.unsure.sorted()} {
			for _, id := range ids {
				mark(id)
			}
		}
		for task := range w.stops {
			mark(task)
		}
	}
	for task := range f.breakers.tasks {
		mark(task)
	}
	for p := range f.breakers.left {
		mark(p.Task)
	}
	for p := range f.breakers.rejected {
		mark(p.Task)
	}
	for _, w := range f.breakers.workers {
		for task := range w.failedTasks {
			mark(task)
		}
	}
}

// Free forgets tasks that nothing refers to. Their numbers may stand for other tasks
// later.
func (f *Fleet) Free(tasks []int32) {
	if len(tasks) == 0 {
		return
	}
	for _, id := range tasks {
		delete(f.moved, id)
		delete(f.losses, id)
		if int(id) < len(f.flags) {
			f.flags[id] = 0
		}
	}
}

// neverAnswered returns a worker that may hold any task: an initial one that has not
// answered and is not lost.
func (f *Fleet) neverAnswered() *Worker {
	for _, w := range f.Workers {
		if w.initial && !w.Heard && w.State == Silent {
			return w
		}
	}
	return nil
}

// WaitsUntil returns the end of the initial wait, or zero if the term began later.
func (f *Fleet) WaitsUntil() time.Time {
	if !f.waits {
		return time.Time{}
	}
	return f.waitUntil
}

// bySerial returns the worker with a serial, or nil if it was removed.
func (f *Fleet) bySerial(serial uint64) *Worker {
	i, ok := slices.BinarySearchFunc(f.Workers, serial, func(w *Worker, s uint64) int {
		return cmp.Compare(w.Serial, s)
	})
	if !ok {
		return nil
	}
	return f.Workers[i]
}

// available returns how many workers answer, and how many of them are open.
func (f *Fleet) available() (answering, open int) {
	for _, w := range f.Workers {
		if w.State == Answering {
			answering++
		}
		if w.isOpen() {
			open++
		}
	}
	return answering, open
}

// grow makes room for the flags and stamps of n tasks.
func (f *Fleet) grow(n int) {
	if n > len(f.flags) {
		f.flags = append(f.flags, make([]taskFlags, n-len(f.flags))...)
		f.stamps = append(f.stamps, make([]uint32, n-len(f.stamps))...)
	}
}

// stamp gives the tasks the stamp of a new round, and returns it.
func (f *Fleet) stamp(tasks []int32) uint32 {
	round := f.nextRound()
	for _, id := range tasks {
		f.stamps[id] = round
	}
	return round
}

// nextRound returns a value that no stamp has.
func (f *Fleet) nextRound() uint32 {
	f.round++
	if f.round == 0 { // wrapped around
		clear(f.stamps)
		f.round = 1
	}
	return f.round
}
