package test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// The lasting_*_test.go files hold the tests of faults that do not end: what is
// healthy must run, move and drain while they last. This file holds what those
// tests share: a leader under Run, scripted latencies, and the figures.

// tick is the time between two terms of a service.
const tick = time.Second

// long is the duration above which these tests count a term as long.
const long = 2 * time.Second

// service is a fleet whose terms Run starts.
type service struct {
	*fleet
	diary *diary
}

// newService starts the workers w1, w2, … and a leader that knows them. Its
// terms begin with start.
func newService(t *testing.T, workers int, opts ...option) *service {
	t.Helper()
	return newServiceOn(t, newFleet, workers, opts...)
}

// newServiceOn is newService with a fleet that newFleet or newBatchFleet starts.
func newServiceOn(t *testing.T, start func(*testing.T, int, ...option) *fleet, workers int, opts ...option) *service {
	t.Helper()
	d := &diary{began: time.Now()}
	return &service{start(t, workers, append(opts, orchestrator.WithStats(d.note))...), d}
}

// start calls Run, which ends with the test.
func (s *service) start(every time.Duration) {
	s.t.Helper()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(s.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx, every)
	}()
	s.t.Cleanup(func() {
		cancel(errShutdown)
		<-done
	})
}

// all returns the terms so far.
func (d *diary) all() []orchestrator.TermStats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.terms)
}

// longTerms counts the long ones among terms.
func longTerms(terms []orchestrator.TermStats) (n int) {
	for _, s := range terms {
		if s.Total > long {
			n++
		}
	}
	return n
}

// observe adds a task every 3.7 seconds until 100 more terms have ended. It
// returns how many of them were long, and the median time that the new tasks
// waited until they ran.
func (s *service) observe() (longs int, median time.Duration) {
	s.t.Helper()
	first := len(s.diary.all())
	added := make(map[string]time.Time)
	for len(s.diary.all()) < first+100 {
		require.Less(s.t, len(added), 10_000, "Run starts no terms")
		name := fmt.Sprint("new", len(added)+1)
		added[name] = time.Now()
		require.NoError(s.t, s.AddTask(name))
		time.Sleep(3700 * time.Millisecond)
	}
	longs = longTerms(s.diary.all()[first : first+100])
	end := time.Now()
	started := s.firstStarts()
	var waits []time.Duration
	for name, at := range added {
		ran, ok := started[name]
		if !ok {
			ran = end
		}
		waits = append(waits, ran.Sub(at))
	}
	slices.Sort(waits)
	median = waits[len(waits)/2]
	s.t.Logf("long terms: %d of 100; a new task waited %v in the median, %v at most", longs, median, waits[len(waits)-1])
	return longs, median
}

// requireShortTerms checks the figures of observe against the promise of T3: at
// most a fifth of the terms are long, and a new task waits two seconds.
func (s *service) requireShortTerms() {
	s.t.Helper()
	longs, median := s.observe()
	require.LessOrEqual(s.t, longs, 20, "long terms")
	require.LessOrEqual(s.t, median, 2*time.Second, "wait of a new task")
}

// firstStarts returns when each task ran for the first time.
func (f *fleet) firstStarts() map[string]time.Time {
	first := make(map[string]time.Time)
	for _, e := range f.Events() {
		if _, ok := first[e.Task]; !ok && e.Task != "" {
			first[e.Task] = e.Time
		}
	}
	return first
}

// missing counts the instances of expected tasks that do not run.
func (f *fleet) missing() (n int) {
	for _, task := range f.ListExpectedTasks() {
		n += max(0, task.Instances-len(f.Running(task.Name)))
	}
	return n
}

// untilAllRun returns how long it takes until every expected task runs. It
// gives up after limit, and returns limit.
func (f *fleet) untilAllRun(limit time.Duration) time.Duration {
	f.t.Helper()
	began := time.Now()
	for time.Since(began) < limit && f.missing() > 0 {
		time.Sleep(tick)
		synctest.Wait()
	}
	f.t.Logf("all run after %v, %d missing", time.Since(began), f.missing())
	return time.Since(began)
}

// steadyTerm runs a term, whatever fails in it, and waits a tick.
func (f *fleet) steadyTerm() {
	f.t.Helper()
	f.forget()
	_ = f.NextTerm(f.t.Context())
	time.Sleep(tick)
}

// pass waits d, or until ctx ends; it then returns the cause.
func pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// slowLists returns a tap that delays the nth List of a worker by what delay
// returns. The first List of each worker has n = 0.
func slowLists(delay func(worker string, n int) time.Duration) func(context.Context, call) error {
	var mu sync.Mutex
	lists := make(map[string]int)
	return func(ctx context.Context, c call) error {
		if c.Op != orchestrator.OpList {
			return nil
		}
		mu.Lock()
		n := lists[c.Worker]
		lists[c.Worker]++
		mu.Unlock()
		return pass(ctx, delay(c.Worker, n))
	}
}

// on returns a tap that asks fault about the calls that match: op, and worker
// and task where they are not empty.
func on(op orchestrator.Op, worker, task string, fault func(context.Context) error) func(context.Context, call) error {
	return func(ctx context.Context, c call) error {
		if c.Op == op && (worker == "" || c.Worker == worker) && (task == "" || c.Task == task) {
			return fault(ctx)
		}
		return nil
	}
}
