package main

import (
	"fmt"
	"time"
)

// The goals. They were set before the code was optimized, and do not move.

// networkGoal limits two ratios. One is the time of a cold start over a slow
// network, divided by the ideal time. The other is the time of the other workers'
// moves with one slow worker, divided by the time without.
const networkGoal = 1.2

// oldSteady is the time of a steady term of the old library at 20k × 200; see cited.
const oldSteady = 4_700 * time.Millisecond

// perChange is the allowed cost of each change of a bulk change with several copies,
// beyond the scans.
const perChange = 150 * time.Nanosecond

// goal is a goal and its measured value.
type goal struct {
	what     string
	measured string
	goal     string
	met      bool
}

// atMost returns a goal for the worst of several figures.
func atMost(what, unit string, limit float64, figures ...figure) goal {
	worst := worstOf(figures)
	g := goal{what, decimal(worst.value) + " " + unit, fmt.Sprintf("at most %g %s", limit, unit), worst.value <= limit}
	if len(figures) > 1 {
		g.measured += " (" + worst.name + ")"
	}
	return g
}

// figure is a measured ratio with a name.
type figure struct {
	name  string
	value float64
}

func worstOf(figures []figure) figure {
	worst := figures[0]
	for _, f := range figures[1:] {
		if f.value > worst.value {
			worst = f
		}
	}
	return worst
}

// goals returns all goals in order.
func (r results) goals() []goal {
	var all []goal
	all = append(all, r.planGoals()...)
	all = append(all, r.termGoals()...)
	all = append(all, r.memoryGoals()...)
	all = append(all, r.largest.goals()...)
	for _, h := range r.hard {
		all = append(all, atMost("hard case: "+h.name+"; the prototype's figure", "× scan", h.prototype,
			figure{h.name, ratio(h.took, h.scan)}))
	}
	all = append(all, r.networkGoals()...)
	all = append(all, r.enlist.goals()...)
	all = append(all, r.etcd.goals()...)
	all = append(all, r.grpc.goals()...)
	return append(all, reactionGoals(r.reactions)...)
}

// inScans returns the time of a plan for each event, in scans.
func (p plans) inScans(of ...event) (found []figure) {
	for _, e := range of {
		f := p.beside(e)
		found = append(found, figure{e.name, ratio(f.took, f.scan)})
	}
	return found
}

func (r results) planGoals() []goal {
	one := r.at(r.cfg.big)
	found := []goal{
		atMost("plan alone, one instance each: steady, one joins, one lost", "× scan", 2.5, one.inScans(steady, oneJoins, oneLost)...),
		atMost("the same: 10% lost, 10% join", "× scan", 3, one.inScans(tenthLost, tenthJoins)...),
		atMost("the same: all on one worker", "× scan", 4, one.inScans(allOnOne)...),
	}
	for _, copies := range r.cfg.copies {
		s := r.cfg.big.of(copies)
		p := r.at(s)
		found = append(found,
			atMost(fmt.Sprintf("plan alone, %d instances each: steady, one joins", s.copies), "× scan", 3, p.inScans(steady, oneJoins)...))
		var bulk []figure
		for _, e := range []event{oneLost, tenthLost, tenthJoins, allOnOne} {
			f := p.beside(e)
			allowed := f.scan.each(func(scan time.Duration) time.Duration { return 3*scan + time.Duration(f.changes)*perChange })
			bulk = append(bulk, figure{e.name, ratio(f.took, allowed)})
		}
		found = append(found, atMost("the same: bulk changes", "× (3 scans + 150 ns a change)", 1, bulk...))
	}
	var lead []figure
	for _, e := range events {
		lead = append(lead, figure{e.name, 1 / one.lead(us, e)})
	}
	first := figure{cold.name, 1 / one.lead(usAtFirst, cold)}
	return append(found,
		faster("against franz-go's fastest variant, one instance each, every event", lead...),
		faster("the same, cold, by the first plan of a new planner", first))
}

// faster returns the goal for the lead over franz-go. figures are our times divided
// by franz-go's.
func faster(what string, figures ...figure) goal {
	least := worstOf(figures)
	lead := 1 / least.value
	return goal{what, fmt.Sprintf("%s × faster (%s)", decimal(lead), least.name), "at least 5 × faster", lead >= 5}
}

// lead returns the time of franz-go's fastest variant, planning only, divided by
// ours.
func (p plans) lead(we string, e event) float64 {
	took := p.of(we, e).took
	return min(ratio(p.of(franzGoOne, e).took, took), ratio(p.of(franzGoMany, e).took, took))
}

func (r results) termGoals() []goal {
	t := r.terms
	var eventful []figure
	for _, s := range []struct {
		lists string
		sequence
	}{{"fresh lists", t.fresh}, {"the very same slices", t.same}} {
		eventful = append(eventful,
			figure{"joined, " + s.lists, ratio(s.joined.less(s.joinCalls), s.steady)},
			figure{"lost, " + s.lists, ratio(s.lost.less(s.lostCalls), s.steady)})
	}
	lead := float64(oldSteady) / float64(t.oldFresh.median())
	plan := atMost("the same, the plan alone", "× the time", 12, r.growth.plan...)
	plan.measured += fmt.Sprintf("; the scan itself: %s ×", decimal(r.growth.scanBeside(worstOf(r.growth.plan).name)))
	return []goal{
		atMost("a whole steady term, names and all, fresh lists", "× (scan + comparison + fan-out)", 2,
			figure{"", ratio(t.fresh.steady, together(t.scan, t.compare, t.fanOut))}),
		atMost("the same, the very same slices", "× (scan + fan-out)", 1.5, figure{"", ratio(t.same.steady, together(t.scan, t.fanOut))}),
		atMost("a whole term after one worker joined or was lost, less the writes themselves", "× the steady one", 1.5, eventful...),
		{
			"a whole steady term, " + r.cfg.old.String() + ", against the old library's " + oldSteady.String(),
			decimal(lead) + " × faster", "at least 1,000 × faster", lead >= 1000,
		},
		atMost(fmt.Sprintf("growth from %s to %s, 10 × the work: a whole steady term", r.cfg.small, r.cfg.big), "× the time", 12,
			figure{"", ratio(t.fresh.steady, t.smallFresh)}),
		plan,
	}
}

func (r results) memoryGoals() []goal {
	return []goal{
		{"allocations of the planner in a steady term", decimal(r.allocs), "none", r.allocs == 0},
		heapGoal("", r.heap),
	}
}

// heapGoal returns the goal for the live heap. of names the fleet unless it is the
// default.
func heapGoal(of string, bytes float64) goal {
	what := "live heap of the orchestrator per instance, without the bytes of names"
	if of != "" {
		what = of + ": " + what
	}
	return goal{what, fmt.Sprintf("%.0f bytes", bytes), "under 160 bytes", bytes < 160}
}

func (r results) networkGoals() []goal {
	if !r.cfg.network {
		return nil
	}
	n := r.network
	return []goal{
		atMost("a cold start over a slow network", "× the ideal", networkGoal, figure{"", float64(n.cold) / float64(n.ideal)}),
		atMost("calls to one worker take 100 times as long: time until all moves of other workers are done", "× the time without a slow worker", networkGoal,
			figure{"", float64(n.others) / float64(n.othersUndelayed)}),
	}
}
