package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
)

// slowStore is a store whose Save waits after hold was called.
type slowStore struct {
	*MemoryStore

	mu    sync.Mutex
	gate  chan error // nil: Save does not wait
	saves []map[string][]byte
}

func (s *slowStore) Save(changes map[string][]byte) error {
	s.mu.Lock()
	s.saves = append(s.saves, changes)
	gate := s.gate
	s.mu.Unlock()
	if gate != nil {
		if err := <-gate; err != nil {
			return err
		}
	}
	return s.MemoryStore.Save(changes)
}

// hold makes each Save wait for a value from gate.
func (s *slowStore) hold() (gate chan error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = make(chan error)
	s.saves = nil
	return s.gate
}

func (s *slowStore) saved() []map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.saves)
}

func asks(name string, incarnation uint64) state.Membership {
	return state.Membership{WorkerID: state.WorkerID{Name: name, Incarnation: incarnation}, Address: "192.0.2.1:7000", Lease: aLease}
}

func item(name, content string) *state.Task {
	return state.NewTask(state.Item{Name: name, Content: []byte(content)})
}

func testCommitter(t *testing.T, s Store) *committer {
	t.Helper()
	l, err := openCommitter(s, state.Rules{LeaseMin: time.Second, LeaseMax: time.Hour, Unreachable: unreachable})
	require.NoError(t, err)
	l.start()
	return l
}

// withCommitter runs a test in a bubble, with a committer whose store is empty.
func withCommitter(t *testing.T, test func(t *testing.T, s *slowStore, l *committer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{MemoryStore: NewMemoryStore()}
		test(t, s, testCommitter(t, s))
	})
}

func (l *committer) register(ctx context.Context, asked state.Membership) error {
	return l.commit(ctx, func(s *state.State, now time.Time) error { return s.Register(now, asked) })
}

func (l *committer) put(ctx context.Context, items ...*state.Task) error {
	return l.commit(ctx, func(s *state.State, _ time.Time) error {
		s.Put(items)
		return nil
	})
}

func TestR2_NothingIsAnsweredBeforeItIsStored(t *testing.T) {
	withCommitter(t, func(t *testing.T, s *slowStore, l *committer) {
		var told []state.Delta
		l.publish = func(n state.Delta) { told = append(told, n) }
		gate := s.hold()

		answers := make(chan error, 3)
		go func() { answers <- l.put(t.Context(), item("a", "x")) }()
		synctest.Wait()
		go func() { answers <- l.register(t.Context(), asks("w", 1)) }()
		synctest.Wait()
		go func() {
			answers <- l.commit(t.Context(), func(s *state.State, _ time.Time) error { return s.Remove([]string{"nobody's"}) })
		}()
		synctest.Wait()
		require.Len(t, s.saved(), 1)
		require.Empty(t, answers)
		require.Empty(t, told)
		_, _, ok := l.committed.Content("a")
		require.False(t, ok)
		require.Empty(t, l.committed.Items("", 1))

		gate <- nil
		synctest.Wait()
		require.Len(t, told, 1)
		require.NoError(t, <-answers)
		require.Empty(t, answers, "a refusal may depend on unsaved changes")
		content, _, ok := l.committed.Content("a")
		require.True(t, ok)
		require.Equal(t, "x", string(content))
		require.Empty(t, l.committed.Members())

		gate <- nil
		synctest.Wait()
		require.Len(t, told, 2)
		require.Equal(t, []state.WorkerID{{Name: "w", Incarnation: 1}}, []state.WorkerID{told[1].Came[0].WorkerID})
		first, second := <-answers, <-answers
		require.ErrorIs(t, errors.Join(first, second), state.ErrNotFound)
		require.Len(t, l.committed.Members(), 1)
		l.close()
	})
}

func TestR2_ManyAtOnceAreSavedTogether(t *testing.T) {
	withCommitter(t, func(t *testing.T, s *slowStore, l *committer) {
		gate := s.hold()
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				if err := l.register(t.Context(), asks(fmt.Sprint("w", i), 1)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		gate <- nil
		gate <- nil
		all.Wait()
		require.Len(t, s.saved(), 2)
		require.Len(t, l.committed.Members(), 1000)
	})
}

func TestR2_ASlowDiskHoldsUpNoHeartbeat(t *testing.T) {
	withCommitter(t, func(t *testing.T, s *slowStore, l *committer) {
		w := state.WorkerID{Name: "w", Incarnation: 1}
		require.NoError(t, l.register(t.Context(), asks("w", 1)))
		gate := s.hold()
		put := make(chan error, 1)
		go func() { put <- l.put(t.Context(), item("a", "x")) }()
		synctest.Wait()
		granted, err := l.heartbeat(t.Context(), w, false)
		require.NoError(t, err)
		require.Equal(t, aLease, granted)
		_, err = l.heartbeat(t.Context(), state.WorkerID{Name: "w", Incarnation: 2}, false)
		require.ErrorIs(t, err, state.ErrNotMember)

		draining := make(chan error, 1)
		go func() {
			_, err := l.heartbeat(t.Context(), w, true)
			draining <- err
		}()
		synctest.Wait()
		require.Empty(t, draining, "this heartbeat changes stored state")
		gate <- nil
		gate <- nil
		require.NoError(t, <-draining)
		require.NoError(t, <-put)
		require.True(t, l.committed.Members()[0].Drains)
	})
}

func TestR2_AStoreThatFailsEndsEverything(t *testing.T) {
	withCommitter(t, func(t *testing.T, s *slowStore, l *committer) {
		l.publish = func(state.Delta) { t.Error("told what is not on disk") }
		gate := s.hold()
		answers := make(chan error, 2)
		go func() { answers <- l.put(t.Context(), item("a", "x")) }()
		synctest.Wait()
		go func() { answers <- l.put(t.Context(), item("b", "x")) }()
		synctest.Wait()
		full := errors.New("disk full")
		gate <- full
		for range 2 {
			err := <-answers
			require.ErrorIs(t, err, full)
			require.ErrorIs(t, err, ErrStopped)
		}
		require.True(t, isClosed(l.broken))
		require.ErrorIs(t, l.failure(), full)
		require.ErrorIs(t, l.put(t.Context(), item("c", "")), full)
		_, err := l.heartbeat(t.Context(), state.WorkerID{Name: "w", Incarnation: 1}, false)
		require.ErrorIs(t, err, full)
		l.close()
		require.Len(t, s.saved(), 1)
		require.Empty(t, l.committed.Items("", 10))
	})
}

func TestR2_ClosingWaitsForTheDisk(t *testing.T) {
	withCommitter(t, func(t *testing.T, s *slowStore, l *committer) {
		gate := s.hold()
		late, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		put := make(chan error, 1)
		go func() { put <- l.put(late, item("a", "x")) }()
		synctest.Wait()
		cancel(gone)
		require.ErrorIs(t, <-put, gone)
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			l.close()
		}()
		synctest.Wait()
		require.False(t, isClosed(closed))
		require.ErrorIs(t, l.put(t.Context(), item("b", "")), ErrStopped)
		gate <- nil
		<-closed
		require.Len(t, l.committed.Items("", 10), 1, "the change was made nevertheless")
		l.close()
	})
}

func TestR2_TheEpochIsOnDiskBeforeAnything(t *testing.T) {
	s := &slowStore{MemoryStore: NewMemoryStore()}
	first := testCommitter(t, s)
	second := testCommitter(t, s)
	require.Equal(t, first.epoch+1, second.epoch)
	require.Equal(t, fmt.Sprint(second.epoch), string(s.saved()[1]["epoch"]))
	_, err := openCommitter(broken{errors.New("no disk")}, state.Rules{})
	require.ErrorContains(t, err, "no disk")
	_, err = openCommitter(full{s}, state.Rules{})
	require.ErrorIs(t, err, errFull)
}

var errFull = errors.New("disk full")

// full is a store that can only be read.
type full struct{ Store }

func (full) Save(map[string][]byte) error { return errFull }

// broken is a store that cannot be read.
type broken struct{ err error }

func (b broken) Load() (map[string][]byte, error) { return nil, b.err }

func (b broken) Save(map[string][]byte) error { return b.err }

// Workers may have outlived a lost store.
func TestR2_AnEmptyStoreBeginsAboveThoseBefore(t *testing.T) {
	s := NewMemoryStore()
	l, err := openCommitter(s, state.Rules{})
	require.NoError(t, err)
	now := time.Now()
	require.WithinDuration(t, now, time.UnixMilli(int64(l.epoch)), time.Minute)
	first, err := load(s)
	require.NoError(t, err)
	require.Equal(t, l.epoch, first.Epoch)
	require.WithinDuration(t, now, time.UnixMicro(first.Revision), time.Minute)

	next, err := openCommitter(s, state.Rules{})
	require.NoError(t, err)
	require.Equal(t, l.epoch+1, next.epoch, "rises from there")
	second, err := load(s)
	require.NoError(t, err)
	require.Equal(t, first.Revision, second.Revision)
}

func TestR2_AStoreThatCannotBeReadIsAnError(t *testing.T) {
	failure := errors.New("no disk")
	_, err := load(broken{failure})
	require.ErrorIs(t, err, failure)
}
