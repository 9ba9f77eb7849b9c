package term

import (
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/internal/handover"
)

// maxPauseTerms is the number of terms of the longest pause, but for that of all moves.
const maxPauseTerms = 16

// maxOutagePauseTerms is the number of terms of the longest pause of a suspect that timed
// out while all moves pause. It is shorter, because a try that comes just before starts
// work again takes a whole timeout, which is added to the pause.
const maxOutagePauseTerms = 8

// maxSkippedPauseTerms is the number of terms of the longest pause of a suspect that times
// out, after a try that was skipped.
const maxSkippedPauseTerms = 4

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

// alignLater makes a pause that has just begun end in a term whose number is a multiple of
// its length, after at least half of that length. So tries that take a whole timeout share
// one long term.
func (p *Pause) alignLater(now Moment) {
	if length := pauseTerms(p.Failures); length > 1 {
		p.Until = nextMultiple(now.Term+length/2, length)
	}
}

// align makes the pause end in a term whose number is a multiple of its length.
func (p *Pause) align(now Moment, longest time.Duration, step int, most uint64) {
	p.hold(now, longest, 0)
	p.Until = nextMultiple(now.Term, min(pauseTerms(step), most))
}

// nextMultiple returns the first multiple of length after a term.
func nextMultiple(term, length uint64) uint64 { return (term/length + 1) * length }

// pauseTerms returns the number of terms of a step.
func pauseTerms(step int) uint64 {
	return min(uint64(1)<<min(max(step, 1)-1, 16), maxPauseTerms)
}

// PauseKind is what a pause applies to.
type PauseKind uint8

// The kinds of pauses.
const (
	PauseWorker PauseKind = iota // the worker is quarantined
	PauseTask                    // the task is suspect; the worker is the one on which it failed last
	PauseStart                   // starts of the task on the worker
	PauseStop                    // stops of the task on the worker
	PauseMoves                   // all moves
)

// Paused is something that terms leave alone for a while. Worker is an index into the
// fleet. None stands for a worker or task that the kind does not have, and for a worker
// that was removed.
type Paused struct {
	Kind         PauseKind
	Worker, Task int32
	Pause
}

// Paused lists the active pauses, and all those of quarantined workers, suspects and
// failed stops.
func (f *Fleet) Paused(now Moment) (all []Paused) {
	for i, w := range f.Workers {
		for _, task := range slices.Sorted(maps.Keys(w.stops)) {
			if s := w.stops[task]; s.failures > 0 {
				p := Pause{Until: w.stopPause.Until, Failures: s.failures, Err: s.err}
				all = append(all, Paused{PauseStop, int32(i), task, p})
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
			all = append(all, Paused{PauseWorker, int32(i), handover.None, p})
		}
	}
	at := func(serial uint64) int32 {
		if i, ok := index[serial]; ok {
			return i
		}
		return handover.None
	}
	suspects := make(map[int32]bool)
	for _, s := range f.breakers.suspects() {
		all = append(all, Paused{PauseTask, at(s.Last), s.Task, s.Pause})
		suspects[s.Task] = true
	}
	for pair, p := range f.breakers.pairs() {
		if !suspects[pair.Task] && p.active(now) {
			all = append(all, Paused{PauseStart, at(pair.Worker), pair.Task, p})
		}
	}
	if p := f.breakers.moves; p.Failures > 0 {
		all = append(all, Paused{PauseMoves, handover.None, handover.None, p})
	}
	return all
}
