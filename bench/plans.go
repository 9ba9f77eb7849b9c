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
	changes int // starts, moves and stops, where the planner says
	tried   bool
}

// plans are the results for one size: the scan of the fleet before anything
// happened, which is measured beside every event, and for each event what each
// planner did.
type plans struct {
	size     size
	planners []string
	scans    []samples   // by event
	results  [][]planned // by event and planner
}

// comparePlanners runs all that take part at this size.
func comparePlanners(ctx context.Context, cfg config, s size) (plans, error) {
	p := plans{size: s}
	before := s.even()
	field := cfg.field()
	for _, c := range field {
		p.planners = append(p.planners, c.name)
	}
	for _, e := range events {
		if err := ctx.Err(); err != nil {
			return p, err
		}
		cfg.log("plans of %s: %s", s, e.name)
		scan, results, err := compareAt(cfg, s, before, e, field)
		if err != nil {
			return p, fmt.Errorf("%s, %s: %w", s, e.name, err)
		}
		p.scans = append(p.scans, scan)
		p.results = append(p.results, results)
	}
	return p, nil
}

// compareAt has all planners plan for one event.
func compareAt(cfg config, s size, before fleet, e event, field []planner) (samples, []planned, error) {
	now := e.to(before)
	results := make([]planned, len(field))
	entrants := []entrant{{name: "scan", run: newScan(before).run}}
	taking := []int{-1}
	for i, c := range field {
		rounds := c.takes(s, e)
		if rounds == 0 {
			continue
		}
		a, err := c.prepare(now, before.workers())
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", c.name, err)
		}
		results[i].tried = true
		entrants = append(entrants, entrant{name: c.name, rounds: rounds, run: a.plan, after: func() error {
			placed, err := a.placed()
			if err != nil {
				return err
			}
			o, err := judge(a.found, placed)
			if err != nil {
				return err
			}
			if c.even && o.spread > 1 {
				return fmt.Errorf("promised to be even, and has a spread of %d", o.spread)
			}
			if a.changes != nil {
				results[i].changes = a.changes()
			}
			results[i].outcome = results[i].outcome.worse(o)
			return nil
		}})
		taking = append(taking, i)
	}
	times, err := race(cfg.rounds, entrants)
	if err != nil {
		return nil, nil, err
	}
	for k, i := range taking[1:] {
		results[i].took = times[k+1]
	}
	return times[0], results, nil
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

// scan returns what the scan took beside an event.
func (p plans) scan(e event) samples {
	for i := range events {
		if events[i].name == e.name {
			return p.scans[i]
		}
	}
	return nil
}
