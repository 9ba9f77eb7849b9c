package worker_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
)

// FuzzWorker decodes a sequence of calls, with and without terms, and compares each
// result with a model. The model is exact, because the tasks stop immediately.
func FuzzWorker(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{2, 0, 0, 1, 0, 0x21, 1, 0x21, 9, 2, 0, 3, 0, 1})
	f.Add([]byte("adds and removes of several terms, some of which are over"))
	f.Fuzz(func(t *testing.T, data []byte) {
		next := func() int {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			return int(b)
		}
		var running [fuzzTasks]atomic.Int32
		slots := next() % 4
		var opts []worker.Option
		if slots > 0 {
			opts = append(opts, worker.WithSlots(slots))
		}
		w, err := worker.New(func(ctx context.Context, task int) error {
			running[task].Add(1)
			defer running[task].Add(-1)
			<-ctx.Done()
			return nil
		}, opts...)
		require.NoError(t, err)
		m := &model{t: t, w: w}
		for len(data) > 0 {
			op, bits := next(), next()
			ctx := m.context(bits)
			switch op % 8 {
			case 0, 1, 2:
				write := orchestrator.Write[int]{Op: orchestrator.OpAdd, Task: op >> 3 % fuzzTasks}
				m.answers(w.Add(ctx, write.Task), m.write(bits, write))
			case 3, 4:
				write := orchestrator.Write[int]{Op: orchestrator.OpRemove, Task: op >> 3 % fuzzTasks}
				m.answers(w.Remove(ctx, write.Task), m.write(bits, write))
				if !slices.Contains(m.tasks, write.Task) {
					require.Zero(t, running[write.Task].Load(), "task %d", write.Task)
				}
			case 5:
				m.apply(ctx, bits, op, next())
			case 6:
				term := orchestrator.Term{Epoch: uint64(bits >> 4), Number: uint64(bits & 15)}
				w.Fence(term)
				m.raise(term)
			case 7:
				if op == 255 && bits == 255 {
					require.NoError(t, w.Close(t.Context()))
					m.tasks, m.closed = nil, true
				} else {
					m.list(ctx, bits)
				}
			}
			got, err := w.List(t.Context())
			require.NoError(t, err)
			require.Equal(t, append([]int{}, m.tasks...), got)
			for task := range running {
				require.LessOrEqual(t, running[task].Load(), int32(1), "task %d", task)
			}
		}
		require.NoError(t, w.Close(t.Context()))
		for task := range running {
			require.Zero(t, running[task].Load(), "task %d", task)
		}
	})
}

const fuzzTasks = 8

// model is the model of a worker.
type model struct {
	t      *testing.T
	w      *worker.Worker[int]
	fence  orchestrator.Term
	tasks  []int
	closed bool

	refusing bool // because the lease is lost or not acknowledged
}

// context returns the context of a call. The bits decide whether it has a term,
// which one, and whether it has ended.
func (m *model) context(bits int) context.Context {
	ctx := m.t.Context()
	if term, ok := termOf(bits); ok {
		ctx = orchestrator.ContextWithTerm(ctx, term)
	}
	if ended(bits) {
		over, cancel := context.WithCancel(ctx)
		cancel()
		ctx = over
	}
	return ctx
}

func termOf(bits int) (term orchestrator.Term, ok bool) {
	return orchestrator.Term{Epoch: uint64(bits >> 2 & 3), Number: uint64(bits >> 4 & 3)}, bits&1 != 0
}

func ended(bits int) bool { return bits&0xc2 == 0xc2 }

func (m *model) raise(term orchestrator.Term) {
	if term.Epoch > m.fence.Epoch || term.Epoch == m.fence.Epoch && term.Number > m.fence.Number {
		m.fence = term
	}
}

// write applies a write to the model, and returns the expected result.
func (m *model) write(bits int, write orchestrator.Write[int]) error {
	term, has := termOf(bits)
	if has {
		m.raise(term)
	}
	switch {
	case has && term.Epoch < m.fence.Epoch:
		return orchestrator.ErrDeposed
	case has && term.Number < m.fence.Number, !has && m.fence != orchestrator.Term{}:
		return orchestrator.ErrStale
	case ended(bits), m.refusing, write.Op == orchestrator.OpAdd && m.closed,
		write.Op != orchestrator.OpAdd && write.Op != orchestrator.OpRemove:
		return orchestrator.ErrRejected
	}
	at := slices.Index(m.tasks, write.Task)
	switch {
	case write.Op == orchestrator.OpAdd && at < 0:
		m.tasks = append(m.tasks, write.Task)
	case write.Op == orchestrator.OpRemove && at >= 0:
		m.tasks = slices.Delete(m.tasks, at, at+1)
	}
	return nil
}

func (m *model) answers(got, want error) {
	m.t.Helper()
	require.ErrorIs(m.t, got, want)
	require.Equal(m.t, errors.Is(want, orchestrator.ErrStale), errors.Is(got, orchestrator.ErrStale))
}

// apply sends an Apply that names each task at most once, as a leader does.
func (m *model) apply(ctx context.Context, bits, first, count int) {
	var writes []orchestrator.Write[int]
	var want []error
	for i := range count % fuzzTasks {
		write := orchestrator.Write[int]{Op: orchestrator.Op(1 + (first>>3+i)%4), Task: (first + i) % fuzzTasks}
		writes = append(writes, write)
		want = append(want, m.write(bits, write))
	}
	got := m.w.Apply(ctx, writes)
	if got == nil {
		got = make([]error, len(writes))
	}
	require.Len(m.t, got, len(want))
	for i := range want {
		m.answers(got[i], want[i])
	}
}

func (m *model) list(ctx context.Context, bits int) {
	_, err := m.w.List(ctx)
	term, has := termOf(bits)
	switch {
	case ended(bits):
		require.ErrorIs(m.t, err, context.Canceled)
		return
	case has:
		m.raise(term)
		if term.Epoch < m.fence.Epoch {
			require.ErrorIs(m.t, err, orchestrator.ErrDeposed)
			return
		}
	}
	require.NoError(m.t, err)
}

// FuzzLease decodes a sequence of calls of a transport with leases and content, and
// compares each result with a model. The lease is long, so that it is lost only by
// EndLease.
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
		l := newLeaseModel(t, next())
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
				l.w.EndLease(nil)
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

// leaseModel is the model of a worker with a lease.
type leaseModel struct {
	model
	running      [fuzzTasks]atomic.Int32
	versions     [fuzzTasks]int64 // of the tasks that the worker has
	incarnation  uint64
	fenced       bool
	acknowledged func()
	current      bool // acknowledged belongs to this incarnation
}

func newLeaseModel(t *testing.T, setup int) *leaseModel {
	l := &leaseModel{model: model{t: t, refusing: true}, current: true}
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
func (l *leaseModel) seen(ctx context.Context, task int) {
	if content, version := worker.Content(ctx); version > 0 && content[0] != byte(task) {
		l.t.Errorf("task %d has the content of %d", task, content[0])
	}
}

func (l *leaseModel) add(task int, version int64) {
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

func (l *leaseModel) update(task int, version int64) {
	var want error
	if l.refusing || !slices.Contains(l.tasks, task) {
		want = orchestrator.ErrRejected
	}
	l.answers(l.w.Update(l.t.Context(), task, worker.Grant{Content: []byte{byte(task)}, Version: version}), want)
	if want == nil {
		l.versions[task] = max(l.versions[task], version)
	}
}

func (l *leaseModel) remove(task int) {
	write := orchestrator.Write[int]{Op: orchestrator.OpRemove, Task: task}
	want := l.write(0, write)
	l.answers(l.w.Remove(l.t.Context(), task), want)
	if want == nil {
		require.Zero(l.t, l.running[task].Load(), "task %d", task)
	}
}

func (l *leaseModel) rejoin() {
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
func (l *leaseModel) matches() {
	require.Equal(l.t, l.fenced, isClosed(l.w.LeaseLost()))
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
