package lives

// A fleet in a bubble: its workers, which live and die, and their leader. Its methods are
// the events of a life.

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

const (
	tick  = time.Second
	lease = 10 * time.Second
	// quiet is how long a fleet starts nothing until its life is over. It exceeds all pauses
	// and holds of a leader, which last a minute at most.
	quiet = 70 * time.Second
)

// kind says which rules a fleet has.
type kind int

const (
	plain   kind = iota
	zones        // two copies of each task, in different zones
	weights      // Pareto weights, the heaviest about 50 times the least
	labels       // two pools of workers, with a quarter of the tasks each; the others run anywhere
)

var kinds = [...]string{plain: "plain", zones: "zones", weights: "weights", labels: "labels"}

// size is the size of a fleet. The zones are those of the workers, over and over.
type size struct {
	workers, copies int
	zones           string
	timeout         time.Duration // of a call; 0: the default
}

// fleet is a leader with its workers, in a bubble of testing/synctest.
type fleet struct {
	*orchestrator.Orchestrator[string, string]
	size
	kind   kind
	t      *testing.T
	random *rand.Rand

	mu      sync.Mutex // guards the fields below
	workers map[string]*worker
	counters
}

// worker is a worker, which may be down. One that hangs runs its tasks and answers no call.
type worker struct {
	number    int // that in its name
	nth       int // of all workers
	up, hangs bool
	slow      time.Duration // how much longer List takes
	tasks     []string      // the slice is never changed in place
	lease     *time.Timer   // runs from a crash on, and then removes the worker
}

// newFleet starts a fleet, without the leader's terms.
func newFleet(t *testing.T, k kind, s size) *fleet {
	f := &fleet{
		size: s, kind: k, t: t, random: rand.New(rand.NewPCG(1, 11)),
		workers: make(map[string]*worker), counters: counters{tasks: make(map[string]*task)},
	}
	var err error
	f.Orchestrator, err = orchestrator.New(&network{f}, orchestrator.WithSeed(1), orchestrator.WithEpoch(1),
		orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved),
		orchestrator.WithCommunicatorTimeout(cmp.Or(s.timeout, 10*time.Second)))
	require.NoError(t, err)
	for i := range s.copies / f.instances() {
		f.expect(i)
	}
	f.join(f.names(0, s.workers, 0)...)
	return f
}

// run starts the leader's terms.
func (f *fleet) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context()))
	done := make(chan error)
	go func() { done <- f.Run(ctx, tick) }()
	return func() {
		cancel()
		require.ErrorIs(f.t, <-done, context.Canceled)
		synctest.Wait()
	}
}

// names returns the names of n workers, from a number on. A successor has the same number,
// zone and labels as its predecessor, and the next generation.
func (f *fleet) names(first, n, generation int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("w%d.%d", first+i, generation))
	}
	return names
}

// every returns every nth of the first workers.
func (f *fleet) every(nth int) (names []string) {
	for i := 0; i < f.size.workers; i += nth {
		names = append(names, f.names(i, 1, 0)...)
	}
	return names
}

// instances returns how many copies each task has.
func (f *fleet) instances() int {
	if f.kind == zones {
		return 2
	}
	return 1
}

// expect adds a task.
func (f *fleet) expect(i int) {
	opts := []orchestrator.TaskOption{orchestrator.WithTaskInstances(f.instances())}
	switch {
	case f.kind == weights:
		opts = append(opts, orchestrator.WithTaskWeight(pareto(f.random)))
	case f.kind == labels && i%4 < 2:
		opts = append(opts, orchestrator.WithTaskRequires(pool(i)))
	}
	name := fmt.Sprint("t", i)
	f.want(name, f.instances())
	require.NoError(f.t, f.AddTask(name, opts...))
}

// unexpect removes a task.
func (f *fleet) unexpect(i int) {
	name := fmt.Sprint("t", i)
	f.want(name, 0)
	f.RemoveTask(name)
}

// pareto draws a weight.
func pareto(random *rand.Rand) int64 { return int64(1000 / math.Sqrt(1-random.Float64())) }

func pool(i int) string { return [...]string{"ssd", "hdd"}[i%2] }

// join starts workers, with nothing running, and makes them members.
func (f *fleet) join(names ...string) {
	for _, name := range names {
		f.mu.Lock()
		w := f.workers[name]
		if w == nil {
			w = &worker{nth: len(f.workers), lease: time.NewTimer(0)}
			_, err := fmt.Sscanf(name, "w%d.", &w.number)
			require.NoError(f.t, err)
			f.workers[name] = w
		}
		w.lease.Stop()
		w.up = true
		f.mu.Unlock()
		f.label(true, name)
	}
}

// joinEvery makes workers join one after the other.
func (f *fleet) joinEvery(d time.Duration, names ...string) {
	for _, name := range names {
		f.join(name)
		f.pass(d)
	}
}

// label makes a worker a member, or sets its labels.
func (f *fleet) label(has bool, name string) {
	f.mu.Lock()
	i := f.workers[name].number
	f.mu.Unlock()
	opts := []orchestrator.WorkerOption{orchestrator.WithWorkerLabels()}
	switch {
	case f.kind == zones:
		opts = append(opts, orchestrator.WithWorkerZone(f.zones[i%len(f.zones):][:1]))
	case f.kind == labels && has:
		opts = append(opts, orchestrator.WithWorkerLabels(pool(i/2)))
	}
	require.NoError(f.t, f.AddWorker(name, opts...))
}

// crash ends workers. Their leases end later, and remove those that have not joined again.
func (f *fleet) crash(after time.Duration, names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		w := f.workers[name]
		for _, t := range w.tasks {
			f.lost++
			f.stop(t)
		}
		w.up, w.hangs, w.tasks = false, false, nil
		w.lease = time.AfterFunc(after, func() { f.RemoveWorker(name) })
	}
}

// crashStaggered crashes workers at once. Their leases end one after the other.
func (f *fleet) crashStaggered(names ...string) {
	for i, name := range names {
		f.crash(lease+time.Duration(i)*400*time.Millisecond, name)
	}
}

// remove ends workers, and removes them at once.
func (f *fleet) remove(names ...string) {
	f.crash(time.Hour, names...)
	for _, name := range names {
		f.mu.Lock()
		f.workers[name].lease.Stop()
		f.mu.Unlock()
		f.RemoveWorker(name)
	}
}

func (f *fleet) drain(names ...string) {
	for _, name := range names {
		require.NoError(f.t, f.DrainWorker(name))
	}
}

func (f *fleet) undrain(names ...string) {
	for _, name := range names {
		require.NoError(f.t, f.UndrainWorker(name))
	}
}

// leave drains workers, and removes them when they are empty.
func (f *fleet) leave(names ...string) {
	f.drain(names...)
	f.await(func() bool { return f.runs(names...) == 0 })
	f.remove(names...)
}

// impair makes workers hang, or List take longer.
func (f *fleet) impair(hangs bool, slow time.Duration, names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		f.workers[name].hangs, f.workers[name].slow = hangs, slow
	}
}

// pass lets time pass.
func (f *fleet) pass(d time.Duration) { time.Sleep(d) }

// settle lets time pass until nothing has started for a while.
func (f *fleet) settle(d time.Duration) {
	began := time.Now()
	f.await(func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return min(time.Since(began), time.Since(f.last)) >= d
	})
}

// await lets time pass until something is so.
func (f *fleet) await(is func() bool) {
	for range 1000 {
		if is() {
			return
		}
		f.pass(tick)
	}
	require.Fail(f.t, "the fleet does not settle")
}

// runs returns how many copies workers run.
func (f *fleet) runs(names ...string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		n += len(f.workers[name].tasks)
	}
	return n
}

// loads returns how many copies the workers run that run least and most.
func (f *fleet) loads() (least, greatest int) {
	least = math.MaxInt
	for _, w := range f.workers {
		if w.up {
			least, greatest = min(least, len(w.tasks)), max(greatest, len(w.tasks))
		}
	}
	return least, greatest
}

// counters count what happens to the tasks.
type counters struct {
	cost
	tasks   map[string]*task
	longest time.Duration // that a task had too few copies
	twice   int           // starts of a copy too many
	last    time.Time     // of the last start
}

type task struct {
	wanted, running, starts int
	since                   time.Time // since when copies are missing
}

func (f *fleet) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counters = counters{tasks: f.tasks, last: f.last}
	for _, t := range f.tasks {
		t.starts = 0
	}
}

// want sets how many copies of a task are wanted.
func (f *fleet) want(name string, copies int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.tasks[name]
	if t == nil {
		t = &task{}
		f.tasks[name] = t
	}
	f.change(t, copies-t.wanted, 0)
}

func (c *counters) start(name string) {
	t := c.tasks[name]
	c.change(t, 0, 1)
	c.starts++
	t.starts++
	c.most = max(c.most, t.starts)
	c.last = time.Now()
	if t.running > t.wanted {
		c.twice++
	}
}

func (c *counters) stop(name string) { c.change(c.tasks[name], 0, -1) }

func (c *counters) change(t *task, wanted, running int) {
	missing := t.running < t.wanted
	if missing {
		c.longest = max(c.longest, time.Since(t.since))
	}
	t.wanted += wanted
	t.running += running
	if !missing {
		t.since = time.Now()
	}
}

// A call takes this long, and with each worker a little longer than with the last, so that
// no two answers come at the same moment. So a life is the same each time.
const (
	listing  = time.Millisecond
	writing  = 5 * time.Millisecond
	distance = 7 * time.Microsecond
)

// network is the Communicator of a fleet.
type network struct{ f *fleet }

// reach locks the fleet and returns a worker, when a call has reached it.
func (n *network) reach(ctx context.Context, name string, lists bool) (*worker, error) {
	n.f.mu.Lock()
	w := n.f.workers[name]
	takes := time.Duration(w.nth)*distance + writing
	if lists {
		takes += listing - writing + w.slow
	}
	if w.hangs {
		takes = time.Hour
	}
	n.f.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.f.mu.Lock()
	if !w.up {
		n.f.mu.Unlock()
		return nil, fmt.Errorf("%s: connection refused", name)
	}
	return w, nil
}

func (n *network) List(ctx context.Context, name string) ([]string, error) {
	w, err := n.reach(ctx, name, true)
	if err != nil {
		return nil, err
	}
	defer n.f.mu.Unlock()
	return w.tasks, nil
}

func (n *network) Apply(ctx context.Context, name string, writes []orchestrator.Write[string]) []error {
	w, err := n.reach(ctx, name, false)
	if err != nil {
		return slices.Repeat([]error{err}, len(writes))
	}
	defer n.f.mu.Unlock()
	w.tasks = slices.Clone(w.tasks)
	for _, write := range writes {
		switch i := slices.Index(w.tasks, write.Task); {
		case write.Op == orchestrator.OpAdd && i < 0:
			w.tasks = append(w.tasks, write.Task)
			n.f.start(write.Task)
		case write.Op == orchestrator.OpRemove && i >= 0:
			w.tasks = slices.Delete(w.tasks, i, i+1)
			n.f.stop(write.Task)
		}
	}
	return nil
}

func (n *network) Add(ctx context.Context, name, task string) error {
	return n.one(ctx, name, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: task})
}

func (n *network) Remove(ctx context.Context, name, task string) error {
	return n.one(ctx, name, orchestrator.Write[string]{Op: orchestrator.OpRemove, Task: task})
}

func (n *network) one(ctx context.Context, name string, write orchestrator.Write[string]) error {
	if errs := n.Apply(ctx, name, []orchestrator.Write[string]{write}); errs != nil {
		return errs[0]
	}
	return nil
}
