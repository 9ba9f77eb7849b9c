//go:build peers

package main

// The comparison of planners, for every size and event.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator/rebalance"
)

// The hard cases, which need a search.

// hardCase is a hard case. prototype is the time of a prototype of the same
// algorithm, in multiples of its scan of a million pairs. The scan took it 8 to 10
// ms, and the cases 15 to 20, 140 to 220 and 40 to 46 ms. Each multiple is the
// larger of two quotients: best time by best scan, and worst time by worst scan.
type hardCase struct {
	name      string
	prototype float64
	fleet     func(size) fleet
}

var hardCases = []hardCase{
	{"1% over-replicated", 2.0, func(s size) fleet { return s.even().hundredthOver() }},
	{"random over-replication", 22, func(s size) fleet { return s.even().scattered(s.instances * 3 / 2) }},
	{"wants near the number of workers", 5.0, func(s size) fleet { return crowded(s.instances/100, 100) }},
}

// hardResult is the result of one hard case.
type hardResult struct {
	hardCase
	pairs, workers int
	scan, ownScan  samples // scan: of the even fleet; ownScan: of the case itself
	took           samples
	outcome        outcome
}

// measureHard measures the hard cases at size s.
func measureHard(cfg config, s size) ([]hardResult, error) {
	var found []hardResult
	even := s.even()
	for _, c := range hardCases {
		cfg.log("hard cases of %s: %s", s, c.name)
		now := c.fleet(s)
		h := hardResult{hardCase: c, pairs: now.pairs(), workers: now.workers()}
		a := now.attempt(false)
		times, err := race(cfg.rounds, []entrant{
			{name: "scan", warm: true, run: newScan(even).run},
			{name: "its scan", warm: true, run: newScan(now).run},
			{name: us, warm: true, run: a.plan},
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		if h.outcome, err = a.judge(true); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		h.scan, h.ownScan, h.took = times[0], times[1], times[2]
		found = append(found, h)
	}
	return found, nil
}

// planned is the result of one planner for one event.
type planned struct {
	took    samples
	outcome outcome
	changes int // starts, moves and stops; counted only in the race against the scan
	tried   bool
}

// plans are the results for one size, by event.
type plans struct {
	size size
	// floors are the results of the race of this library against the scan alone. The
	// scan is of the fleet before the event.
	floors []floor
	// results are those of the race of all planners, by event and planner. They are
	// empty if only this library can take part.
	planners []string
	results  [][]planned
}

// floor is the result of this library for one event, and of the scan in turn with
// it.
type floor struct {
	scan samples
	planned
}

// comparePlanners measures this library against the scan at this size, and then all
// planners against each other. The races are separate, so that the garbage of other
// planners does not affect the floor.
func comparePlanners(ctx context.Context, cfg config, s size) (plans, error) {
	p := plans{size: s}
	before := s.even()
	for _, e := range events {
		if err := ctx.Err(); err != nil {
			return p, err
		}
		cfg.log("plans of %s and the scan: %s", s, e.name)
		f, err := measureFloor(cfg, before, e)
		if err != nil {
			return p, fmt.Errorf("%s, %s: %w", s, e.name, err)
		}
		p.floors = append(p.floors, f)
	}
	if s.copies > 1 {
		return p, nil
	}
	field := cfg.field()
	for _, c := range field {
		p.planners = append(p.planners, c.name)
	}
	for _, e := range events {
		if err := ctx.Err(); err != nil {
			return p, err
		}
		cfg.log("plans of %s: %s", s, e.name)
		results, err := compareAt(cfg, s, before, e, field)
		if err != nil {
			return p, fmt.Errorf("%s, %s: %w", s, e.name, err)
		}
		p.results = append(p.results, results)
	}
	return p, nil
}

// measureFloor measures this library for one event, in turn with the scan. It checks
// the plan after the race, because the check leaves garbage.
func measureFloor(cfg config, before fleet, e event) (floor, error) {
	a := e.to(before).attempt(false)
	times, err := race(cfg.rounds, []entrant{
		{name: "scan", warm: true, run: newScan(before).run},
		{name: us, warm: true, run: a.plan},
	})
	if err != nil {
		return floor{}, err
	}
	o, err := a.judge(true)
	return floor{times[0], planned{took: times[1], outcome: o, changes: a.changes(), tried: true}}, err
}

// compareAt measures all planners for one event.
func compareAt(cfg config, s size, before fleet, e event, field []planner) ([]planned, error) {
	now := e.to(before)
	results := make([]planned, len(field))
	var entrants []entrant
	var taking []int
	for i, c := range field {
		rounds := c.takes(s, e)
		if rounds == 0 {
			continue
		}
		a, err := c.prepare(now, before.workers())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		results[i].tried = true
		entrants = append(entrants, entrant{name: c.name, rounds: rounds, warm: c.warm, run: a.plan, after: func() error {
			o, err := a.judge(c.even)
			results[i].outcome = results[i].outcome.worse(o)
			return err
		}})
		taking = append(taking, i)
	}
	times, err := race(cfg.fieldRounds(s), entrants)
	if err != nil {
		return nil, err
	}
	for k, i := range taking {
		results[i].took = times[k]
	}
	return results, nil
}

// growth holds the time for a larger fleet divided by that for a smaller one, by
// event.
type growth struct{ plan, scan []figure }

// scanBeside returns the growth of the scans measured with that event.
func (g growth) scanBeside(event string) float64 {
	for _, f := range g.scan {
		if f.name == event {
			return f.value
		}
	}
	return 0
}

// measureGrowth plans for two sizes in turn, together with the scans of both.
func measureGrowth(cfg config, small, big size) (growth, error) {
	var g growth
	few, many := small.even(), big.even()
	for _, e := range events {
		cfg.log("growth from %s to %s: %s", small, big, e.name)
		times, err := race(cfg.rounds, []entrant{
			{name: small.String(), warm: true, run: e.to(few).attempt(false).plan},
			{name: big.String(), warm: true, run: e.to(many).attempt(false).plan},
			{name: "scan of " + small.String(), warm: true, run: newScan(few).run},
			{name: "scan of " + big.String(), warm: true, run: newScan(many).run},
		})
		if err != nil {
			return g, fmt.Errorf("growth, %s: %w", e.name, err)
		}
		g.plan = append(g.plan, figure{e.name, ratio(times[1], times[0])})
		g.scan = append(g.scan, figure{e.name, ratio(times[3], times[2])})
	}
	return g, nil
}

// of returns the result of a planner for an event.
func (p plans) of(name string, e event) planned {
	for i, planner := range p.planners {
		for k := range events {
			if planner == name && events[k].name == e.name {
				return p.results[k][i]
			}
		}
	}
	return planned{}
}

// beside returns the result of this library for an event beside the scan.
func (p plans) beside(e event) floor {
	for i := range events {
		if events[i].name == e.name {
			return p.floors[i]
		}
	}
	return floor{}
}

// planFindings are the results about plans alone.
type planFindings struct {
	cfg          config
	one, several []plans // in the order of cfg.plans, and of cfg.copies and cfg.plans
	hard         []hardResult
	growth       growth
	allocs       float64 // of a steady plan
}

func measurePlans(ctx context.Context, cfg config) (planFindings, error) {
	f := planFindings{cfg: cfg}
	var err error
	cfg.log("allocations of a plan of %s", cfg.big)
	if f.allocs, err = planAllocations(cfg.big); err != nil {
		return f, err
	}
	if f.hard, err = measureHard(cfg, cfg.big); err != nil {
		return f, err
	}
	if f.growth, err = measureGrowth(cfg, cfg.small, cfg.big); err != nil {
		return f, err
	}
	for _, copies := range cfg.copies {
		for _, s := range cfg.plans {
			p, err := comparePlanners(ctx, cfg, s.of(copies))
			if err != nil {
				return f, err
			}
			f.several = append(f.several, p)
		}
	}
	for _, s := range cfg.plans {
		p, err := comparePlanners(ctx, cfg, s)
		if err != nil {
			return f, err
		}
		f.one = append(f.one, p)
	}
	return f, nil
}

// planAllocations returns the number of allocations in a steady plan of this size.
func planAllocations(s size) (float64, error) {
	pr := s.even().problem()
	var keeper rebalance.Planner
	var failed error
	n := testing.AllocsPerRun(10, func() {
		_, err := keeper.Plan(pr)
		failed = errors.Join(failed, err)
	})
	return n, failed
}

// perChange is the allowed cost of each change of a bulk change with several copies,
// beyond the scans.
const perChange = 150 * time.Nanosecond

// at returns the comparison of planners at a size.
func (f planFindings) at(s size) plans {
	for _, p := range slices.Concat(f.one, f.several) {
		if p.size == s {
			return p
		}
	}
	return plans{}
}

func (f planFindings) goals() []goal {
	big := f.cfg.big
	one := f.at(big)
	goals := []goal{
		atMost("plan, one instance each: steady, one joins, one lost", "× scan", 2.5, one.inScans(steady, oneJoins, oneLost)...),
		atMost("plan, one instance each: 10% lost, 10% join", "× scan", 3, one.inScans(tenthLost, tenthJoins)...),
		atMost("plan, one instance each: all on one worker", "× scan", 4, one.inScans(allOnOne)...),
	}
	for _, copies := range f.cfg.copies {
		p := f.at(big.of(copies))
		goals = append(goals,
			atMost(fmt.Sprintf("plan, %d instances each: steady, one joins", copies), "× scan", 3, p.inScans(steady, oneJoins)...))
		var bulk []figure
		for _, e := range []event{oneLost, tenthLost, tenthJoins, allOnOne} {
			b := p.beside(e)
			allowed := b.scan.each(func(scan time.Duration) time.Duration { return 3*scan + time.Duration(b.changes)*perChange })
			bulk = append(bulk, figure{e.name, ratio(b.took, allowed)})
		}
		goals = append(goals,
			atMost(fmt.Sprintf("plan, %d instances each: bulk changes", copies), "× (3 scans + 150 ns a change)", 1, bulk...))
	}
	var lead []figure
	for _, e := range events {
		lead = append(lead, figure{e.name, 1 / one.lead(us, e)})
	}
	goals = append(goals,
		faster("plan against franz-go's fastest variant, one instance each, every event", lead...),
		faster("first plan of a new planner against franz-go's fastest variant", figure{cold.name, 1 / one.lead(usAtFirst, cold)}))
	growth := atMost(fmt.Sprintf("growth of a plan from %s to %s", f.cfg.small, big), "× the time", 12, f.growth.plan...)
	growth.Note += fmt.Sprintf("; the scan itself: %s ×", number(f.growth.scanBeside(growth.Note)))
	goals = append(goals, growth, goal{What: "allocations of a steady plan", Measured: number(f.allocs), Op: "<=", Limit: 0})
	for _, h := range f.hard {
		goals = append(goals, atMost("hard case: "+h.name, "× scan", h.prototype, figure{value: ratio(h.took, h.scan)}))
	}
	return goals
}

// inScans returns the time of a plan for each event, in scans.
func (p plans) inScans(of ...event) (found []figure) {
	for _, e := range of {
		f := p.beside(e)
		found = append(found, figure{e.name, ratio(f.took, f.scan)})
	}
	return found
}

// faster returns the goal for the lead over franz-go. figures are the times of this
// library divided by franz-go's.
func faster(what string, figures ...figure) goal {
	least := worstOf(figures)
	return goal{What: what, Measured: number(1 / least.value), Op: ">=", Limit: 5, Unit: "× the speed", Note: least.name}
}

// lead returns the time of franz-go's fastest variant, planning only, divided by that of
// this library.
func (p plans) lead(we string, e event) float64 {
	took := p.of(we, e).took
	return min(ratio(p.of(franzGoOne, e).took, took), ratio(p.of(franzGoMany, e).took, took))
}

func (f planFindings) tables() []table {
	var all []table
	for _, p := range slices.Backward(f.one) { // the largest first
		all = append(all, p.tables()...)
	}
	for _, copies := range f.cfg.copies {
		all = append(all, f.severalCopies(copies)...)
	}
	hard := table{Title: "hard cases, about " + f.cfg.big.String(), Columns: []string{
		"pairs", "workers", "ms", "spread", "moves", "× scan", "× its own scan", "prototype, × scan",
	}}
	for _, h := range f.hard {
		hard.add(h.name, count(h.pairs), count(h.workers), ms(h.took.median()), count(h.outcome.spread), count(h.outcome.moves),
			number(ratio(h.took, h.scan)), number(ratio(h.took, h.ownScan)), number(h.prototype))
	}
	return append(all, hard)
}

// eventTable returns a table with a column for each event.
func eventTable(title string) table {
	t := table{Title: title}
	for _, e := range events {
		t.Columns = append(t.Columns, e.name)
	}
	return t
}

// tables returns the times, spreads, moves and ratios at one size.
func (p plans) tables() []table {
	times, spreads := eventTable("ms, "+p.size.String()), eventTable("spread, "+p.size.String())
	moves, ratios := eventTable("moves, "+p.size.String()), eventTable("times as long as, "+p.size.String())
	var scans, multiples []number
	alone := make([]planned, len(p.floors))
	for i, f := range p.floors {
		scans, multiples = append(scans, ms(f.scan.median())), append(multiples, number(ratio(f.took, f.scan)))
		alone[i] = f.planned
	}
	times.add("the integer scan", scans...)
	add := func(name string, of []planned) {
		times.add(name, each(of, func(d planned) number { return ms(d.took.median()) })...)
		spreads.add(name, each(of, func(d planned) number { return count(d.outcome.spread) })...)
		moves.add(name, each(of, func(d planned) number { return count(d.outcome.moves) })...)
	}
	add(usAlone, alone)
	ratios.add(usAlone+" / the scan", multiples...)
	for k, name := range p.planners {
		of := make([]planned, len(events))
		tried := false
		for n := range events {
			of[n] = p.results[n][k]
			tried = tried || of[n].tried
		}
		if !tried {
			continue
		}
		add(name, of)
		if name == us {
			continue
		}
		var row []number
		for n, e := range events {
			if of[n].tried {
				row = append(row, number(ratio(of[n].took, p.of(us, e).took)))
			} else {
				row = append(row, missing())
			}
		}
		ratios.add(name+" / "+us, row...)
	}
	return []table{times, spreads, moves, ratios}
}

// each returns a figure of each plan, or missing if it was not tried.
func each(of []planned, f func(planned) number) []number {
	figures := make([]number, len(of))
	for i, d := range of {
		figures[i] = missing()
		if d.tried {
			figures[i] = f(d)
		}
	}
	return figures
}

// severalCopies returns the tables about plans with several copies of each task. A
// change is a start, a stop or a move.
func (f planFindings) severalCopies(copies int) []table {
	of := fmt.Sprintf(", %d instances each", copies)
	times, spreads, moves := eventTable("ms"+of), eventTable("spread"+of), eventTable("moves"+of)
	scans, beyond := eventTable("× scan"+of), eventTable("ns a change beyond 3 scans"+of)
	for _, s := range slices.Backward(f.cfg.plans) {
		row := func(t *table, f func(floor) number, floors []floor) {
			var values []number
			for _, floor := range floors {
				values = append(values, f(floor))
			}
			t.add(s.String(), values...)
		}
		floors := f.at(s.of(copies)).floors
		row(&times, func(f floor) number { return ms(f.took.median()) }, floors)
		row(&spreads, func(f floor) number { return count(f.outcome.spread) }, floors)
		row(&moves, func(f floor) number { return count(f.outcome.moves) }, floors)
		row(&scans, func(f floor) number { return number(ratio(f.took, f.scan)) }, floors)
		row(&beyond, func(f floor) number {
			if f.changes == 0 {
				return missing()
			}
			return count(max(0, int(f.took.median()-3*f.scan.median())/f.changes))
		}, floors)
	}
	return []table{times, spreads, moves, scans, beyond}
}
