package orchestrator

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/handover"
	"github.com/f8949c05/orchestrator/internal/standing"
	"github.com/f8949c05/orchestrator/rebalance"
)

// This file holds the search for probes against one that looks at everything for
// each worker, and so shows what is meant.

// scene is a small fleet in which much has failed, planned up to the probes.
func scene(t *testing.T, r *rand.Rand) *decider[int, int] {
	t.Helper()
	workers, tasks := 2+r.IntN(7), int32(1+r.IntN(14))
	d := &decider[int, int]{fleet: &fleet[int, int]{}, book: standing.New(), expect: &expectation{loaded: true}, term: 6}
	d.fleet.grow(int(tasks))
	for task := range tasks {
		d.expect.instances = append(d.expect.instances, int32(1+r.IntN(3)*r.IntN(2)))
		d.expect.handoffs = append(d.expect.handoffs, HandoffDefault)
		if r.IntN(2) == 0 {
			d.fleet.flags[task] = taskSeen
		}
	}
	for i := range workers {
		w := &worker[int, int]{name: i, serial: uint64(i + 1), state: Answering, heard: true, draining: r.IntN(8) == 0}
		if r.IntN(10) == 0 {
			w.state = Silent
		}
		for task := range tasks {
			if r.IntN(4) == 0 || i == 0 && r.IntN(2) == 0 {
				w.runs = append(w.runs, task)
				d.fleet.flags[task] = taskSeen
			}
		}
		d.fleet.workers = append(d.fleet.workers, w)
	}
	healthy := r.IntN(workers + 1) // and those after it
	for term := range uint64(5) {
		var starts []standing.Start
		for i := range min(healthy, workers) {
			for task := range tasks {
				if r.IntN(6) == 0 && !slices.Contains(d.fleet.workers[i].runs, task) {
					starts = append(starts, standing.Start{
						Pair: standing.Pair{Task: task, Worker: uint64(i + 1)}, Err: errors.New("no"),
					})
				}
			}
		}
		d.book.Learn(term+1, starts,
			func(serial uint64) bool { return len(d.fleet.workers[serial-1].runs) > 0 },
			func(task int32) bool { return d.fleet.flags[task]&taskSeen != 0 })
	}
	d.pose(rebalance.NoLimit)
	plan, err := d.planner.Plan(&d.problem)
	require.NoError(t, err)
	d.take(&plan)
	return d
}

func TestT9_ProbesAreThoseOfTheNaiveSearch(t *testing.T) {
	found := make(map[ChangeKind]int)
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 9))
		d := scene(t, r)
		naive := *d
		naive.out.changes, naive.out.waiting = slices.Clone(d.out.changes), slices.Clone(d.out.waiting)
		planned := slices.Clone(d.out.changes)
		maxMoves := r.IntN(8) - 1

		naiveProbe(&naive, maxMoves)
		d.probe(maxMoves)
		require.Equal(t, naive.out, d.out, "seed %d", seed)
		for i, c := range d.out.changes {
			if i >= len(planned) || c != planned[i] {
				found[c.kind()]++
			}
		}
	}
	for _, kind := range []ChangeKind{
		{Start, ReasonMissing}, {Move, ReasonRebalance}, {Move, ReasonDrain}, {Move, ReasonProbe},
	} {
		require.Greater(t, found[kind], 100, "%v of %v", kind, fmt.Sprint(found))
	}
}

// naiveProbe gives each worker on probation one task.
func naiveProbe(d *decider[int, int], maxMoves int) {
	moves := 0
	for i := range d.out.changes {
		if d.out.changes[i].kind().Op == Move {
			moves++
		}
	}
	taken := make(map[int]bool) // changes that are a probe already
	for i, w := range d.fleet.workers {
		_, probation := d.book.Closed(w.serial, d.term)
		if !probation || w.state != Answering || w.draining {
			continue
		}
		planned := len(d.out.changes)
		at, ok := 0, false
		for trust := failedNowhereElse; !ok && trust <= d.leastTrust(); trust++ {
			at, ok = naiveProbeOf(d, int32(i), trust, taken, maxMoves < 0 || moves < maxMoves)
		}
		if ok && len(d.out.changes) > planned && d.out.changes[at].kind().Op == Move {
			moves++
		}
		if ok {
			taken[at] = true
		}
	}
	d.out.waiting = slices.DeleteFunc(d.out.waiting, func(w waiting) bool { return w.instances == 0 })
}

func naiveProbeOf(d *decider[int, int], i int32, least trust, taken map[int]bool, mayMove bool) (at int, ok bool) {
	w := d.fleet.workers[i]
	may := func(task int32) bool {
		pair := standing.Pair{Task: task, Worker: w.serial}
		switch {
		case slices.Contains(w.runs, task) || d.book.Avoided(pair, d.term):
			return false
		case least == failedNowhereElse:
			return !d.book.FailedElsewhere(pair)
		case least == hasRun:
			return d.fleet.flags[task]&taskSeen != 0
		}
		return true
	}
	if at, ok = naiveRedirect(d, Start, i, may, taken); ok {
		return at, true
	}
	if at, ok = naivePlace(d, i, may, false); ok {
		return at, true
	}
	if at, ok = naiveRedirect(d, Move, i, may, taken); ok || !mayMove {
		return at, ok
	}
	if at, ok = naivePlace(d, i, may, true); ok {
		return at, true
	}
	return naiveSpare(d, i, may)
}

// byTask returns the entries, those of each task together, the tasks in the order
// of their first entries.
func byTask(entries int, taskOf func(entry int) int32) (order []int) {
	for i := range entries {
		for k := i; k < entries; k++ {
			if taskOf(k) == taskOf(i) && !slices.Contains(order, k) {
				order = append(order, k)
			}
		}
	}
	return order
}

func naiveRedirect(d *decider[int, int], op ChangeOp, i int32, may func(int32) bool, taken map[int]bool) (at int, ok bool) {
	var ofKind []int
	for k := range d.out.changes {
		if d.out.changes[k].kind().Op == op {
			ofKind = append(ofKind, k)
		}
	}
	for _, k := range byTask(len(ofKind), func(k int) int32 { return d.out.changes[ofKind[k]].Task }) {
		at := ofKind[k]
		if c := &d.out.changes[at]; !taken[at] && may(c.Task) {
			c.To = i
			return at, true
		}
	}
	return 0, false
}

func naivePlace(d *decider[int, int], i int32, may func(int32) bool, draining bool) (at int, ok bool) {
	var ofKind []*waiting
	for k := range d.out.waiting {
		w := &d.out.waiting[k]
		without := w.reason == ReasonNoWorker || w.reason == ReasonNoOtherWorker || w.reason == ReasonAvoided
		if without && (w.worker != handover.None) == draining {
			ofKind = append(ofKind, w)
		}
	}
	for _, k := range byTask(len(ofKind), func(k int) int32 { return ofKind[k].task }) {
		w := ofKind[k]
		if w.instances == 0 || !may(w.task) {
			continue
		}
		reason := ReasonDrain
		if !draining {
			reason = d.missing(w.task)
			d.out.unplaced--
		}
		d.out.adds++
		d.out.changes = append(d.out.changes, change{
			Change: handover.Change{Task: w.task, From: w.worker, To: i}, reason: reason,
		})
		w.instances--
		return len(d.out.changes) - 1, true
	}
	return 0, false
}

func naiveSpare(d *decider[int, int], i int32, may func(int32) bool) (at int, ok bool) {
	after := make([]int, len(d.fleet.workers))
	for j, w := range d.fleet.workers {
		after[j] = len(w.runs)
	}
	changed := make(map[int32]bool)
	for k := range d.out.changes {
		c := &d.out.changes[k]
		changed[c.Task] = true
		if c.From != handover.None {
			after[c.From]--
		}
		if c.To != handover.None {
			after[c.To]++
		}
	}
	from := -1
	for j, w := range d.fleet.workers {
		if w.state == Answering && !w.draining && int32(j) != i && (from < 0 || after[j] > after[from]) {
			from = j
		}
	}
	if from < 0 || after[from] < after[i]+2 {
		return 0, false
	}
	for _, task := range d.fleet.workers[from].runs {
		if !changed[task] && may(task) {
			d.out.adds++
			d.out.changes = append(d.out.changes, change{
				Change: handover.Change{Task: task, From: int32(from), To: i}, reason: ReasonProbe,
			})
			return len(d.out.changes) - 1, true
		}
	}
	return 0, false
}
