package embed_test

// One data folder, and more than one server that wants it.

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
)

func TestEmbed_FolderInUse(t *testing.T) {
	dir := t.TempDir()
	first := start(t, embed.Config{Dir: dir, NoFsync: true})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := embed.Start(ctx, embed.Config{Dir: dir})
	require.ErrorIs(t, err, embed.ErrFolderInUse)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, dir)

	began := time.Now()
	_, err = embed.Start(t.Context(), embed.Config{Dir: dir})
	require.ErrorIs(t, err, embed.ErrFolderInUse, "without a deadline too")
	require.ErrorContains(t, err, dir)
	require.Less(t, time.Since(began), 5*time.Second)
	require.NoError(t, first.Close())
}

// TestEmbed_FolderOfOneThatEnds has the next server wait for the last one, which
// is about to end.
func TestEmbed_FolderOfOneThatEnds(t *testing.T) {
	dir := t.TempDir()
	first := start(t, embed.Config{Dir: dir, NoFsync: true})
	ended := make(chan error, 1)
	defer time.AfterFunc(100*time.Millisecond, func() { ended <- first.Close() }).Stop()
	start(t, embed.Config{Dir: dir, NoFsync: true})
	require.NoError(t, <-ended)
}

// TestEmbed_FolderOfAnEtcdByItself has the folder open that knows nothing of this
// package: it has only bbolt's lock.
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
