package term

import (
	"maps"
	"slices"

	"github.com/f8949c05/orchestrator/internal/breaker"
	"github.com/f8949c05/orchestrator/internal/handover"
)

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
// fleet. Worker and Task are None if the kind has none, or the worker was removed.
type Paused struct {
	Kind         PauseKind
	Worker, Task int32
	breaker.Pause
}

// Paused lists the active pauses, and all those of quarantined workers, suspects and
// failed stops.
func (f *Fleet) Paused(now breaker.Moment) (all []Paused) {
	for i, w := range f.Workers {
		if len(w.stops) == 0 {
			continue
		}
		for _, task := range slices.Sorted(maps.Keys(w.stops)) {
			if s := w.stops[task]; s.failures > 0 {
				p := breaker.Pause{Until: w.stopPause.Until, Failures: s.failures, Err: s.err}
				all = append(all, Paused{PauseStop, int32(i), task, p})
			}
		}
	}
	if f.Breakers.Empty() {
		return all
	}
	index := make(map[uint64]int32, len(f.Workers))
	for i, w := range f.Workers {
		index[w.Serial] = int32(i)
		if p, ok := f.Breakers.Quarantined(w.Serial); ok {
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
	for _, s := range f.Breakers.Suspects() {
		all = append(all, Paused{PauseTask, at(s.Last), s.Task, s.Pause})
		suspects[s.Task] = true
	}
	for pair, p := range f.Breakers.Pairs() {
		if !suspects[pair.Task] && p.Active(now) {
			all = append(all, Paused{PauseStart, at(pair.Worker), pair.Task, p})
		}
	}
	if p := f.Breakers.Moves(); p.Failures > 0 {
		all = append(all, Paused{PauseMoves, handover.None, handover.None, p})
	}
	return all
}
