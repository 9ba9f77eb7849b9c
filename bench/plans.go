package main

import (
	"context"
	"fmt"
)

// The comparison of planners: every size, every event.

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
