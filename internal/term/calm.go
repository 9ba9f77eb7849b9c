package term

// Calm: when moves for an even spread wait (T16), and which workers must first show that they
// stay (T17).

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/internal/handover"
)

// calm is how long moves for an even spread wait for silent workers. Then one term moves.
const calm = time.Minute

// Hold is why moves for an even spread wait: a text, or silent workers.
type Hold struct {
	Why    string
	Silent []int32 // indices into the fleet
	Until  time.Time
}

// holds returns why moves for an even spread wait in this term.
func (d *decider) holds() []Hold {
	holds := slices.Clone(d.expect.Holds)
	f, now := d.fleet, d.now.Time
	var silent []int32
	for i, w := range f.Workers {
		if w.State == Silent && !w.Stuck && w.Holds() > 0 {
			silent = append(silent, int32(i))
		}
	}
	switch {
	case silent == nil:
		f.silentSince = time.Time{}
		return holds
	case f.silentSince.IsZero():
		f.silentSince = now
	}
	until := f.silentSince.Add(calm)
	if end := f.massLossSince.Add(massLossHold); !f.massLossSince.IsZero() && end.After(until) {
		until = end
	}
	if now.Before(until) {
		holds = append(holds, Hold{Silent: silent, Until: until})
	}
	return holds
}

// The pauses after falls. A fall is forgotten after fallMemory.
const (
	fallMemory = 10 * time.Minute
	fallPause  = 30 * time.Second // after the second fall, and twice as long after each more
)

// falls counts the falls of a host. It does not change.
type falls struct {
	count int
	last  time.Time
	// worker is the serial of the one that fell last, and newest the highest serial at that time.
	worker, newest uint64
	// back is since when a worker of the host answers; zero: it does not since the last fall.
	back time.Time
}

// fall records that a worker left its tasks, or was given up. Other workers of the host that were
// there at its last fall count no fall more: one crash of a machine is one fall.
func (f *Fleet) fall(w *Worker, now time.Time) {
	before := f.falls[w.Host]
	if now.Sub(before.last) >= fallMemory {
		before = falls{}
	}
	if w.Host == "" || w.Serial <= before.newest && w.Serial != before.worker {
		return
	}
	x := falls{count: before.count + 1, last: now, worker: w.Serial}
	if n := len(f.Workers); n > 0 {
		x.newest = f.Workers[n-1].Serial
	}
	f.falls[w.Host] = x
}

// pause returns how long the host gains nothing for an even spread since it is back: not longer
// than its falls are remembered.
func (x falls) pause(longest time.Duration) time.Duration {
	if x.count < 2 {
		return 0
	}
	return min(fallPause<<min(x.count-2, 16), longest, x.last.Add(fallMemory).Sub(x.back))
}

// isBack records that a worker answers, before its state changes. If its host has stayed for twice
// its pause, the falls are forgotten.
func (f *Fleet) isBack(w *Worker, now time.Time) {
	if len(f.falls) == 0 {
		return
	}
	x, ok := f.falls[w.Host]
	switch {
	case !ok:
	case w.State != Answering || x.back.IsZero():
		x.back = now
		f.falls[w.Host] = x
	case x.count > 1 && now.Sub(x.back) >= 2*x.pause(f.cfg.MaxPause):
		delete(f.falls, w.Host)
	}
}

// fallen returns the open workers that gain nothing for an even spread, by index, with the end
// of their pauses: none if they are more than half of the open ones.
func (f *Fleet) fallen(now time.Time) map[int]time.Time {
	if len(f.falls) == 0 {
		return nil
	}
	_, open := f.available()
	fallen := make(map[int]time.Time)
	for i, w := range f.Workers {
		x := f.falls[w.Host]
		if until := x.back.Add(x.pause(f.cfg.MaxPause)); w.isOpen() && now.Before(until) {
			fallen[i] = until
		}
	}
	if 2*len(fallen) > open {
		return nil
	}
	return fallen
}

// placeOnFallen places instances on workers that pause after falls, if no other worker may run them.
// If there are such workers, it takes a pass over all instances.
func (d *decider) placeOnFallen() {
	if len(d.fallen) > 0 {
		d.placeWaiting(slices.Sorted(maps.Keys(d.fallen)), d.loadsAfter(), math.MaxInt, func(int32) bool { return true })
	}
}

// placeWaiting places instances without a place, missing ones and those on draining workers, on some
// workers, by index, the least loaded first, and at most a number of them. It returns how many. after
// holds the loads, by worker.
func (d *decider) placeWaiting(workers, after []int, most int, suits func(task int32) bool) (placed int) {
	slices.SortStableFunc(workers, func(v, w int) int { return cmp.Compare(after[v], after[w]) })
	for i := range d.out.Waiting {
		w := d.out.Waiting[i]
		missing := w.Worker == handover.None
		if w.Reason != ReasonNoWorker && !slices.Contains(unplaced, w.Reason) || !suits(w.Task) ||
			!missing && (!d.fleet.Workers[w.Worker].Draining || w.Reason == ReasonPaused || d.budget() <= 0) {
			continue
		}
		for ; w.Instances > 0 && placed < most; w.Instances-- {
			on := d.without(w.Task, w.Worker)
			k := slices.IndexFunc(workers, func(at int) bool { return d.mayStart(w.Task, at, on, after) })
			if k < 0 {
				break
			}
			best := workers[k]
			if missing {
				reason, loser := d.startReason(w.Task)
				d.add(w.Task, handover.None, int32(best), reason, loser)
				d.out.Unplaced--
				d.out.Waiting[i].Instances--
			} else {
				d.add(w.Task, w.Worker, int32(best), ReasonDrain, 0)
			}
			after[best]++
			for ; k+1 < len(workers) && after[workers[k+1]] < after[best]; k++ {
				workers[k], workers[k+1] = workers[k+1], best
			}
			placed++
		}
	}
	return placed
}
