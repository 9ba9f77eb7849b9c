package worker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/worker"
)

// memoryRecord is a record in memory. Each Save takes a second.
type memoryRecord struct {
	mu      sync.Mutex
	tasks   map[string]worker.TaskRecord[string]
	saves   int
	busy    bool
	removed bool  // Remove was called
	fail    error // the result of all calls
	panics  bool
}

func newMemoryRecord(tasks ...worker.TaskRecord[string]) *memoryRecord {
	p := &memoryRecord{tasks: map[string]worker.TaskRecord[string]{}}
	for _, t := range tasks {
		p.tasks[t.Task] = t
	}
	return p
}

func (p *memoryRecord) Load() ([]worker.TaskRecord[string], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.tasks)), p.fail
}

func (p *memoryRecord) Save(tasks []worker.TaskRecord[string], gone []string) error {
	p.mu.Lock()
	if p.removed || p.busy {
		panic("a call too many")
	}
	p.busy = true
	p.mu.Unlock()
	<-time.After(time.Second)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy = false
	p.saves++
	if p.panics {
		panic("disk full")
	}
	if p.fail != nil {
		return p.fail
	}
	for _, task := range gone {
		delete(p.tasks, task)
	}
	for _, t := range tasks {
		if slices.Contains(gone, t.Task) {
			return errors.New("here and gone")
		}
		p.tasks[t.Task] = t
	}
	return nil
}

func (p *memoryRecord) Remove() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail == nil {
		p.removed = true
		clear(p.tasks)
	}
	return p.fail
}

// read returns the record when no Save is under way.
func (p *memoryRecord) read() map[string]worker.TaskRecord[string] {
	<-time.After(5 * time.Second)
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.tasks)
}

func TestW6_TheRecordFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newMemoryRecord()
		w := newWorker(t, except("short", nil), worker.WithRecord(p), worker.WithSlots(2), worker.WithCompletion(func(string) {}))
		require.Empty(t, w.Previous())
		began := time.Now()
		require.NoError(t, w.AddWith(t.Context(), "long", grant("one", 1)))
		require.Nil(t, w.Apply(t.Context(), add("short", "other", "queued")))
		require.Equal(t, began, time.Now(), "no call waits for Save")
		require.Equal(t, map[string]worker.TaskRecord[string]{
			"long":   {Task: "long", Version: 1, Token: 7, Scope: 3},
			"short":  {Task: "short", Completed: true},
			"other":  {Task: "other"},
			"queued": {Task: "queued"},
		}, p.read())
		require.LessOrEqual(t, p.saves, 3, "changes at the same time are saved in one call")

		require.NoError(t, w.Update(t.Context(), "long", worker.Grant{Content: []byte("two"), Version: 2}))
		require.NoError(t, w.Remove(t.Context(), "other"))
		require.NoError(t, w.Remove(t.Context(), "queued"))
		require.NoError(t, w.Remove(t.Context(), "short"))
		require.NoError(t, w.Add(t.Context(), "other"))
		require.Equal(t, map[string]worker.TaskRecord[string]{
			"long":  {Task: "long", Version: 2, Token: 7, Scope: 3},
			"other": {Task: "other"},
		}, p.read())

		require.NoError(t, w.Rejoin(t.Context()))
		require.Empty(t, p.read(), "tasks stopped after the loss of the lease are gone")
		require.False(t, p.removed)
	})
}

func TestW6_TheNextProcessReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := worker.TaskRecord[string]{Task: "ran", Version: 4, Token: 2}
		over := worker.TaskRecord[string]{Task: "over", Completed: true}
		p := newMemoryRecord(ran, over)
		w, err := worker.New(until, worker.WithRecord(p))
		require.NoError(t, err)
		require.Equal(t, []worker.TaskRecord[string]{over, ran}, w.Previous(), "completed tasks come first")
		require.Empty(t, list(t, w))
		require.Len(t, p.read(), 2, "the record is unchanged")

		require.NoError(t, w.Add(t.Context(), "new"))
		require.Equal(t, map[string]worker.TaskRecord[string]{"new": {Task: "new"}}, p.read())
		w.Previous()[0].Task = "changed"
		require.Equal(t, "over", w.Previous()[0].Task, "the caller owns the slice")
		require.NoError(t, w.Close(t.Context()))
		require.True(t, p.removed)
		require.Len(t, w.Previous(), 2)
	})
}

func TestW6_CloseRemovesTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newMemoryRecord()
		w, err := worker.New(stubborn(10*time.Second, new(int)), worker.WithRecord(p))
		require.NoError(t, err)
		require.NoError(t, w.Add(t.Context(), "a"))
		require.Error(t, w.Close(within(t, 2*time.Second)))
		require.False(t, p.removed, "the task has not stopped")
		require.Contains(t, p.read(), "a")

		require.Error(t, w.Close(within(t, 3500*time.Millisecond)))
		require.False(t, p.removed, "Save is under way")
		p.mu.Lock()
		p.fail = errors.New("no")
		p.mu.Unlock()
		require.ErrorIs(t, w.Close(t.Context()), p.fail)
		p.fail = nil
		closed := make(chan error, 2)
		for range 2 {
			go func() { closed <- w.Close(t.Context()) }()
		}
		require.NoError(t, <-closed)
		require.NoError(t, <-closed)
		require.True(t, p.removed)
		require.NoError(t, w.Close(t.Context()))
	})
}

func TestW6_ARecordThatFailsStopsNothing(t *testing.T) {
	for name, spoil := range map[string]func(p *memoryRecord, yes bool){
		"error": func(p *memoryRecord, yes bool) {
			p.fail = nil
			if yes {
				p.fail = errors.New("disk full")
			}
		},
		"panic": func(p *memoryRecord, yes bool) { p.panics = yes },
	} {
		t.Run(name, inBubble(func(t *testing.T) {
			p := newMemoryRecord()
			spoil(p, true)
			var log bytes.Buffer
			if p.fail != nil {
				_, err := worker.New(until, worker.WithRecord(p))
				require.ErrorIs(t, err, p.fail)
			}
			spoil(p, false)
			w := newWorker(t, until, worker.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), worker.WithRecord(p))
			require.NoError(t, w.Add(t.Context(), "b"))
			require.Contains(t, p.read(), "b")
			spoil(p, true)
			require.NoError(t, w.Add(t.Context(), "a"))
			require.NoError(t, w.Remove(t.Context(), "b"))
			require.Equal(t, []string{"b"}, slices.Collect(maps.Keys(p.read())), "the record is unchanged")
			require.Contains(t, log.String(), "record not saved")
			require.Contains(t, log.String(), "disk full")
			spoil(p, false)
			require.NoError(t, w.Add(t.Context(), "c"))
			require.ElementsMatch(t, []string{"a", "c"}, slices.Collect(maps.Keys(p.read())), "the next Save includes the earlier changes")
		}))
	}
}

func TestW6_ARecordOfOtherTasks(t *testing.T) {
	_, err := worker.New(func(context.Context, int) error { return nil }, worker.WithRecord(newMemoryRecord()))
	require.ErrorContains(t, err, "worker.Record[int]")
	_, err = worker.New(until, worker.WithRecord[string](nil))
	require.ErrorContains(t, err, "WithRecord(nil)")
}

// The text of a task's error is read without the worker's lock.
func TestW6_AnErrorThatAsksTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newMemoryRecord()
		var w *worker.Worker[string]
		w = newWorker(t, func(context.Context, string) error {
			return curious{func() { _, _ = w.List(t.Context()) }}
		}, worker.WithRecord(p), worker.WithCompletion(func(string) {}), worker.WithAttempts(1, func(string, error) {}))
		require.NoError(t, w.Add(t.Context(), "a"))
		synctest.Wait()
		require.Equal(t, map[string]worker.TaskRecord[string]{"a": {Task: "a", Failed: true, Err: "asked", Attempts: 1}}, p.read())
	})
}

// curious is an error that does something when it is read.
type curious struct{ ask func() }

func (c curious) Error() string {
	c.ask()
	return "asked"
}
