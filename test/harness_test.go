package test

// The harness of this package: a leader with its cluster, how to run its terms, and what
// to check. wire_test.go holds the calls between the two.

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timeout is the communicator timeout where a test gives none.
const timeout = 10 * time.Second

// The library's types, as the tests use them.
type (
	option    = orchestrator.Option
	task      = orchestrator.Task[string]
	member    = orchestrator.Worker[string]
	plan      = orchestrator.Plan[string, string]
	change    = orchestrator.Change[string, string]
	waiting   = orchestrator.Waiting[string, string]
	callError = orchestrator.CallError[string, string]
)

// options are options of a leader.
type options = []option

// given describes a fleet at the start of a test: the workers w1, w2, … and a leader
// that knows them, with the tasks t1, t2, ….
type given struct {
	workers  int
	expected int     // tasks, before the first term
	running  int     // tasks, after a first term without failures
	applier  bool    // the Communicator is an Applier; otherwise each write is a call
	opts     options // of the leader
}

// fleet is a leader and the cluster that it leads, with the methods of both. It lives
// inside a bubble of testing/synctest, and ends with its test.
type fleet struct {
	*memory.Cluster[string, string]
	*orchestrator.Orchestrator[string, string]
	*wire
	t       *testing.T
	workers []string
	log     *logs     // of the leader, every level
	terms   *termList // of the leader
}

// newFleet starts a fleet.
func newFleet(t *testing.T, g given) *fleet {
	t.Helper()
	w := newWire(t)
	if g.applier {
		return newFleetOn(t, w, &batchWire{w}, g)
	}
	return newFleetOn(t, w, w, g)
}

// newFleetOn starts a fleet whose leader calls comm.
func newFleetOn(t *testing.T, w *wire, comm orchestrator.Communicator[string, string], g given) *fleet {
	t.Helper()
	w.cluster.Start(names("w", g.workers)...)
	f := &fleet{
		Cluster: w.cluster, wire: w, t: t, workers: names("w", g.workers),
		log: &logs{}, terms: &termList{began: time.Now()},
	}
	f.lead(comm, append(options{orchestrator.WithStats(f.terms.add)}, g.opts...))
	f.expect(max(g.expected, g.running))
	if g.running > 0 {
		f.term()
		f.forget()
	}
	return f
}

// lead gives the fleet a new leader that knows its workers.
func (f *fleet) lead(comm orchestrator.Communicator[string, string], opts options) {
	f.t.Helper()
	var err error
	f.Orchestrator, err = orchestrator.New(comm,
		append(options{orchestrator.WithSeed(0), orchestrator.WithLogger(f.log.logger())}, opts...)...)
	require.NoError(f.t, err)
	for _, name := range f.workers {
		require.NoError(f.t, f.AddWorker(name))
	}
}

// bubble returns a test that gets a fleet, in a bubble of testing/synctest.
func bubble(g given, test func(t *testing.T, f *fleet)) func(*testing.T) {
	return func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, newFleet(t, g)) })
	}
}

// inBubble runs the test that bubble returns.
func inBubble(t *testing.T, g given, test func(t *testing.T, f *fleet)) {
	t.Helper()
	bubble(g, test)(t)
}

// bothWires returns a test that gets a fleet in a bubble, twice: with a Communicator that
// makes each write a call, and with one that is an Applier.
func bothWires(g given, test func(t *testing.T, f *fleet)) func(*testing.T) {
	return func(t *testing.T) {
		t.Run("calls", bubble(g, test))
		g := g
		g.applier = true
		t.Run("batches", bubble(g, test))
	}
}

// onBothWires runs the test that bothWires returns.
func onBothWires(t *testing.T, g given, test func(t *testing.T, f *fleet)) {
	t.Helper()
	bothWires(g, test)(t)
}

// successor returns a new leader of the same workers and tasks, with a higher epoch, that
// has not run a term yet.
func (f *fleet) successor(opts ...option) *fleet {
	f.t.Helper()
	time.Sleep(time.Millisecond)
	next := *f
	next.lead(f.wire, opts)
	require.NoError(f.t, next.UpdateTasks(f.ListExpectedTasks()))
	return &next
}

// expect adds the tasks t1, t2, … up to n.
func (f *fleet) expect(n int, opts ...orchestrator.TaskOption) {
	f.t.Helper()
	for _, name := range names("t", n) {
		require.NoError(f.t, f.AddTask(name, opts...))
	}
}

// join starts workers and adds them to the leader.
func (f *fleet) join(workers ...string) {
	f.t.Helper()
	f.Start(workers...)
	for _, name := range workers {
		require.NoError(f.t, f.AddWorker(name))
		if !slices.Contains(f.workers, name) {
			f.workers = append(f.workers, name)
		}
	}
}

// term runs a term without failures.
func (f *fleet) term() {
	f.t.Helper()
	require.NoError(f.t, f.NextTerm(f.t.Context()))
}

// freshTerm forgets the calls so far and runs a term without failures.
func (f *fleet) freshTerm() {
	f.t.Helper()
	f.forget()
	f.term()
}

// beginTerm begins a term, and returns when it waits for calls. The term's error arrives
// on the channel.
func (f *fleet) beginTerm() (result <-chan error) {
	done := make(chan error, 1)
	go func() { done <- f.NextTerm(f.t.Context()) }()
	synctest.Wait()
	return done
}

// timedTerm runs a term, and returns how long it took, and its error.
func (f *fleet) timedTerm() (time.Duration, error) {
	began := time.Now()
	err := f.NextTerm(f.t.Context())
	return time.Since(began), err
}

// failingTerm runs a term that has failures, and returns them.
func (f *fleet) failingTerm() []*callError {
	f.t.Helper()
	return failures(f.t, f.NextTerm(f.t.Context()))
}

// failures returns the failures of a term that returned err.
func failures(t *testing.T, err error) []*callError {
	t.Helper()
	term, ok := errors.AsType[*orchestrator.TermError](err)
	require.True(t, ok, "not a *TermError: %v", err)
	var found []*callError
	for _, failure := range term.Failures {
		if c, ok := errors.AsType[*callError](failure); ok {
			found = append(found, c)
		}
	}
	return found
}

// heal restores the network and runs a term in which silent workers answer. The term may
// continue before they have answered, so it may have failures.
func (f *fleet) heal() {
	f.Heal()
	synctest.Wait()
	_ = f.NextTerm(f.t.Context())
	synctest.Wait()
}

// failAdds makes the given workers, or all if none is given, answer every Add with err,
// without an effect.
func (f *fleet) failAdds(err error, workers ...string) {
	f.Refuse(func(op orchestrator.Op, worker, _ string) error {
		if op == orchestrator.OpAdd && (len(workers) == 0 || slices.Contains(workers, worker)) {
			return err
		}
		return nil
	})
}

// refuse makes workers answer calls of op with err, without an effect: the calls to
// worker and of task, unless these are empty.
func (f *fleet) refuse(op orchestrator.Op, worker, task string, err error) {
	f.Refuse(func(o orchestrator.Op, w, t string) error {
		if o == op && (worker == "" || w == worker) && (task == "" || t == task) {
			return err
		}
		return nil
	})
}

// state returns how the last term saw a worker.
func (f *fleet) state(worker string) orchestrator.WorkerState[string, string] {
	f.t.Helper()
	for _, s := range f.LastActual() {
		if s.Name == worker {
			return s
		}
	}
	require.Fail(f.t, "no such worker", worker)
	return orchestrator.WorkerState[string, string]{}
}

// loads returns how many tasks really run on each worker, w1 first.
func (f *fleet) loads() []int {
	loads := make([]int, len(f.workers))
	for i, name := range f.workers {
		loads[i] = len(f.RunsOn(name))
	}
	return loads
}

// spread returns the difference between the largest and the smallest load.
func spread(loads []int) int { return slices.Max(loads) - slices.Min(loads) }

// changesOf returns what the last term did with a task.
func (f *fleet) changesOf(name string) []change {
	return filter(f.LastPlan().Changes, func(c change) bool { return c.Task == name })
}

// moves returns the moves of the last term.
func (f *fleet) moves() []change {
	return filter(f.LastPlan().Changes, func(c change) bool { return c.Kind.Op == orchestrator.Move })
}

// outcomes counts the changes of the last term by outcome.
func (f *fleet) outcomes() map[orchestrator.Outcome]int {
	counts := make(map[orchestrator.Outcome]int)
	for _, c := range f.LastPlan().Changes {
		counts[c.Outcome]++
	}
	return counts
}

// requireSettled checks that every task really runs on as many workers as wanted, and
// that another term without failures changes nothing.
func (f *fleet) requireSettled() {
	f.t.Helper()
	f.requireAllRun()
	f.requireQuiet(1)
}

// requireQuiet checks that the given number of terms have no failure and write nothing.
func (f *fleet) requireQuiet(terms int) {
	f.t.Helper()
	f.forget()
	for range terms {
		f.term()
	}
	require.Empty(f.t, f.writes())
}

// requireAllRun checks that every task really runs on as many workers as wanted.
func (f *fleet) requireAllRun() {
	f.t.Helper()
	for _, task := range f.ListExpectedTasks() {
		require.Len(f.t, f.Running(task.Name), task.Instances, "task %s", task.Name)
	}
}

// requireNeverTwice checks that no task with a single instance has ever run on two
// workers at the same time.
func (f *fleet) requireNeverTwice() {
	f.t.Helper()
	for _, task := range f.ListExpectedTasks() {
		require.LessOrEqual(f.t, f.Counts(task.Name).Most, 1, "task %s", task.Name)
	}
}

// tick is the time between two terms that start calls Run with.
const tick = time.Second

// long is the duration above which these tests count a term as long.
const long = 2 * time.Second

// start calls Run. stop cancels Run's context, waits, and returns Run's error. It is
// called at the end of the test at the latest.
func (f *fleet) start(every time.Duration) (stop func(cause error) error) {
	f.t.Helper()
	ctx, cancel := context.WithCancelCause(f.t.Context())
	result := make(chan error, 1)
	go func() { result <- f.Run(ctx, every) }()
	wait := sync.OnceValue(func() error { return <-result })
	stop = func(cause error) error {
		cancel(cause)
		return wait()
	}
	f.t.Cleanup(func() { _ = stop(nil) })
	return stop
}

// termList records the terms of a leader. Its add is for WithStats.
type termList struct {
	began time.Time
	mu    sync.Mutex
	stats []orchestrator.TermStats
}

func (l *termList) add(s orchestrator.TermStats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats = append(l.stats, s)
}

// all returns the terms so far.
func (l *termList) all() []orchestrator.TermStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.stats)
}

// starts returns when the terms began, counted from the creation of the leader.
func (l *termList) starts() []time.Duration {
	all := make([]time.Duration, 0, len(l.all()))
	for _, s := range l.all() {
		all = append(all, s.Start.Sub(l.began))
	}
	return all
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

// observe adds a task every 3.7 seconds until 100 more terms have ended. It returns how
// many of them were long, and how long each new task waited until it ran.
func (f *fleet) observe() (longs int, waits []time.Duration) {
	f.t.Helper()
	first := len(f.terms.all())
	added := make(map[string]time.Time)
	for len(f.terms.all()) < first+100 {
		require.Less(f.t, len(added), 10_000, "Run starts no terms")
		name := fmt.Sprint("new", len(added)+1)
		added[name] = time.Now()
		require.NoError(f.t, f.AddTask(name))
		time.Sleep(3700 * time.Millisecond)
	}
	longs = longTerms(f.terms.all()[first : first+100])
	end := time.Now()
	started := f.firstStarts()
	for name, at := range added {
		ran, ok := started[name]
		if !ok {
			ran = end
		}
		waits = append(waits, ran.Sub(at))
	}
	f.t.Logf("long terms: %d of 100; a new task waited %v in the median, %v at most", longs, median(waits), slices.Max(waits))
	return longs, waits
}

// median sorts waits and returns the middle one.
func median(waits []time.Duration) time.Duration {
	slices.Sort(waits)
	return waits[len(waits)/2]
}

// requireShortTerms checks the figures of observe against the promise of T3: at
// most a fifth of the terms are long, and a new task waits two seconds.
func (f *fleet) requireShortTerms() {
	f.t.Helper()
	longs, waits := f.observe()
	require.LessOrEqual(f.t, longs, 20, "long terms")
	require.LessOrEqual(f.t, median(waits), 2*time.Second, "wait of a new task")
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

// steadyTerm runs a term, with or without failures, and waits a tick.
func (f *fleet) steadyTerm() {
	f.t.Helper()
	f.forget()
	_ = f.NextTerm(f.t.Context())
	time.Sleep(tick)
}

// pass waits d, or until ctx ends; it then returns the cause.
func pass(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil // a select on a timer that is due may crash Go 1.26.8 in a bubble, with -race
	}
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

// on returns a tap that calls fault for the calls of op to worker and of task, unless
// these are empty.
func on(op orchestrator.Op, worker, task string, fault func(context.Context) error) func(context.Context, call) error {
	return func(ctx context.Context, c call) error {
		if c.Op == op && (worker == "" || c.Worker == worker) && (task == "" || c.Task == task) {
			return fault(ctx)
		}
		return nil
	}
}

// onWrites is on for every operation but List.
func onWrites(fault func(context.Context) error) func(context.Context, call) error {
	return func(ctx context.Context, c call) error {
		if c.Op == orchestrator.OpList {
			return nil
		}
		return fault(ctx)
	}
}

// fails returns a fault that returns err.
func fails(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

// takes returns a fault that delays the call by d, even if its context ends.
func takes(d time.Duration) func(context.Context) error {
	return func(context.Context) error { time.Sleep(d); return nil }
}

// names returns prefix1, prefix2, … up to n.
func names(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(prefix, i+1)
	}
	return all
}

// took runs f and says how long that took.
func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// filter returns the elements for which keep returns true.
func filter[T any](all []T, keep func(T) bool) (found []T) {
	for _, x := range all {
		if keep(x) {
			found = append(found, x)
		}
	}
	return found
}

// total returns the sum of counts.
func total[K comparable](counts map[K]int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// cancelledAfter returns a context that ends with a cause after d.
func cancelledAfter(t *testing.T, d time.Duration, cause error) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(d, func() { cancel(cause) })
	t.Cleanup(func() { timer.Stop() })
	return ctx
}

// goroutines returns the number of goroutines in the bubble, once all of them wait.
func goroutines() int {
	synctest.Wait()
	dump := make([]byte, 1<<20)
	dump = dump[:runtime.Stack(dump, true)]
	return len(regexp.MustCompile(`(?m)^goroutine .*synctest bubble`).FindAll(dump, -1))
}

// falls makes a worker fall n times, with up seconds between. It ends up.
func (f *fleet) falls(worker string, n int) {
	for range n {
		f.Kill(worker)
		f.RemoveWorker(worker)
		time.Sleep(2 * time.Second)
		f.Start(worker)
		require.NoError(f.t, f.AddWorker(worker))
		time.Sleep(2 * time.Second)
	}
}
