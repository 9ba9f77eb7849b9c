package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/rebalance"
)

// Whole terms through the public API, with names, beside the floor.

// terms are the times of whole terms and of their floor.
type terms struct {
	size                  size
	scan, compare, fanOut samples
	fresh, same           sequence // fresh lists, or the same slices
	small, old            size
	smallFresh, oldFresh  samples // steady, at other sizes
}

// sequence holds the times of one leader's terms.
type sequence struct {
	steady, joined, lost   samples
	joinWrites, lostWrites int
	joinCalls, lostCalls   samples // as many calls that do nothing as the term made writes
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

// steady measures a term without changes, right after another.
func (l leader) steady(ctx context.Context, name string) entrant {
	return entrant{
		name:  name,
		warm:  true,
		run:   func() error { return l.NextTerm(ctx) },
		after: func() error { return requireQuiet(l.Orchestrator) },
	}
}

// eventful measures a term after an event, which follows a steady term, and then
// applies the writes. A second entrant makes as many calls that do nothing as there
// were writes. The number is stored in writes.
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
				return fmt.Errorf("%d starts, want %d, spread %d", stats.Adds, stats.LowerBound, stats.Spread)
			}
			if *writes = l.cluster.obey(); *writes < stats.Adds {
				return fmt.Errorf("%d writes for %d starts", *writes, stats.Adds)
			}
			return quietTerm(ctx, l.Orchestrator)
		},
	}
	return []entrant{term, {name: "its writes alone", warm: true, follows: true, run: func() error { return fanOut(*writes) }}}
}

// guestName is the worker that joins and is lost again.
const guestName = "guest"

// sequence measures a steady term, one after a worker has joined, and one after it
// was lost. entrants and into have the same length and order.
func (l leader) sequence(ctx context.Context, lists string, s *sequence) (entrants []entrant, into []*samples) {
	joins := func() error {
		l.cluster.join(guestName)
		return l.AddWorker(guestName)
	}
	leaves := func() error {
		l.RemoveWorker(guestName)
		delete(l.cluster.hands, guestName)
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

// largest is a fleet ten times as large as that of the other goals. It holds a
// steady term, its floor, and the live heap.
type largest struct {
	size
	scan, compare, fanOut, steady samples
	heap                          float64 // bytes for each instance
}

func measureLargest(ctx context.Context, cfg config) (l largest, err error) {
	l.size = cfg.largest
	cfg.log("heap of %s", l.size)
	if l.heap, err = heapPerInstance(ctx, l.size); err != nil {
		return l, err
	}
	cfg.log("terms of %s; heap: %.0f bytes an instance", l.size, l.heap)
	f := l.even()
	leader, err := newLeader(ctx, f, false)
	if err != nil {
		return l, err
	}
	a, b := leader.cluster.copies(0), leader.cluster.copies(1)
	times, err := race(cfg.largestRounds, []entrant{
		{name: "scan", warm: true, run: newScan(f).run},
		{name: "comparison", warm: true, run: func() error { return compare(a, b) }},
		{name: "fan-out", warm: true, run: func() error { return fanOut(l.workers) }},
		leader.steady(ctx, "steady term of "+l.String()),
	})
	if err != nil {
		return l, err
	}
	l.scan, l.compare, l.fanOut, l.steady = times[0], times[1], times[2], times[3]
	return l, nil
}

// partLargest is the part about the largest fleet.
var partLargest = part{head: "## The largest fleet", goal: "the largest fleet, "}

func runLargest(ctx context.Context, cfg config, file string) error {
	l, err := measureLargest(ctx, cfg)
	if err != nil {
		return err
	}
	var b strings.Builder
	l.write(&b)
	return partLargest.put(file, b.String(), l.goals())
}

func (l largest) goals() []goal {
	return []goal{
		atMost(partLargest.goal+l.String()+": a whole steady term, names and all, fresh lists", "× (scan + comparison + fan-out)", 2,
			figure{"", ratio(l.steady, together(l.scan, l.compare, l.fanOut))}),
		heapGoal(partLargest.goal+"the same", l.heap),
	}
}

func (l largest) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n## The largest fleet\n\n%s, one instance each, fresh lists; the floor is that of [whole terms](#whole-terms).\n\n", l.size)
	t := table{{"", "ms"}}
	t.row("the integer scan", millis(l.scan.median()))
	t.row("every reported name compared with the last report", millis(l.compare.median()))
	t.row(fmt.Sprintf("%s calls that do nothing, %d at a time, a deadline each", grouped(l.workers), callsAtOnce), millis(l.fanOut.median()))
	t.row("a steady term", millis(l.steady.median()))
	t.into(b)
}

// Memory: the allocations of a steady plan, and the live heap of an orchestrator.

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

// lists is a Communicator whose slices only the orchestrator keeps. The bytes of the
// names belong to lists.
type lists map[string][]string

var _ orchestrator.Communicator[string, string] = lists{}

// List returns a copy.
func (l lists) List(_ context.Context, worker string) ([]string, error) {
	return slices.Clone(l[worker]), nil
}

var errReadOnly = errors.New("no write expected")

// Add is never called.
func (l lists) Add(context.Context, string, string) error { return errReadOnly }

// Remove is never called.
func (l lists) Remove(context.Context, string, string) error { return errReadOnly }

// heapPerInstance returns the number of bytes that an orchestrator of this size
// keeps per instance after a few terms.
func heapPerInstance(ctx context.Context, s size) (float64, error) {
	f := s.even()
	c := make(lists, f.workers())
	names := f.names()
	for w, list := range f.held {
		tasks := make([]string, len(list))
		for i, t := range list {
			tasks[i] = names[t]
		}
		c[workerName(w)] = tasks
	}
	with, err := heapWhileLed(ctx, f, c, names)
	if err != nil {
		return 0, err
	}
	without := liveHeap()
	runtime.KeepAlive(names)
	runtime.KeepAlive(c)
	runtime.KeepAlive(f)
	return float64(with-without) / float64(f.pairs()), nil
}

// heapWhileLed returns the live heap while an orchestrator exists.
func heapWhileLed(ctx context.Context, f fleet, c lists, names []string) (int64, error) {
	o, err := lead(ctx, f, c, names)
	if err != nil {
		return 0, err
	}
	with := liveHeap()
	runtime.KeepAlive(o)
	return with, nil
}

// liveHeap returns the number of bytes in use after a collection.
func liveHeap() int64 {
	for range 3 { // three times, because of finalizers
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
