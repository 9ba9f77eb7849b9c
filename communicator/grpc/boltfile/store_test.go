package boltfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/f8949c05/orchestrator/communicator/grpc/boltfile"
)

func openStore(t *testing.T, path string) *boltfile.Store {
	t.Helper()
	s, err := boltfile.OpenStore(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// reopenStore reopens the file that s has written, as the next process does.
func reopenStore(t *testing.T, s *boltfile.Store, path string) *boltfile.Store {
	t.Helper()
	require.NoError(t, s.Close())
	return openStore(t, path)
}

func requireValues(t *testing.T, s *boltfile.Store, want map[string][]byte) {
	t.Helper()
	got, err := s.Load()
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestR2_WhatIsSavedIsThereForTheNext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manager.db")
	s := openStore(t, path)
	requireValues(t, s, map[string][]byte{})
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	large := []byte(strings.Repeat("\x00\xff", 1<<19))
	long := "task/" + strings.Repeat("n", 1024)
	require.NoError(t, s.Save(map[string][]byte{
		"epoch": []byte("1"), "task/a/b\n\xff": {0}, long: large, "never was": nil,
	}))
	s = reopenStore(t, s, path)
	requireValues(t, s, map[string][]byte{"epoch": []byte("1"), "task/a/b\n\xff": {0}, long: large})

	require.NoError(t, s.Save(map[string][]byte{"epoch": []byte("2"), long: nil, "drain/x": []byte("{}")}))
	s = reopenStore(t, s, path)
	requireValues(t, s, map[string][]byte{"epoch": []byte("2"), "task/a/b\n\xff": {0}, "drain/x": []byte("{}")})
}

func TestR2_AllOrNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manager.db")
	s := openStore(t, path)
	require.NoError(t, s.Save(map[string][]byte{"epoch": []byte("1")}))
	tooLong := "task/" + strings.Repeat("n", bbolt.MaxKeySize)
	require.ErrorIs(t, s.Save(map[string][]byte{"epoch": []byte("2"), "drain/x": []byte("{}"), tooLong: []byte("-")}), berrors.ErrKeyTooLarge)
	requireValues(t, reopenStore(t, s, path), map[string][]byte{"epoch": []byte("1")})
}

func TestR2_LayoutOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manager.db")
	write(t, path, "orchestrator manager 1", "epoch", "7")
	requireValues(t, openStore(t, path), map[string][]byte{"epoch": []byte("7")})
}
