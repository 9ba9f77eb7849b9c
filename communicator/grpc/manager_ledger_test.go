package grpc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
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

func testLedger(t *testing.T, s Store) *ledger {
	t.Helper()
	l, err := openLedger(s, rules{leaseMin: time.Second, leaseMax: time.Hour, unreachable: unreachable})
	require.NoError(t, err)
	l.start()
	return l
}

func (l *ledger) register(ctx context.Context, asked membership) error {
	return l.do(ctx, func(b *book, now time.Time) error { return b.register(now, asked) })
}

func (l *ledger) put(ctx context.Context, items ...*task) error {
	return l.do(ctx, func(b *book, _ time.Time) error {
		b.put(items)
		return nil
	})
}

func TestR2_NothingIsAnsweredBeforeItIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{MemoryStore: NewMemoryStore()}
		l := testLedger(t, s)
		var told []news
		l.tell = func(n news) { told = append(told, n) }
		gate := s.hold()

		answers := make(chan error, 3)
		go func() { answers <- l.put(t.Context(), item("a", "x")) }()
		synctest.Wait()
		go func() { answers <- l.register(t.Context(), asks("w", 1)) }()
		synctest.Wait()
		go func() {
			answers <- l.do(t.Context(), func(b *book, _ time.Time) error { return b.remove([]string{"nobody's"}) })
		}()
		synctest.Wait()
		require.Len(t, s.saved(), 1)
		require.Empty(t, answers)
		require.Empty(t, told)
		_, _, ok := l.catalog.Content("a")
		require.False(t, ok)
		require.Empty(t, l.catalog.items("", 1))

		gate <- nil
		synctest.Wait()
		require.Len(t, told, 1)
		require.NoError(t, <-answers)
		require.Empty(t, answers, "a refusal may depend on unsaved changes")
		content, _, ok := l.catalog.Content("a")
		require.True(t, ok)
		require.Equal(t, "x", string(content))
		require.Empty(t, l.catalog.members())

		gate <- nil
		synctest.Wait()
		require.Len(t, told, 2)
		require.Equal(t, []Worker{{"w", 1}}, []Worker{told[1].came[0].Worker})
		first, second := <-answers, <-answers
		require.ErrorIs(t, errors.Join(first, second), ErrNotFound)
		require.Len(t, l.catalog.members(), 1)
		l.close()
	})
}

func TestR2_ManyAtOnceAreSavedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{MemoryStore: NewMemoryStore()}
		l := testLedger(t, s)
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
		require.Len(t, l.catalog.members(), 1000)
	})
}

func TestR2_ASlowDiskHoldsUpNoHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{MemoryStore: NewMemoryStore()}
		l := testLedger(t, s)
		w := Worker{"w", 1}
		require.NoError(t, l.register(t.Context(), asks("w", 1)))
		gate := s.hold()
		put := make(chan error, 1)
		go func() { put <- l.put(t.Context(), item("a", "x")) }()
		synctest.Wait()
		granted, err := l.heartbeat(t.Context(), w, false)
		require.NoError(t, err)
		require.Equal(t, aLease, granted)
		_, err = l.heartbeat(t.Context(), Worker{"w", 2}, false)
		require.ErrorIs(t, err, errNotMember)

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
		require.True(t, l.catalog.members()[0].Draining)
	})
}

func TestR2_AStoreThatFailsEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{MemoryStore: NewMemoryStore()}
		l := testLedger(t, s)
		l.tell = func(news) { t.Error("told what is not on disk") }
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
		_, err := l.heartbeat(t.Context(), Worker{"w", 1}, false)
		require.ErrorIs(t, err, full)
		l.close()
		require.Len(t, s.saved(), 1)
		require.Empty(t, l.catalog.items("", 10))
	})
}

func TestR2_ClosingWaitsForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{MemoryStore: NewMemoryStore()}
		l := testLedger(t, s)
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
		require.Len(t, l.catalog.items("", 10), 1, "the change was made nevertheless")
		l.close()
	})
}

func TestR2_TheEpochIsOnDiskBeforeAnything(t *testing.T) {
	s := &slowStore{MemoryStore: NewMemoryStore()}
	first := testLedger(t, s)
	second := testLedger(t, s)
	require.Equal(t, first.epoch+1, second.epoch)
	require.Equal(t, fmt.Sprint(second.epoch), string(s.saved()[1]["epoch"]))
	_, err := openLedger(broken{errors.New("no disk")}, rules{})
	require.ErrorContains(t, err, "no disk")
	_, err = openLedger(full{s}, rules{})
	require.ErrorIs(t, err, errFull)
}

var errFull = errors.New("disk full")

// full is a store that can only be read.
type full struct{ Store }

func (full) Save(map[string][]byte) error { return errFull }

func TestR1_PagesAreInOrderWhateverHappened(t *testing.T) {
	c := newCatalog(newRecords())
	random := rand.New(rand.NewPCG(1, 2))
	want := make(map[string]bool)
	for range 300 {
		change := newRecords()
		for range random.IntN(20) {
			name := fmt.Sprint(random.IntN(100))
			change.tasks[name], want[name] = item(name, ""), true
			if random.IntN(2) == 0 {
				change.tasks[name] = nil
				delete(want, name)
			}
		}
		c.apply(&change)
		if random.IntN(3) == 0 {
			continue
		}
		names := slices.Sorted(maps.Keys(want))
		var got []string
		after, limit := "", 1+random.IntN(10)
		for {
			page := c.items(after, limit)
			for _, i := range page {
				got = append(got, i.Name)
			}
			if len(page) < limit {
				break
			}
			after = page[limit-1].Name
		}
		require.True(t, slices.Equal(names, got), "%s: %s", names, got)
		between := fmt.Sprint(random.IntN(100), "-")
		page := c.items(between, 1)
		i := slices.IndexFunc(names, func(n string) bool { return strings.Compare(n, between) > 0 })
		require.Equal(t, i >= 0, len(page) > 0)
		if i >= 0 {
			require.Equal(t, names[i], page[0].Name)
		}
	}
}

// Names are added and removed, each once, and no page is requested.
func TestR1_NothingIsRememberedOfWhatHasComeAndGone(t *testing.T) {
	c := newCatalog(newRecords())
	apply := func(of func(change *records)) {
		change := newRecords()
		of(&change)
		c.apply(&change)
	}
	for i := range 100 {
		name := fmt.Sprint(i)
		apply(func(change *records) { change.tasks[name] = item(name, "") })
		apply(func(change *records) { change.tasks[name], change.done[name] = nil, &finished{} })
		apply(func(change *records) { change.done[name] = nil })
	}
	require.Empty(t, c.tasks.touched)
	require.Empty(t, c.done.touched)

	apply(func(change *records) { change.tasks["kept"] = item("kept", "") })
	require.Len(t, c.items("", 10), 1)
	apply(func(change *records) { change.tasks["kept"] = nil })
	apply(func(change *records) { change.tasks["kept"] = item("kept", "again") })
	require.Empty(t, c.tasks.touched)
	require.Len(t, c.items("", 10), 1)
}
