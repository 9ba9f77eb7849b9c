package term

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/internal/handover"
)

// maxPauseTerms is the number of terms of the longest pause, but for that of all moves.
const maxPauseTerms = 16

// maxMovesPauseTerms is the number of terms of the longest pause of all moves. Each try
// costs a running task while starts fail everywhere, and a start of any task that is
// missing ends the pause.
const maxMovesPauseTerms = 64

// Moment is when a term runs: its number and its time.
type Moment struct {
	Term uint64
	Time time.Time
}

// Pause leaves something alone until a later term. The zero Pause does not hold.
type Pause struct {
	// Failures counts those in a row that led to the pause.
	Failures int
	// Until is the number of the first term after the pause. by ends the pause earlier
	// than Until, from the second term after the failure on.
	Until uint64
	by    time.Time
	from  uint64
	// number tells the latest failure of a start from those before and after it.
	number uint64
	// Err is the latest failure.
	Err error
}

// active reports whether the pause still holds in the term that runs now.
func (p *Pause) active(now Moment) bool {
	return p.Failures > 0 && now.Term < p.Until && (now.Term <= p.from+1 || now.Time.Before(p.by))
}

// fail records a failure: the pause is the next step of 1, 2, 4, 8 and more terms, at
// most most, and no longer than longest. Failures in one term count once.
func (p *Pause) fail(now Moment, longest time.Duration, err error, most uint64) {
	p.Err = err
	if p.Failures > 0 && p.from == now.Term {
		return
	}
	p.Failures++
	p.hold(now, longest, min(1<<min(p.Failures-1, 16), most))
}

// hold begins a pause of a number of terms.
func (p *Pause) hold(now Moment, longest time.Duration, length uint64) {
	p.from = now.Term
	p.Until = now.Term + 1 + length
	p.by = now.Time.Add(longest)
}

// restart begins the pause again in this term, if it began before the last one.
func (p *Pause) restart(now Moment, longest time.Duration) {
	if now.Term > p.from+1 {
		p.hold(Moment{now.Term - 1, now.Time}, longest, pauseTerms(p.Failures))
	}
}

// pauseTerms returns the number of terms of a step.
func pauseTerms(step int) uint64 {
	return min(uint64(1)<<min(max(step, 1)-1, 16), maxPauseTerms)
}

// PauseKind is what a pause applies to.
type PauseKind string

// The kinds of pauses.
const (
	PauseWorker PauseKind = "worker" // the worker is quarantined
	PauseTask   PauseKind = "task"   // the task is suspect; the worker is the one on which it failed last
	PauseStart  PauseKind = "start"  // starts of the task on the worker
	PauseStop   PauseKind = "stop"   // stops of the task on the worker
	PauseMoves  PauseKind = "moves"  // all moves
	PauseFallen PauseKind = "fallen" // the worker fell (T17); Ends is its end
)

// Paused is something that terms leave alone for a while. Worker is an index into the
// fleet. None stands for a worker or task that the kind does not have, and for a worker
// that was removed.
type Paused struct {
	Kind         PauseKind
	Worker, Task int32
	Pause
	Ends time.Time // of PauseFallen
}

// Paused lists the active pauses, and all those of quarantined workers, suspects and
// failed stops.
func (f *Fleet) Paused(now Moment) (all []Paused) {
	add := func(kind PauseKind, worker, task int32, p Pause, ends time.Time) {
		all = append(all, Paused{Kind: kind, Worker: worker, Task: task, Pause: p, Ends: ends})
	}
	none, fallen := handover.None, f.fallen(now.Time)
	for i, w := range f.Workers {
		if ends, ok := fallen[i]; ok {
			n := f.falls[w.Host].count
			add(PauseFallen, int32(i), none, Pause{Failures: n, Err: fmt.Errorf("fell %d times, less than ten minutes apart", n)}, ends)
		}
		if len(w.stops) == 0 {
			continue // most do, and the keys of an empty map allocate
		}
		for _, task := range slices.Sorted(maps.Keys(w.stops)) {
			if s := w.stops[task]; s.failures > 0 {
				add(PauseStop, int32(i), task, Pause{Until: w.stopPause.Until, Failures: s.failures, Err: s.err}, time.Time{})
			}
		}
	}
	if f.breakers.empty() {
		return all
	}
	index := make(map[uint64]int32, len(f.Workers))
	for i, w := range f.Workers {
		index[w.Serial] = int32(i)
		if p, ok := f.breakers.quarantined(w.Serial); ok {
			add(PauseWorker, int32(i), none, p, time.Time{})
		}
	}
	at := func(serial uint64) int32 {
		if i, ok := index[serial]; ok {
			return i
		}
		return none
	}
	suspects := make(map[int32]bool)
	for _, s := range f.breakers.suspects() {
		add(PauseTask, at(s.Last), s.Task, s.Pause, time.Time{})
		suspects[s.Task] = true
	}
	for pair, p := range f.breakers.pairs() {
		if !suspects[pair.Task] && p.active(now) {
			add(PauseStart, at(pair.Worker), pair.Task, p, time.Time{})
		}
	}
	if p := f.breakers.moves; p.Failures > 0 {
		add(PauseMoves, none, none, p, time.Time{})
	}
	return all
}
