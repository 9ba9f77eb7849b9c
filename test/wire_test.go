package test

// The calls between a leader and its cluster: how to record and disturb them.

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
)

// call is a call on the wire.
type call struct {
	Op           orchestrator.Op
	Worker, Task string
	// Term is the identity in its context, or zero.
	Term orchestrator.Term
	// Sent is when it began, Took its duration, and Err its result. While Open is true
	// it has not returned.
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

// wire is a Communicator that records every call and forwards it to a cluster. It fails
// the test if two calls of one leader to one worker overlap (C1).
type wire struct {
	t       *testing.T
	cluster *memory.Cluster[string, string]

	mu       sync.Mutex
	log      []*call
	inFlight map[flight]bool
	most     int // calls in flight at the same time
	tap      func(context.Context, call) error
}

// flight identifies the calls of a leader to a worker.
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

// intercept makes the wire call f before it forwards a call. f may delay the call, or
// return an error, which is then the answer. It is called from many goroutines.
func (w *wire) intercept(f func(ctx context.Context, c call) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tap = f
}

// calls returns the calls since the last forget for which keep returns true, in the
// order in which they began.
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

// writes returns the writes since the last forget, such as "add t1 w2".
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

// begin records the calls to a worker that are made together. The caller calls end when
// they have returned.
func (w *wire) begin(ctx context.Context, worker string, calls ...*call) (tap func(context.Context, call) error, end func()) {
	id, _ := orchestrator.TermFromContext(ctx)
	key := flight{epoch: id.Epoch, worker: worker}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inFlight[key] {
		w.t.Errorf("two calls at once for worker %s: %v", worker, calls[0])
	}
	w.inFlight[key] = true
	w.most = max(w.most, len(w.inFlight))
	for _, c := range calls {
		c.Worker, c.Term, c.Sent, c.Open = worker, id, time.Now(), true
		w.log = append(w.log, c)
	}
	return w.tap, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.inFlight, key)
	}
}

func (w *wire) returned(c *call, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.Open, c.Took, c.Err = false, time.Since(c.Sent), err
}

// forward records a call and forwards it, unless the tap returns an error.
func (w *wire) forward(ctx context.Context, op orchestrator.Op, worker, task string, on func() error) (err error) {
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
	err = w.forward(ctx, orchestrator.OpList, worker, "", func() error {
		tasks, err = w.cluster.List(ctx, worker)
		return err
	})
	return tasks, err
}

// Add implements orchestrator.Communicator.
func (w *wire) Add(ctx context.Context, worker, task string) error {
	return w.forward(ctx, orchestrator.OpAdd, worker, task, func() error { return w.cluster.Add(ctx, worker, task) })
}

// Remove implements orchestrator.Communicator.
func (w *wire) Remove(ctx context.Context, worker, task string) error {
	return w.forward(ctx, orchestrator.OpRemove, worker, task, func() error { return w.cluster.Remove(ctx, worker, task) })
}

// batchWire is a wire that is an Applier. It records the writes of an Apply one by one,
// and calls the tap for each, one after the other.
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

// texts returns the calls as String formats them.
func texts(calls []call) []string {
	all := make([]string, len(calls))
	for i, c := range calls {
		all[i] = c.String()
	}
	return all
}

// hang waits until ctx ends, and returns its cause.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// dawdle waits until ctx ends, and then for another second.
func dawdle(ctx context.Context) error {
	<-ctx.Done()
	time.Sleep(time.Second)
	return context.Cause(ctx)
}

// logs are the lines that a logger has written.
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

// sent returns the writes of one kind since the last forget.
func (f *fleet) sent(op orchestrator.Op) []call {
	return f.calls(func(c call) bool { return c.Op == op })
}
