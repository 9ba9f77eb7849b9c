package rebalance_test

// How far the plans of problems without rules are from the joint minimum, where the minimum is
// not promised.

import (
	"fmt"
	"slices"

	"github.com/f8949c05/orchestrator/rebalance"
)

// gap is the distance of a plan from the joint minimum, if that is not promised.
type gap struct {
	class string // what restricts the problem; empty if the minimum is promised
	judgement
}

// The values of gap.class.
const (
	byQuarantined = "quarantined workers"
	byForbidden   = "forbidden pairs"
	byPinned      = "pinned copies"
	bySeveral     = "several of these"
)

var restrictions = []string{byQuarantined, byForbidden, byPinned, bySeveral}

// restriction returns what restricts a problem, empty if nothing does.
func (r *reading) restriction() string {
	class := ""
	for _, by := range []struct {
		is   bool
		name string
	}{{len(r.quarantined) > 0, byQuarantined}, {len(r.forbidden) > 0, byForbidden}, {r.isPinned && !r.plain(), byPinned}} {
		switch {
		case by.is && class == "":
			class = by.name
		case by.is:
			class = bySeveral
		}
	}
	return class
}

// The starts above the fewest that are accepted, as measured over millions of problems: with the
// choices that the planner makes first as given, and in all. One in ten starts may come on top.
const (
	acceptGiven = 12
	acceptAbove = 25
)

// distance compares with the joint minimum if something restricts the plan.
func (o *outcome) distance() (g gap, err error) {
	g.class = o.restriction()
	if o.plain() && !o.isPinned || o.plan.Deferred > 0 {
		return g, nil
	}
	if err := o.accept(o.given(), acceptGiven+o.plan.Adds/10); err != nil {
		return g, err
	}
	whole := &ruled{outcome: o, zones: 1}
	if g.judgement, err = whole.judge(); err != nil || o.chooses() && g.fault != placesLess && g.fault != staysMore {
		return g, err
	}
	return g, o.accept(whole, acceptAbove+o.plan.Adds/10)
}

// accept returns the fault of a plan, unless that is at most so many starts above the fewest.
func (o *outcome) accept(r *ruled, most int) error {
	j, err := r.judge()
	switch {
	case err != nil:
		return err
	case j.fault == boundAbove:
		return fmt.Errorf("P8: lower bound %d, but %d starts are enough", o.plan.LowerBound, j.starts)
	case j.fault != noFault && j.fault != startsMore:
		return fmt.Errorf("P9: %s", j.fault)
	case o.plain() && o.plan.LowerBound != int(j.starts):
		return fmt.Errorf("P8: lower bound %d, the minimum is %d", o.plan.LowerBound, j.starts)
	case o.plain() && j.above > 0, int(j.above) > most:
		return fmt.Errorf("P3: %d starts, %d are enough", o.plan.Adds, j.starts)
	}
	return nil
}

// chooses reports whether the planner makes a choice first: what quarantined workers keep, or
// which pinned copies of a wanted task stop.
func (o *outcome) chooses() bool {
	return len(o.quarantined) > 0 || slices.ContainsFunc(o.plan.Changes, func(c rebalance.Change) bool {
		return c.From != none && o.pinned[c.From][c.Task] && o.pr.Want[c.Task] > 0
	})
}

// given returns the outcome with these choices as given.
func (o *outcome) given() *ruled {
	pr := clone(o.pr)
	for _, w := range o.quarantined {
		pr.States[w] = rebalance.Frozen
	}
	g := *o
	g.reading = read(pr)
	for t := range g.target {
		g.target[t] = o.onOpen[t] + o.onDraining[t]
		for w := range g.pinned {
			if g.pinned[w][t] && !o.after[w][t] {
				g.held[w][t], g.pinned[w][t] = false, false
			}
		}
	}
	return &ruled{outcome: &g, zones: 1}
}

// tally sums up the gaps of many problems of one class.
type tally struct {
	problems int
	measured int   // those whose distance from the minimum is known
	starts   int64 // the fewest in these
	above    int64 // starts above the fewest, in these
	worst    int64 // the most of them in one problem
}

func (t *tally) add(g gap) {
	t.problems++
	if g.isKnown && slices.Contains([]fault{noFault, startsMore, boundAbove}, g.fault) {
		t.measured++
		t.starts += g.starts
		t.above += g.above
		t.worst = max(t.worst, g.above)
	}
}
