package main

import (
	"context"
	"fmt"

	"github.com/f8949c05/orchestrator"
)

// Whole terms through the public API, names and all, beside the floor.

// terms are the times of whole terms and of their floor.
type terms struct {
	size                   size
	scan, compare, fanOut  samples
	fresh, same            samples // steady
	joined, lost           samples
	joinWrites, lostWrites int
	joinFanOut, lostFanOut samples // as many calls as there were writes
	small, old             size
	smallFresh, oldFresh   samples // steady, at other sizes
}

// leader is an orchestrator and its cluster.
type leader struct {
	*orchestrator.Orchestrator[string, string]
	cluster *cluster
}

func newLeader(ctx context.Context, f fleet, same bool) (leader, error) {
	c := newCluster(f, same)
	o, err := lead(ctx, f, c, f.names())
	return leader{o, c}, err
}

// steady measures a term in which there is nothing to do.
func (l leader) steady(ctx context.Context, name string) entrant {
	return entrant{
		name:  name,
		run:   func() error { return l.NextTerm(ctx) },
		after: func() error { return requireQuiet(l.Orchestrator) },
	}
}

// eventful measures a term after something has happened, and then has the
// workers do what they were told. It leaves the number of writes in writes.
func (l leader) eventful(ctx context.Context, name string, happens func() error, writes *int) entrant {
	return entrant{
		name:   name,
		before: happens,
		run:    func() error { return l.NextTerm(ctx) },
		after: func() error {
			stats := l.LastPlan().Stats
			if stats.Adds == 0 || stats.Adds != stats.LowerBound || stats.Spread > 1 {
				return fmt.Errorf("%d starts where %d would do, spread %d", stats.Adds, stats.LowerBound, stats.Spread)
			}
			if *writes = l.cluster.obey(); *writes < stats.Adds {
				return fmt.Errorf("%d writes for %d starts", *writes, stats.Adds)
			}
			return quietTerm(ctx, l.Orchestrator)
		},
	}
}

// measureTerms measures terms of size s, and steady ones of two other sizes.
func measureTerms(ctx context.Context, cfg config, s, small, old size) (terms, error) {
	cfg.log("terms of %s", s)
	t := terms{size: s, small: small, old: old}
	f := s.even()
	fresh, err := newLeader(ctx, f, false)
	if err != nil {
		return t, err
	}
	same, err := newLeader(ctx, f, true)
	if err != nil {
		return t, err
	}
	smaller, err := newLeader(ctx, small.even(), false)
	if err != nil {
		return t, err
	}
	oldest, err := newLeader(ctx, old.even(), false)
	if err != nil {
		return t, err
	}
	a, b := same.cluster.copies(0), same.cluster.copies(1)
	const guest = "guest"
	joins := func() error {
		fresh.cluster.join(guest)
		return fresh.AddWorker(guest)
	}
	leaves := func() error {
		fresh.RemoveWorker(guest)
		delete(fresh.cluster.hands, guest)
		return nil
	}
	times, err := race(cfg.termRounds, []entrant{
		{name: "scan", run: newScan(f).run},
		{name: "comparison", run: func() error { return compare(a, b) }},
		{name: "fan-out", run: func() error { return fanOut(s.workers) }},
		fresh.steady(ctx, "steady term, fresh lists"),
		same.steady(ctx, "steady term, same lists"),
		fresh.eventful(ctx, "term after one joined", joins, &t.joinWrites),
		{name: "its writes alone", run: func() error { return fanOut(t.joinWrites) }},
		fresh.eventful(ctx, "term after one was lost", leaves, &t.lostWrites),
		{name: "its writes alone", run: func() error { return fanOut(t.lostWrites) }},
		smaller.steady(ctx, "steady term of "+small.String()),
		oldest.steady(ctx, "steady term of "+old.String()),
	})
	if err != nil {
		return t, err
	}
	for i, to := range []*samples{
		&t.scan, &t.compare, &t.fanOut, &t.fresh, &t.same,
		&t.joined, &t.joinFanOut, &t.lost, &t.lostFanOut, &t.smallFresh, &t.oldFresh,
	} {
		*to = times[i]
	}
	return t, nil
}
