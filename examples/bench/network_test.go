//go:build peers

package main

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

const (
	latency     = 20 * time.Millisecond
	slowLatency = 100 * latency
)

// distant is a cluster behind a slow network, with Apply. It records when each
// task started.
type distant struct {
	mu     sync.Mutex // never held while time passes
	runs   map[string][]string
	slow   string // the worker whose calls take a hundred times as long
	calls  map[orchestrator.Op]int
	began  time.Time            // the first write of the term
	landed map[string]time.Time // when each task started last
}

var (
	_ orchestrator.Communicator[string, string] = (*distant)(nil)
	_ orchestrator.Applier[string, string]      = (*distant)(nil)
)

func newDistant() *distant {
	return &distant{runs: make(map[string][]string), calls: make(map[orchestrator.Op]int), landed: make(map[string]time.Time)}
}

func (d *distant) travel(ctx context.Context, op orchestrator.Op, worker string) error {
	d.mu.Lock()
	d.calls[op]++
	if op == orchestrator.OpApply && d.began.IsZero() {
		d.began = time.Now()
	}
	takes := latency
	if worker == d.slow {
		takes = slowLatency
	}
	d.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(takes):
		return nil
	}
}

func (d *distant) List(ctx context.Context, worker string) ([]string, error) {
	if err := d.travel(ctx, orchestrator.OpList, worker); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.runs[worker]), nil
}

func (d *distant) Apply(ctx context.Context, worker string, writes []orchestrator.Write[string]) []error {
	errs := make([]error, len(writes))
	if err := d.travel(ctx, orchestrator.OpApply, worker); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	gone := make(map[string]bool)
	for _, w := range writes {
		gone[w.Task] = true
	}
	tasks := slices.DeleteFunc(slices.Clone(d.runs[worker]), func(task string) bool { return gone[task] })
	for _, w := range writes {
		if w.Op == orchestrator.OpAdd {
			tasks = append(tasks, w.Task)
			d.landed[w.Task] = time.Now()
		}
	}
	d.runs[worker] = tasks
	return errs
}

func (d *distant) Add(context.Context, string, string) error    { return errReadOnly }
func (d *distant) Remove(context.Context, string, string) error { return errReadOnly }

// forget clears the records.
func (d *distant) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.calls)
	clear(d.landed)
	d.began = time.Time{}
}

// coldTerm starts all tasks of a fleet of size s on its workers, and returns how
// long that took.
func coldTerm(t *testing.T, s size) (*distant, *orchestrator.Orchestrator[string, string], time.Duration) {
	t.Helper()
	f := s.even()
	d := newDistant()
	o, err := orchestrator.New(d)
	require.NoError(t, err)
	var tasks []orchestrator.Task[string]
	for _, name := range f.names() {
		tasks = append(tasks, orchestrator.Task[string]{Name: name})
	}
	require.NoError(t, o.UpdateTasks(tasks))
	for w := range s.workers {
		require.NoError(t, o.AddWorker(workerName(w)))
	}
	start := time.Now()
	require.NoError(t, o.NextTerm(t.Context()))
	took := time.Since(start)
	require.Len(t, d.landed, s.instances)
	require.LessOrEqual(t, o.LastPlan().Stats.Spread, 1)
	return d, o, took
}

// ideal returns the time of a number of calls without gaps between them.
func ideal(calls int) time.Duration {
	return time.Duration(calls) * latency / callsAtOnce
}

// A cold start makes one List and one Apply for each worker, and takes almost no
// other time.
func TestNetwork_ColdStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := size{100_000, 1_000, 1}
		d, _, took := coldTerm(t, s)
		best := 2 * ideal(s.workers)
		t.Attr(attrCold, took.String())
		t.Attr(attrIdeal, best.String())
		t.Attr(attrCalls, strconv.Itoa(d.calls[orchestrator.OpList]+d.calls[orchestrator.OpApply]))
		require.LessOrEqual(t, float64(took)/float64(best), networkGoal)
		require.Equal(t, map[orchestrator.Op]int{orchestrator.OpList: s.workers, orchestrator.OpApply: s.workers}, d.calls)
	})
}

// The slow worker.
const (
	noWorker = iota
	aSource
	aReceiver
)

// othersMoved makes a few workers join a settled fleet. It returns the time from
// the first write to the last move that does not involve the slow worker.
func othersMoved(t *testing.T, slow int) (took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := size{100_000, 1_000, 1}
		d, o, _ := coldTerm(t, s)
		for w := range networkJoin {
			require.NoError(t, o.AddWorker(workerName(s.workers+w)))
		}
		plan, err := o.Plan(orchestrator.Hypothesis[string, string]{})
		require.NoError(t, err)
		require.NotEmpty(t, plan.Changes)
		d.forget()
		switch slow {
		case aSource:
			d.slow = plan.Changes[0].From
		case aReceiver:
			d.slow = plan.Changes[0].To
		}
		start := time.Now()
		if err := o.NextTerm(t.Context()); slow != aReceiver { // a late new worker makes the term fail
			require.NoError(t, err)
		}
		others := 0
		for _, c := range o.LastPlan().Changes {
			if c.From == d.slow || c.To == d.slow {
				continue
			}
			others++
			require.Equal(t, orchestrator.OutcomeDone, c.Outcome)
			took = max(took, d.landed[c.Task].Sub(d.began))
		}
		require.Positive(t, others)
		require.Less(t, time.Since(start), slowLatency, "the term does not wait for the slow worker")
		time.Sleep(slowLatency) // its List ends
	})
	return took
}

// If calls to one worker take a hundred times as long, the moves of all other
// workers are done as early as without it. The scheduler chooses the order of the
// moves, even in a bubble, so the times may differ by a call or two.
func TestNetwork_NoWorkerWaitsForTheSlowOne(t *testing.T) {
	undelayed := max(othersMoved(t, noWorker), othersMoved(t, noWorker)) // the later of two runs, as below
	others := max(othersMoved(t, aSource), othersMoved(t, aReceiver))
	t.Attr(attrOthers, others.String())
	t.Attr(attrUndelayed, undelayed.String())
	require.LessOrEqual(t, float64(others)/float64(undelayed), networkGoal)
	require.Less(t, others, slowLatency)
}
