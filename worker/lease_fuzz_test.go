package worker_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
)

// FuzzLease decodes a sequence of calls of a transport with leases and content, and
// compares each result with a model. The lease is long, so that it is lost only by
// GiveUp.
func FuzzLease(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{3, 0, 2, 4, 0, 0, 2, 5, 8, 8, 1, 6, 0, 0, 0, 7, 8})
	f.Add([]byte("leases that come and go, and content that changes meanwhile"))
	f.Fuzz(func(t *testing.T, data []byte) {
		next := func() int {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			return int(b)
		}
		l := newLedger(t, next())
		for len(data) > 0 {
			op := next()
			task, version := op>>4%fuzzTasks, int64(next()%8)
			switch op % 10 {
			case 0, 1, 2:
				l.add(task, version)
			case 3, 4:
				l.update(task, version)
			case 5:
				l.remove(task)
			case 6:
				l.w.GiveUp(nil)
				l.refusing, l.fenced = true, true
			case 7:
				l.rejoin()
			case 8:
				// The last request, of this incarnation or an earlier one.
				l.acknowledged()
				if l.current && !l.fenced {
					l.refusing = false
				}
			case 9:
				l.acknowledged, l.current = l.w.Sending(), true
			}
			l.matches()
		}
		require.NoError(t, l.w.Close(t.Context()))
		for task := range l.running {
			require.Zero(t, l.running[task].Load(), "task %d", task)
		}
	})
}

// ledger is the model of a worker with a lease.
type ledger struct {
	sheet
	running      [fuzzTasks]atomic.Int32
	versions     [fuzzTasks]int64 // of the tasks that the worker has
	incarnation  uint64
	fenced       bool
	acknowledged func()
	current      bool // acknowledged belongs to this incarnation
}

func newLedger(t *testing.T, setup int) *ledger {
	l := &ledger{sheet: sheet{t: t, refusing: true}, current: true}
	opts := []worker.Option{worker.WithLease(24*time.Hour, time.Second)}
	if setup&1 != 0 {
		opts = append(opts, worker.WithSlots(2))
	}
	if setup&2 != 0 {
		opts = append(opts, worker.WithUpdate(func(ctx context.Context, task int) error {
			l.seen(ctx, task)
			return nil
		}))
	}
	w, err := worker.New(func(ctx context.Context, task int) error {
		if l.running[task].Add(1) > 1 {
			t.Error("a task runs twice")
		}
		defer l.running[task].Add(-1)
		l.seen(ctx, task)
		<-ctx.Done()
		return nil
	}, opts...)
	require.NoError(t, err)
	l.w, l.incarnation = w, w.Incarnation()
	l.acknowledged = w.Sending()
	return l
}

// seen fails the test if a task has got the content of another.
func (l *ledger) seen(ctx context.Context, task int) {
	if content, version := worker.Content(ctx); version > 0 && content[0] != byte(task) {
		l.t.Errorf("task %d has the content of %d", task, content[0])
	}
}

func (l *ledger) add(task int, version int64) {
	write := orchestrator.Write[int]{Op: orchestrator.OpAdd, Task: task}
	here := slices.Contains(l.tasks, task)
	want := l.write(0, write)
	g := worker.Grant{Content: []byte{byte(task)}, Version: version}
	l.answers(l.w.AddWith(l.t.Context(), task, g), want)
	switch {
	case want != nil:
	case here:
		l.versions[task] = max(l.versions[task], version)
	default:
		l.versions[task] = version
	}
}

func (l *ledger) update(task int, version int64) {
	var want error
	if l.refusing || !slices.Contains(l.tasks, task) {
		want = orchestrator.ErrRejected
	}
	l.answers(l.w.Update(l.t.Context(), task, worker.Grant{Content: []byte{byte(task)}, Version: version}), want)
	if want == nil {
		l.versions[task] = max(l.versions[task], version)
	}
}

func (l *ledger) remove(task int) {
	write := orchestrator.Write[int]{Op: orchestrator.OpRemove, Task: task}
	want := l.write(0, write)
	l.answers(l.w.Remove(l.t.Context(), task), want)
	if want == nil {
		require.Zero(l.t, l.running[task].Load(), "task %d", task)
	}
}

func (l *ledger) rejoin() {
	require.NoError(l.t, l.w.Rejoin(l.t.Context()))
	for task := range l.running {
		require.Zero(l.t, l.running[task].Load(), "task %d", task)
	}
	require.NotEqual(l.t, l.incarnation, l.w.Incarnation())
	l.incarnation, l.tasks = l.w.Incarnation(), nil
	l.refusing, l.fenced, l.current = true, false, false
}

// matches compares the worker with the model. Once the worker is fenced, it is
// random which tasks have stopped already.
func (l *ledger) matches() {
	require.Equal(l.t, l.fenced, isClosed(l.w.Fenced()))
	if l.fenced {
		return
	}
	got, err := l.w.List(l.t.Context())
	require.NoError(l.t, err)
	require.Equal(l.t, append([]int{}, l.tasks...), got)
	for _, s := range l.w.Status() {
		require.Equal(l.t, l.versions[s.Task], s.Version, "task %d", s.Task)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
