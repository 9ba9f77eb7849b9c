package embed_test

// One data folder, and two servers.

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/f8949c05/orchestrator/internal/proctest"
	"github.com/f8949c05/orchestrator/replica/etcd/embed"
)

func TestEmbed_FolderInUse(t *testing.T) {
	t.Parallel() // it mostly waits
	dir := t.TempDir()
	first := start(t, embed.Config{Dir: dir, NoFsync: true})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := embed.Start(ctx, embed.Config{Dir: dir})
	require.ErrorIs(t, err, embed.ErrFolderInUse)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, dir)

	waited := proctest.MeasureWaiting(t)
	began := time.Now()
	_, err = embed.Start(t.Context(), embed.Config{Dir: dir})
	require.ErrorIs(t, err, embed.ErrFolderInUse, "without a deadline")
	require.ErrorContains(t, err, dir)
	require.Less(t, time.Since(began)-waited(), 5*time.Second)
	require.NoError(t, first.Close())
}

// The next server waits for a server that is stopping.
func TestEmbed_FolderOfOneThatEnds(t *testing.T) {
	dir := t.TempDir()
	first := start(t, embed.Config{Dir: dir, NoFsync: true})
	ended := make(chan error, 1)
	defer time.AfterFunc(100*time.Millisecond, func() { ended <- first.Close() }).Stop()
	start(t, embed.Config{Dir: dir, NoFsync: true})
	require.NoError(t, <-ended)
}

// The folder is opened by a process that has only bbolt's lock, such as etcd's own
// binary.
func TestEmbed_FolderOfAnEtcdByItself(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, start(t, embed.Config{Dir: dir, NoFsync: true}).Close())
	db, err := bolt.Open(filepath.Join(dir, "member", "snap", "db"), 0o600, nil)
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = embed.Start(ctx, embed.Config{Dir: dir})
	require.ErrorIs(t, err, embed.ErrFolderInUse)
	require.NoError(t, db.Close())
	start(t, embed.Config{Dir: dir, NoFsync: true})
}

func TestEmbed_FolderThatCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := embed.Start(t.Context(), embed.Config{Dir: filepath.Join(file, "data")})
	require.ErrorContains(t, err, file)
}
