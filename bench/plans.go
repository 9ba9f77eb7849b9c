package main

import (
	"context"
	"fmt"
)

// The comparison of planners: every size, every event.

// planned is what one planner did with one event.
type planned struct {
	took    samples
	outcome outcome
	changes int // starts, moves and stops; known beside the scan
	tried   bool
}

// plans are the results for one size, by event.
type plans struct {
	size size
	// floors is the race of this library against the scan alone. The
	// scan is that of the fleet before anything happened.
	floors []floor
	// results is the race of the whole field, by event and planner; empty where
	// only this library can take part.
	planners []string
	results  [][]planned
}

// floor is what this library did with one event, and the scan in turn with it.
type floor struct {
	scan samples
	planned
}

// comparePlanners measures this library against the scan at this size, and then
// all that can take part against each other: so that nobody's garbage meets the
// floor.
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

// measureFloor has this library plan for one event, in turn with the scan. The
// plan is checked when the race is over: the check would leave garbage in it.
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

// compareAt has all planners plan for one event.
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

// growth is how many times as long a larger fleet takes as a smaller one, by
// event.
type growth struct{ plan, scan []figure }

// scanBeside returns what the scans grew by, measured beside that event.
func (g growth) scanBeside(event string) float64 {
	for _, f := range g.scan {
		if f.name == event {
			return f.value
		}
	}
	return 0
}

// measureGrowth has this library plan for two sizes in turn, and has the scans of
// both take turns with it.
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

// of returns what the planner of that name did with an event.
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

// beside returns what this library did with an event beside the scan.
func (p plans) beside(e event) floor {
	for i := range events {
		if events[i].name == e.name {
			return p.floors[i]
		}
	}
	return floor{}
}
