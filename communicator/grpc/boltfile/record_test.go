package boltfile_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/f8949c05/orchestrator/communicator/grpc/boltfile"
	"github.com/f8949c05/orchestrator/worker"
)

func openRecord(t *testing.T, path string) *boltfile.Record {
	t.Helper()
	r, err := boltfile.OpenRecord(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// reopenRecord closes r and opens its file again, as the next process would.
func reopenRecord(t *testing.T, r *boltfile.Record, path string) *boltfile.Record {
	t.Helper()
	require.NoError(t, r.Close())
	return openRecord(t, path)
}

func load(t *testing.T, r *boltfile.Record) []worker.TaskRecord[string] {
	t.Helper()
	records, err := r.Load()
	require.NoError(t, err)
	return records
}

func TestW6_TheNextProcessLoadsWhatWasSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "worker.db")
	r := openRecord(t, path)
	require.Empty(t, load(t, r))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	records := []worker.TaskRecord[string]{
		{Task: ""},
		{Task: "a/b\n=#ü", Completed: true, Version: -3},
		{Task: "\xff\x00", Version: 1 << 62, Token: 1<<64 - 1, Scope: 5, Receipt: "\xff\x00"},
		{Task: strings.Repeat("n", bbolt.MaxKeySize-1)},
		{Task: strings.Repeat("n", bbolt.MaxKeySize), Token: 1},
		{Task: strings.Repeat("\xfe", 1<<20), Token: 2},
	}
	require.NoError(t, r.Save(records, []string{"never was"}))
	r = reopenRecord(t, r, path)
	require.ElementsMatch(t, records, load(t, r))

	changed := worker.TaskRecord[string]{Task: "", Completed: true}
	require.NoError(t, r.Save([]worker.TaskRecord[string]{changed}, []string{records[1].Task, records[5].Task}))
	r = reopenRecord(t, r, path)
	require.ElementsMatch(t, []worker.TaskRecord[string]{changed, records[2], records[3], records[4]}, load(t, r))

	require.NoError(t, r.Remove())
	require.NoFileExists(t, path)
	require.ErrorIs(t, r.Remove(), os.ErrClosed)
	require.ErrorIs(t, r.Save(records, nil), os.ErrClosed)
	_, err = r.Load()
	require.ErrorIs(t, err, os.ErrClosed)
	require.ErrorContains(t, err, path)
}

// What a Record adds to the behavior of a damaged file: it can be removed, and the
// lock is kept until then.
func TestW6_DamagedRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "worker.db")
	r := openRecord(t, path)
	var records []worker.TaskRecord[string]
	for i := range 1000 {
		records = append(records, worker.TaskRecord[string]{Task: fmt.Sprintf("%0200d", i)})
	}
	require.NoError(t, r.Save(records, nil))
	require.NoError(t, os.Truncate(path, int64(4*os.Getpagesize())))
	_, err := r.Load()
	require.ErrorIs(t, err, boltfile.ErrDamaged)
	require.ErrorIs(t, r.Save(records[150:151], nil), boltfile.ErrDamaged)
	_, err = boltfile.OpenRecord(path)
	require.ErrorIs(t, err, boltfile.ErrInUse)
	require.NoError(t, r.Remove())
	require.Empty(t, load(t, openRecord(t, path)))
}

func TestW6_StoreIsNoRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manager.db")
	require.NoError(t, openStore(t, path).Close())
	_, err := boltfile.OpenRecord(path)
	require.ErrorIs(t, err, boltfile.ErrForeign)
	require.ErrorContains(t, err, path)
}

func TestW6_LayoutOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "worker.db")
	write(t, path, "orchestrator worker 1", "=a",
		`{"failed":true,"err":"Ymc=","attempts":2,"version":3,"token":4,"scope":5,"receipt":"/w=="}`)
	require.Equal(t, []worker.TaskRecord[string]{{
		Task: "a", Failed: true, Err: "bg", Attempts: 2, Version: 3, Token: 4, Scope: 5, Receipt: "\xff",
	}}, load(t, openRecord(t, path)))
}

func TestW6_InvalidEntry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "worker.db")
	write(t, path, "orchestrator worker 1", "=a", "{")
	_, err := worker.New(run, worker.WithRecord(openRecord(t, path)))
	require.ErrorIs(t, err, boltfile.ErrDamaged)
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
	first := openRecord(t, path)
	watched := &watched{Record: first, saved: make(chan struct{}, 100)}
	w, err := worker.New(run, append(options, worker.WithRecord(watched))...)
	require.NoError(t, err)
	require.NoError(t, w.AddWith(t.Context(), "long", worker.Grant{Version: 5, Token: 7, Scope: 3}))
	require.NoError(t, w.Add(t.Context(), "short"))
	<-completed
	want := []worker.TaskRecord[string]{{Task: "short", Completed: true}, {Task: "long", Version: 5, Token: 7, Scope: 3}}
	for !slices.ContainsFunc(load(t, first), func(t worker.TaskRecord[string]) bool { return t.Completed }) {
		<-watched.saved
	}
	crash := reopenRecord(t, first, path)

	next, err := worker.New(run, worker.WithRecord(crash))
	require.NoError(t, err)
	require.Equal(t, want, next.Previous())
	require.NoError(t, next.Close(t.Context()))
	require.NoFileExists(t, path)
	require.ErrorIs(t, w.Close(t.Context()), os.ErrClosed)
}

// watched reports each Save.
type watched struct {
	*boltfile.Record
	saved chan struct{}
}

func (w *watched) Save(records []worker.TaskRecord[string], gone []string) error {
	defer func() { w.saved <- struct{}{} }()
	return w.Record.Save(records, gone)
}

// An Open that waits for the lock of a file must not use that file after it was
// removed, because no other process would find it.
func TestW6_ARecordThatIsRemovedWhileTheNextWaits(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "worker.db")
		r := openRecord(t, path)
		opened := make(chan *boltfile.Record)
		go func() {
			next, err := boltfile.OpenRecord(path)
			if err != nil {
				t.Error(err)
			}
			opened <- next
		}()
		require.NoError(t, r.Remove())
		next := <-opened
		require.NotNil(t, next)
		require.NoError(t, next.Save([]worker.TaskRecord[string]{{Task: "a"}}, nil))
		require.Len(t, load(t, reopenRecord(t, next, path)), 1)
	}
}
