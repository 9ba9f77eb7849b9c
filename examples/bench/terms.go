//go:build peers

package main

// Whole terms through the public API, with names, beside the floor.

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// terms are the times of whole terms and of their floor.
type terms struct {
	size                  size
	scan, compare, fanOut samples
	fresh, same           sequence // fresh lists, or the same slices
	small, old            size
	smallFresh, oldFresh  samples // steady, at other sizes
	heap                  float64 // bytes for each instance
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

// sequence measures a steady term, one after a worker has joined, and one after it
// was lost. entrants and into have the same length and order.
func (l leader) sequence(ctx context.Context, lists string, s *sequence) (entrants []entrant, into []*samples) {
	// Each that joins has a name of its own: one that falls twice would be paused (T17).
	joiner, n := "", 0
	joins := func() error {
		n++
		joiner = fmt.Sprint("joiner-", n)
		l.cluster.join(joiner)
		return l.AddWorker(joiner)
	}
	leaves := func() error {
		l.RemoveWorker(joiner)
		delete(l.cluster.workers, joiner)
		return nil
	}
	entrants = append(entrants, l.steady(ctx, "steady term, "+lists))
	entrants = append(entrants, l.eventful(ctx, "term after one joined, "+lists, joins, &s.joinWrites)...)
	entrants = append(entrants, l.eventful(ctx, "term after one was lost, "+lists, leaves, &s.lostWrites)...)
	return entrants, []*samples{&s.steady, &s.joined, &s.joinCalls, &s.lost, &s.lostCalls}
}

// measureTerms measures terms of a big fleet, and steady ones of two smaller fleets.
func measureTerms(ctx context.Context, cfg config) (terms, error) {
	s, small, old := cfg.big, cfg.small, cfg.old
	t := terms{size: s, small: small, old: old}
	cfg.log("heap of %s", s)
	heap, err := heapPerInstance(ctx, s)
	if err != nil {
		return t, err
	}
	t.heap = heap
	cfg.log("terms of %s", s)
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
	}{{fresh, freshLists, &t.fresh}, {same, sameSlices, &t.same}} {
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

func (l largest) goals() []goal {
	return []goal{
		atMost("steady term of "+l.String()+", "+freshLists, "× (scan + comparison + fan-out)", 2,
			figure{value: ratio(l.steady, together(l.scan, l.compare, l.fanOut))}),
		heapGoal(l.size, l.heap),
	}
}

func (l largest) tables() []table {
	t := table{Title: l.String() + ", fresh lists", Columns: []string{"ms"}}
	floorRows(&t, l.scan, l.compare, l.fanOut)
	t.add("a steady term", ms(l.steady.median()))
	return []table{t}
}

// floorRows adds the floor of a term.
func floorRows(t *table, scan, compare, fanOut samples) {
	t.add("the integer scan", ms(scan.median()))
	t.add("every name compared with the last report", ms(compare.median()))
	t.add("calls that do nothing, one for each worker", ms(fanOut.median()))
}

// oldSteady is the time of a steady term of go-orchestrator at 20k × 200, measured
// earlier, on another machine.
const oldSteady = 4_700 * time.Millisecond

// The two ways in which workers return their lists.
const (
	freshLists = "fresh lists"
	sameSlices = "the very same slices"
)

func (t terms) goals() []goal {
	var eventful []figure
	for _, s := range []struct {
		lists string
		sequence
	}{{freshLists, t.fresh}, {sameSlices, t.same}} {
		eventful = append(eventful,
			figure{"joined, " + s.lists, ratio(s.joined.less(s.joinCalls), s.steady)},
			figure{"lost, " + s.lists, ratio(s.lost.less(s.lostCalls), s.steady)})
	}
	return []goal{
		atMost("steady term of "+t.size.String()+", "+freshLists, "× (scan + comparison + fan-out)", 2,
			figure{value: ratio(t.fresh.steady, together(t.scan, t.compare, t.fanOut))}),
		atMost("steady term of "+t.size.String()+", "+sameSlices, "× (scan + fan-out)", 1.5,
			figure{value: ratio(t.same.steady, together(t.scan, t.fanOut))}),
		atMost("term after one worker joined or was lost, less the writes themselves", "× the steady one", 1.5, eventful...),
		{
			What: "steady term of " + t.old.String() + ", against go-orchestrator's " + oldSteady.String(), Op: ">=", Limit: 1000,
			Measured: number(oldSteady) / number(t.oldFresh.median()), Unit: "× the speed",
		},
		atMost(fmt.Sprintf("growth of a steady term from %s to %s", t.small, t.size), "× the time", 12,
			figure{value: ratio(t.fresh.steady, t.smallFresh)}),
		heapGoal(t.size, t.heap),
	}
}

// heapGoal returns the goal for the live heap.
func heapGoal(s size, bytes float64) goal {
	return goal{
		What: "live heap of the orchestrator for each instance of " + s.String() + ", without the bytes of names", Op: "<", Limit: 160,
		Measured: number(bytes), Unit: "bytes",
	}
}

func (t terms) tables() []table {
	floor := table{Title: "floor and other sizes", Columns: []string{"ms"}}
	floorRows(&floor, t.scan, t.compare, t.fanOut)
	floor.add("a steady term of "+t.small.String(), ms(t.smallFresh.median()))
	floor.add("a steady term of "+t.old.String(), ms(t.oldFresh.median()))
	whole := table{Title: "ms, " + t.size.String(), Columns: []string{
		"steady", "one joined", "its writes alone (joined)", "writes (joined)", "one lost", "its writes alone (lost)", "writes (lost)",
	}}
	for _, s := range []struct {
		lists string
		sequence
	}{{freshLists, t.fresh}, {sameSlices, t.same}} {
		whole.add(s.lists, ms(s.steady.median()),
			ms(s.joined.median()), ms(s.joinCalls.median()), count(s.joinWrites),
			ms(s.lost.median()), ms(s.lostCalls.median()), count(s.lostWrites))
	}
	return []table{floor, whole}
}

// The live heap of an orchestrator.

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
