package main

import (
	"context"
	"fmt"

	"github.com/f8949c05/orchestrator"
)

// Whole terms through the public API, names and all, beside the floor.

// terms are the times of whole terms and of their floor.
type terms struct {
	size                  size
	scan, compare, fanOut samples
	fresh, same           sequence // by how the lists come
	small, old            size
	smallFresh, oldFresh  samples // steady, at other sizes
}

// sequence is what one leader goes through.
type sequence struct {
	steady, joined, lost   samples
	joinWrites, lostWrites int
	joinCalls, lostCalls   samples // as many calls that do nothing as there were writes
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

// steady measures a term in which there is nothing to do, right after another.
func (l leader) steady(ctx context.Context, name string) entrant {
	return entrant{
		name:  name,
		warm:  true,
		run:   func() error { return l.NextTerm(ctx) },
		after: func() error { return requireQuiet(l.Orchestrator) },
	}
}

// eventful measures a term after something has happened, right after a steady
// one, and then has the workers do what they were told; and after it as many
// calls as there were writes, whose number it leaves in writes. It follows what
// happened before.
func (l leader) eventful(ctx context.Context, name string, happens func() error, writes *int) []entrant {
	term := entrant{
		name:    name,
		follows: true,
		before: func() error {
			if err := quietTerm(ctx, l.Orchestrator); err != nil {
				return err
			}
			return happens()
		},
		run: func() error { return l.NextTerm(ctx) },
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
	return []entrant{term, {name: "its writes alone", warm: true, follows: true, run: func() error { return fanOut(*writes) }}}
}

// guest is a worker that joins and is lost again.
const guest = "guest"

// sequence measures a steady term, one after a worker has joined, and one after
// it was lost. It has as many entrants as into has places for their times.
func (l leader) sequence(ctx context.Context, lists string, s *sequence) (entrants []entrant, into []*samples) {
	joins := func() error {
		l.cluster.join(guest)
		return l.AddWorker(guest)
	}
	leaves := func() error {
		l.RemoveWorker(guest)
		delete(l.cluster.hands, guest)
		return nil
	}
	entrants = append(entrants, l.steady(ctx, "steady term, "+lists))
	entrants = append(entrants, l.eventful(ctx, "term after one joined, "+lists, joins, &s.joinWrites)...)
	entrants = append(entrants, l.eventful(ctx, "term after one was lost, "+lists, leaves, &s.lostWrites)...)
	return entrants, []*samples{&s.steady, &s.joined, &s.joinCalls, &s.lost, &s.lostCalls}
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
	entrants := []entrant{
		{name: "scan", warm: true, run: newScan(f).run},
		{name: "comparison", warm: true, run: func() error { return compare(a, b) }},
		{name: "fan-out", warm: true, run: func() error { return fanOut(s.workers) }},
		smaller.steady(ctx, "steady term of "+small.String()),
		oldest.steady(ctx, "steady term of "+old.String()),
	}
	into := []*samples{&t.scan, &t.compare, &t.fanOut, &t.smallFresh, &t.oldFresh}
	for _, l := range []struct {
		leader
		lists string
		times *sequence
	}{{fresh, "fresh lists", &t.fresh}, {same, "same lists", &t.same}} {
		more, places := l.sequence(ctx, l.lists, l.times)
		entrants, into = append(entrants, more...), append(into, places...)
	}
	times, err := race(cfg.termRounds, entrants)
	if err != nil {
		return t, err
	}
	for i, to := range into {
		*to = times[i]
	}
	return t, nil
}
