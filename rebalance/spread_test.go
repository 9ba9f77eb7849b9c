package rebalance_test

import (
	"fmt"

	"github.com/f8949c05/orchestrator/rebalance"
)

// This file checks P2 and P3: how even a plan is, and how many starts it has.

// growth checks what the quarantined workers gain: no more than makes the spread
// even, unless no open worker could have it; and if nothing else changes, as much as
// that, as far as Gain and the tasks of the fullest worker allow.
func (o *outcome) growth() error {
	if o.plan.Deferred > 0 || len(o.open) == 0 {
		return nil
	}
	fullest, settled := o.open[0], true
	for _, w := range o.open {
		if o.loads[w] > o.loads[fullest] {
			fullest = w
		}
	}
	for i, c := range o.plan.Changes {
		if c.To == rebalance.None || o.pr.States[c.To] != rebalance.Quarantined {
			settled = false
			continue
		}
		if t := int(c.Task); o.loads[c.To] > o.loads[fullest]+1 && o.target[t] <= o.places(t)+o.kept[t] {
			return fmt.Errorf("P2: change %d, %+v, gives the quarantined worker %d, no open one has more than %d", i, c, o.loads[c.To], o.loads[fullest])
		}
	}
	if !o.free() || !settled {
		return nil
	}
	for _, w := range o.quarantined {
		if o.gained[w] >= o.gain(w) || o.loads[w]+2 > o.loads[fullest] {
			continue
		}
		for t, runs := range o.after[fullest] {
			if runs && o.mayGain(w, t) && !o.after[w][t] && o.held[fullest][t] {
				return fmt.Errorf("P2: quarantined worker %d ends with %d and gains %d of %d, worker %d has %d, among them task %d",
					w, o.loads[w], o.gained[w], o.gain(w), fullest, o.loads[fullest], t)
			}
		}
	}
	return nil
}

// places is how many open workers may run a task.
func (r *reading) places(task int) (n int) {
	for _, w := range r.open {
		if r.mayRun(w, task) {
			n++
		}
	}
	return n
}

// level checks that quarantined workers keep their share: they lose no more than
// makes the spread even, and keep more only if each open worker has a copy.
func (o *outcome) level() error {
	if !o.free() || o.gains || o.plan.Deferred > 0 || len(o.open) == 0 {
		return nil
	}
	least, most := o.tasks, 0
	for _, w := range o.open {
		least, most = min(least, o.loads[w]), max(most, o.loads[w])
	}
	for _, w := range o.quarantined {
		for t, runs := range o.after[w] {
			if runs && o.loads[w] > least+1 && o.onOpen[t] < len(o.open) {
				return fmt.Errorf("P2: quarantined worker %d keeps %d, among them task %d, an open one has %d", w, o.loads[w], t, least)
			}
		}
	}
	for i, c := range o.plan.Changes {
		if c.From != rebalance.None && c.Reason == rebalance.Rebalance && o.pr.States[c.From] == rebalance.Quarantined && o.loads[c.From] < most-1 {
			return fmt.Errorf("P2: change %d, %+v, leaves the quarantined worker with %d, an open one has %d", i, c, o.loads[c.From], most)
		}
	}
	return nil
}

// spread checks P2, P3 and P8 where they are promised to the unit: nothing
// restricts the open workers. What the quarantined ones keep and gain is taken as
// given.
func (o *outcome) spread() error {
	if !o.free() || o.plan.Deferred > 0 {
		return nil
	}
	n := 0
	for _, p := range o.onOpen {
		n += p
	}
	for _, w := range o.open {
		if low := n / len(o.open); o.loads[w] != low && (o.loads[w] != low+1 || n%len(o.open) == 0) {
			return fmt.Errorf("P2: worker %d is to run %d of %d on %d workers", w, o.loads[w], n, len(o.open))
		}
	}
	adds, ok := fewestAdds(o.reading, o.onOpen)
	adds += o.grown
	switch {
	case !ok:
		return fmt.Errorf("P3: the reference finds no assignment")
	case o.plan.Adds != adds && !o.gains: // what they gain from open workers decides which copies these keep
		return fmt.Errorf("P3: %d adds, %d are enough", o.plan.Adds, adds)
	case o.plan.LowerBound > adds || o.plain() && o.plan.LowerBound != adds:
		return fmt.Errorf("P8: lower bound %d, the minimum is %d", o.plan.LowerBound, adds)
	}
	return nil
}
