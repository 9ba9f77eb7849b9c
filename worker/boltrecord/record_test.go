package boltrecord_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/f8949c05/orchestrator/worker"
	"github.com/f8949c05/orchestrator/worker/boltrecord"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, path string) *boltrecord.Record {
	t.Helper()
	r, err := boltrecord.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// again closes r and opens its file again, as the next process would.
func again(t *testing.T, r *boltrecord.Record, path string) *boltrecord.Record {
	t.Helper()
	require.NoError(t, r.Close())
	return open(t, path)
}

func load(t *testing.T, r *boltrecord.Record) []worker.Previous[string] {
	t.Helper()
	traces, err := r.Load()
	require.NoError(t, err)
	return traces
}

func TestW6_TheNextProcessLoadsWhatWasSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "worker.db")
	r := open(t, path)
	require.Empty(t, load(t, r))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	traces := []worker.Previous[string]{
		{Task: ""},
		{Task: "a/b\n=#ü", Completed: true, Version: -3},
		{Task: "\xff\x00", Version: 1 << 62, Token: 1<<64 - 1, Scope: 5, Receipt: "\xff\x00"},
		{Task: strings.Repeat("n", bbolt.MaxKeySize-1)},
		{Task: strings.Repeat("n", bbolt.MaxKeySize), Token: 1},
		{Task: strings.Repeat("\xfe", 1<<20), Token: 2},
	}
	require.NoError(t, r.Save(traces, []string{"never was"}))
	r = again(t, r, path)
	require.ElementsMatch(t, traces, load(t, r))

	changed := worker.Previous[string]{Task: "", Completed: true}
	require.NoError(t, r.Save([]worker.Previous[string]{changed}, []string{traces[1].Task, traces[5].Task}))
	r = again(t, r, path)
	require.ElementsMatch(t, []worker.Previous[string]{changed, traces[2], traces[3], traces[4]}, load(t, r))

	require.NoError(t, r.Remove())
	require.NoFileExists(t, path)
	require.ErrorIs(t, r.Remove(), os.ErrClosed)
	require.ErrorIs(t, r.Save(traces, nil), os.ErrClosed)
	_, err = r.Load()
	require.ErrorIs(t, err, os.ErrClosed)
	require.ErrorContains(t, err, path)
}

func TestW6_OneAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "worker.db")
	r := open(t, path)
	_, err := boltrecord.Open(path)
	require.ErrorIs(t, err, boltrecord.ErrInUse)
	require.ErrorContains(t, err, path)
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	open(t, path)
}

func TestW6_AnotherFileIsNotTouched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text")
	text := []byte(strings.Repeat("not a database\n", 10_000))
	require.NoError(t, os.WriteFile(path, text, 0o600))
	_, err := boltrecord.Open(path)
	require.ErrorIs(t, err, boltrecord.ErrForeign)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, text, after)

	path = filepath.Join(t.TempDir(), "other.db")
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("theirs"))
		return err
	}))
	require.NoError(t, db.Close())
	_, err = boltrecord.Open(path)
	require.ErrorIs(t, err, boltrecord.ErrForeign)
	require.ErrorContains(t, err, "theirs")

	_, err = boltrecord.Open(filepath.Join(t.TempDir(), "no", "folder"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestW6_AnEntryThatCannotBeReadIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "worker.db")
	require.NoError(t, open(t, path).Close())
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("orchestrator worker 1")).Put([]byte("=a"), []byte("{"))
	}))
	require.NoError(t, db.Close())
	_, err = worker.New(run, worker.WithRecord(open(t, path)))
	require.ErrorContains(t, err, `"=a"`)
}

func run(ctx context.Context, task string) error {
	if task != "short" {
		<-ctx.Done()
	}
	return nil
}

// A worker that is never closed leaves the same file as a crashed process.
func TestW6_AfterACrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "worker.db")
	completed := make(chan struct{})
	options := []worker.Option{worker.WithCompletion(func(string) { close(completed) })}
	first := open(t, path)
	watched := &watched{Record: first, saved: make(chan struct{}, 100)}
	w, err := worker.New(run, append(options, worker.WithRecord(watched))...)
	require.NoError(t, err)
	require.NoError(t, w.AddWith(t.Context(), "long", worker.Grant{Version: 5, Token: 7, Scope: 3}))
	require.NoError(t, w.Add(t.Context(), "short"))
	<-completed
	want := []worker.Previous[string]{{Task: "short", Completed: true}, {Task: "long", Version: 5, Token: 7, Scope: 3}}
	for !slices.ContainsFunc(load(t, first), func(t worker.Previous[string]) bool { return t.Completed }) {
		<-watched.saved
	}
	crash := again(t, first, path)

	next, err := worker.New(run, worker.WithRecord(crash))
	require.NoError(t, err)
	require.Equal(t, want, next.Before())
	require.NoError(t, next.Close(t.Context()))
	require.NoFileExists(t, path)
	require.ErrorIs(t, w.Close(t.Context()), os.ErrClosed)
}

// watched reports each Save.
type watched struct {
	*boltrecord.Record
	saved chan struct{}
}

func (w *watched) Save(traces []worker.Previous[string], gone []string) error {
	defer func() { w.saved <- struct{}{} }()
	return w.Record.Save(traces, gone)
}

// An Open that waits for the lock of a file must not use that file after it was
// removed, because no other process would find it.
func TestW6_ARecordThatIsRemovedWhileTheNextWaits(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "worker.db")
		r := open(t, path)
		opened := make(chan *boltrecord.Record)
		go func() {
			next, err := boltrecord.Open(path)
			if err != nil {
				t.Error(err)
			}
			opened <- next
		}()
		require.NoError(t, r.Remove())
		next := <-opened
		require.NotNil(t, next)
		require.NoError(t, next.Save([]worker.Previous[string]{{Task: "a"}}, nil))
		require.Len(t, load(t, again(t, next, path)), 1)
	}
}
