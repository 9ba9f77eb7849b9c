package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// What the tests of this package share: a leader with its cluster, and the
// wire between the two, which takes note of every call.

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

// fleet is a leader and the cluster that it leads: what either can do, a fleet
// can. It lives inside a bubble of testing/synctest, and ends with its test.
type fleet struct {
	*memory.Cluster[string, string]
	*orchestrator.Orchestrator[string, string]
	*wire
	t       *testing.T
	workers []string
}

// newFleet starts the workers w1, w2, … and a leader that knows them. Each
// write is a call of its own.
func newFleet(t *testing.T, workers int, opts ...option) *fleet {
	t.Helper()
	w := newWire(t)
	return newFleetOn(t, w, w, workers, opts...)
}

// newBatchFleet is newFleet with a Communicator that is an Applier.
func newBatchFleet(t *testing.T, workers int, opts ...option) *fleet {
	t.Helper()
	w := newWire(t)
	return newFleetOn(t, w, &batchWire{w}, workers, opts...)
}

func newFleetOn(t *testing.T, w *wire, comm orchestrator.Communicator[string, string], workers int, opts ...option) *fleet {
	t.Helper()
	w.cluster.Start(names("w", workers)...)
	o, err := orchestrator.New(comm, append([]option{orchestrator.WithSeed(0)}, opts...)...)
	require.NoError(t, err)
	f := &fleet{Cluster: w.cluster, Orchestrator: o, wire: w, t: t, workers: names("w", workers)}
	for _, name := range f.workers {
		require.NoError(t, o.AddWorker(name))
	}
	return f
}

// successor returns a new leader of the same workers and tasks, which has not
// looked at them yet. Its epoch is the later one.
func (f *fleet) successor(opts ...option) *fleet {
	f.t.Helper()
	time.Sleep(time.Millisecond)
	o, err := orchestrator.New(f.wire, append([]option{orchestrator.WithSeed(0)}, opts...)...)
	require.NoError(f.t, err)
	for _, name := range f.workers {
		require.NoError(f.t, o.AddWorker(name))
	}
	require.NoError(f.t, o.UpdateTasks(f.ListExpectedTasks()))
	next := *f
	next.Orchestrator = o
	return &next
}

// expect adds the tasks t1, t2, … up to n.
func (f *fleet) expect(n int, opts ...orchestrator.TaskOption) {
	f.t.Helper()
	for _, name := range names("t", n) {
		require.NoError(f.t, f.AddTask(name, opts...))
	}
}

// join starts workers and has the leader know them.
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

// timedTerm runs a term, and says how long it took and what it returned.
func (f *fleet) timedTerm() (time.Duration, error) {
	began := time.Now()
	err := f.NextTerm(f.t.Context())
	return time.Since(began), err
}

// heal puts the network right, and has the leader hear of it: the term that it
// runs may go on before those that were silent have answered, and fail for it.
func (f *fleet) heal() {
	f.Heal()
	synctest.Wait()
	_ = f.NextTerm(f.t.Context())
	synctest.Wait()
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

// changesOf returns what the last term did with a task.
func (f *fleet) changesOf(name string) (found []change) {
	for _, c := range f.LastPlan().Changes {
		if c.Task == name {
			found = append(found, c)
		}
	}
	return found
}

// requireSettled checks that every task really runs on as many workers as it
// wants, and that a further term without failures finds nothing to change.
func (f *fleet) requireSettled() {
	f.t.Helper()
	for _, task := range f.ListExpectedTasks() {
		require.Len(f.t, f.Running(task.Name), task.Instances, "task %s", task.Name)
	}
	f.forget()
	f.term()
	require.Empty(f.t, f.writes())
}

// call is one call on the wire.
type call struct {
	Op           orchestrator.Op
	Worker, Task string
	// Term is the identity that it carried, if it did.
	Term orchestrator.Term
	// Sent is when it set out, Took how long it was under way; Err what it
	// returned. Open says that it has not returned yet.
	Sent time.Time
	Took time.Duration
	Err  error
	Open bool
}

// String returns for example "add t1 w2".
func (c call) String() string {
	if c.Op == orchestrator.OpList {
		return "list " + c.Worker
	}
	return fmt.Sprintf("%v %s %s", c.Op, c.Task, c.Worker)
}

// wire is a Communicator that hands every call on to a cluster and takes note
// of it. It fails the test where two calls of one leader for one worker overlap
// (C1).
type wire struct {
	t       *testing.T
	cluster *memory.Cluster[string, string]

	mu       sync.Mutex
	log      []*call
	inFlight map[flight]bool
	most     int // calls in flight at the same time
	tap      func(context.Context, call) error
}

// flight is where a leader has a call in flight.
type flight struct {
	epoch  uint64
	worker string
}

func newWire(t *testing.T) *wire {
	t.Helper()
	c, err := memory.New[string, string](nil)
	require.NoError(t, err)
	w := &wire{t: t, cluster: c, inFlight: make(map[flight]bool)}
	t.Cleanup(func() {
		c.Heal()
		w.quiet()
		require.NoError(t, c.Close(context.WithoutCancel(t.Context())))
	})
	return w
}

// quiet waits until no call is in flight any more.
func (w *wire) quiet() {
	w.t.Helper()
	for range 100 {
		synctest.Wait()
		w.mu.Lock()
		n := len(w.inFlight)
		w.mu.Unlock()
		if n == 0 {
			return
		}
		time.Sleep(10 * timeout)
	}
	w.t.Error("some calls never return")
}

// intercept has f asked before each call is handed on: it may take its time,
// or fail the call. It is called from many goroutines.
func (w *wire) intercept(f func(ctx context.Context, c call) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tap = f
}

// calls returns the calls since the last forget that keep says yes to, in the
// order in which they set out.
func (w *wire) calls(keep func(call) bool) (found []call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.log {
		if keep(*c) {
			found = append(found, *c)
		}
	}
	return found
}

// writes returns the writes since the last forget, as in "add t1 w2".
func (w *wire) writes() []string {
	return texts(w.calls(func(c call) bool { return c.Op != orchestrator.OpList }))
}

// lists returns the calls of List since the last forget.
func (w *wire) lists() []call {
	return w.calls(func(c call) bool { return c.Op == orchestrator.OpList })
}

// forget forgets all calls so far.
func (w *wire) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log, w.most = nil, len(w.inFlight)
}

// mostInFlight returns how many calls were in flight at the same time, at most,
// since the last forget.
func (w *wire) mostInFlight() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most
}

// begin notes calls to one worker that travel together. The caller says when
// they have ended.
func (w *wire) begin(ctx context.Context, worker string, calls ...*call) (tap func(context.Context, call) error, end func()) {
	id, _ := orchestrator.TermFromContext(ctx)
	way := flight{epoch: id.Epoch, worker: worker}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inFlight[way] {
		w.t.Errorf("two calls at once for worker %s: %v", worker, calls[0])
	}
	w.inFlight[way] = true
	w.most = max(w.most, len(w.inFlight))
	for _, c := range calls {
		c.Worker, c.Term, c.Sent, c.Open = worker, id, time.Now(), true
		w.log = append(w.log, c)
	}
	return w.tap, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.inFlight, way)
	}
}

func (w *wire) returned(c *call, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.Open, c.Took, c.Err = false, time.Since(c.Sent), err
}

// hand notes one call and hands it on, unless the tap fails it.
func (w *wire) hand(ctx context.Context, op orchestrator.Op, worker, task string, on func() error) (err error) {
	c := &call{Op: op, Task: task}
	tap, end := w.begin(ctx, worker, c)
	defer end()
	defer func() { w.returned(c, err) }()
	if tap != nil {
		if err := tap(ctx, *c); err != nil {
			return err
		}
	}
	return on()
}

// List implements orchestrator.Communicator.
func (w *wire) List(ctx context.Context, worker string) (tasks []string, err error) {
	err = w.hand(ctx, orchestrator.OpList, worker, "", func() error {
		tasks, err = w.cluster.List(ctx, worker)
		return err
	})
	return tasks, err
}

// Add implements orchestrator.Communicator.
func (w *wire) Add(ctx context.Context, worker, task string) error {
	return w.hand(ctx, orchestrator.OpAdd, worker, task, func() error { return w.cluster.Add(ctx, worker, task) })
}

// Remove implements orchestrator.Communicator.
func (w *wire) Remove(ctx context.Context, worker, task string) error {
	return w.hand(ctx, orchestrator.OpRemove, worker, task, func() error { return w.cluster.Remove(ctx, worker, task) })
}

// batchWire is a wire that is an Applier. It notes the writes of an Apply one
// by one, and has its tap asked about each, in turn.
type batchWire struct{ *wire }

// Apply implements orchestrator.Applier.
func (w *batchWire) Apply(ctx context.Context, worker string, writes []orchestrator.Write[string]) []error {
	calls := make([]*call, len(writes))
	for i, write := range writes {
		calls[i] = &call{Op: write.Op, Task: write.Task}
	}
	tap, end := w.begin(ctx, worker, calls...)
	defer end()
	errs := make([]error, len(writes))
	var on []orchestrator.Write[string]
	var index []int
	for i, write := range writes {
		if tap != nil {
			errs[i] = tap(ctx, *calls[i])
		}
		if errs[i] == nil {
			on, index = append(on, write), append(index, i)
		}
	}
	for k, err := range w.cluster.Apply(ctx, worker, on) {
		errs[index[k]] = err
	}
	for i, c := range calls {
		w.returned(c, errs[i])
	}
	return errs
}

// texts returns what the calls' String methods do.
func texts(calls []call) []string {
	all := make([]string, len(calls))
	for i, c := range calls {
		all[i] = c.String()
	}
	return all
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

// hang waits until ctx ends, and returns its cause.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// dawdle waits until ctx ends, and then for a second more.
func dawdle(ctx context.Context) error {
	<-ctx.Done()
	time.Sleep(time.Second)
	return context.Cause(ctx)
}

// goroutines returns how many goroutines there are in the bubble, once all of
// them have come to rest.
func goroutines() int {
	synctest.Wait()
	dump := make([]byte, 1<<20)
	dump = dump[:runtime.Stack(dump, true)]
	return len(regexp.MustCompile(`(?m)^goroutine .*synctest bubble`).FindAll(dump, -1))
}

// logs is where a logger writes to in a test.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// logger returns a logger, of every level, that writes JSON lines to l.
func (l *logs) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// lines returns the lines that contain all of the texts.
func (l *logs) lines(texts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(l.buf.Bytes()) {
		if !slices.ContainsFunc(texts, func(s string) bool { return !bytes.Contains(line, []byte(s)) }) {
			found = append(found, string(line))
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
