package boltstore_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/f8949c05/orchestrator/communicator/grpc/boltstore"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

func open(t *testing.T, path string) *boltstore.Store {
	t.Helper()
	s, err := boltstore.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// again reopens the file that s has written, as the next process does.
func again(t *testing.T, s *boltstore.Store, path string) *boltstore.Store {
	t.Helper()
	require.NoError(t, s.Close())
	return open(t, path)
}

func holds(t *testing.T, s *boltstore.Store, want map[string][]byte) {
	t.Helper()
	got, err := s.Load()
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestR2_WhatIsSavedIsThereForTheNext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manager.db")
	s := open(t, path)
	holds(t, s, map[string][]byte{})
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	large := []byte(strings.Repeat("\x00\xff", 1<<19))
	long := "task/" + strings.Repeat("n", 1024)
	require.NoError(t, s.Save(map[string][]byte{
		"epoch": []byte("1"), "task/a/b\n\xff": {0}, long: large, "never was": nil,
	}))
	s = again(t, s, path)
	holds(t, s, map[string][]byte{"epoch": []byte("1"), "task/a/b\n\xff": {0}, long: large})

	require.NoError(t, s.Save(map[string][]byte{"epoch": []byte("2"), long: nil, "drain/x": []byte("{}")}))
	s = again(t, s, path)
	holds(t, s, map[string][]byte{"epoch": []byte("2"), "task/a/b\n\xff": {0}, "drain/x": []byte("{}")})
}

func TestR2_AllOrNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manager.db")
	s := open(t, path)
	require.NoError(t, s.Save(map[string][]byte{"epoch": []byte("1")}))
	tooLong := "task/" + strings.Repeat("n", bbolt.MaxKeySize)
	require.ErrorIs(t, s.Save(map[string][]byte{"epoch": []byte("2"), "drain/x": []byte("{}"), tooLong: []byte("-")}), berrors.ErrKeyTooLarge)
	holds(t, again(t, s, path), map[string][]byte{"epoch": []byte("1")})
}

func TestR2_OneManagerAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manager.db")
	s := open(t, path)
	_, err := boltstore.Open(path)
	require.ErrorIs(t, err, boltstore.ErrInUse)
	require.ErrorContains(t, err, path)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())

	require.ErrorIs(t, s.Save(map[string][]byte{"epoch": []byte("2")}), os.ErrClosed)
	_, err = s.Load()
	require.ErrorIs(t, err, os.ErrClosed)
	require.ErrorContains(t, err, path)
	holds(t, open(t, path), map[string][]byte{})
}

func TestR2_AnotherFileIsNotTouched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text")
	text := []byte(strings.Repeat("not a database\n", 10_000))
	require.NoError(t, os.WriteFile(path, text, 0o600))
	_, err := boltstore.Open(path)
	require.ErrorIs(t, err, boltstore.ErrForeign)
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
	_, err = boltstore.Open(path)
	require.ErrorIs(t, err, boltstore.ErrForeign)
	require.ErrorContains(t, err, "theirs")

	_, err = boltstore.Open(filepath.Join(t.TempDir(), "no", "folder"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
