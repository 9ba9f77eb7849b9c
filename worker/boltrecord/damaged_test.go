package boltrecord_test

// Truncated and overwritten files.

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/f8949c05/orchestrator/worker"
	"github.com/f8949c05/orchestrator/worker/boltrecord"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// full writes a file of several hundred KiB in two transactions, and returns the
// traces after each. If the meta page of the second transaction is lost, bbolt falls
// back to the first, as after a crash.
func full(t *testing.T, path string) (before, after []worker.Previous[string]) {
	t.Helper()
	s := open(t, path)
	for i := range 1000 {
		before = append(before, worker.Previous[string]{Task: fmt.Sprintf("%0200d", i), Version: int64(i)})
	}
	require.NoError(t, s.Save(before, nil))
	after = slices.Clone(before)
	for i := 0; i < len(after); i += 3 {
		after[i].Completed = true
	}
	require.NoError(t, s.Save(after, nil))
	require.NoError(t, s.Close())
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	require.NoError(t, err)
	var used int64
	require.NoError(t, db.View(func(tx *bbolt.Tx) error { used = tx.Size(); return nil }))
	require.NoError(t, db.Close())
	require.Greater(t, used, int64(300<<10))
	require.NoError(t, os.Truncate(path, used)) // cut off the unused rest
	return before, after
}

// read opens and loads a file as a new process does.
func read(path string) ([]worker.Previous[string], error) {
	s, err := boltrecord.Open(path)
	if err != nil {
		return nil, err
	}
	got, err := s.Load()
	if closing := s.Close(); closing != nil {
		return nil, closing
	}
	return got, err
}

// isDamaged reports whether err wraps ErrDamaged; otherwise it requires ErrForeign.
// It requires that the error names the path, and that the next attempt fails in the
// same way.
func isDamaged(t *testing.T, path string, err error) bool {
	t.Helper()
	want := boltrecord.ErrDamaged
	if errors.Is(err, boltrecord.ErrForeign) {
		want = boltrecord.ErrForeign
	}
	require.ErrorIs(t, err, want)
	require.ErrorContains(t, err, path)
	_, err = read(path)
	require.ErrorIs(t, err, want, "the second time")
	return errors.Is(err, boltrecord.ErrDamaged)
}

func TestW6_AFileThatWasCutShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cut.db")
	_, content := full(t, path)
	info, err := os.Stat(path)
	require.NoError(t, err)
	got, err := read(path)
	require.NoError(t, err)
	require.True(t, reflect.DeepEqual(content, got))
	for size := (info.Size() - 1) &^ 511; size > 0; size -= 512 { // an empty file is a new one
		require.NoError(t, os.Truncate(path, size))
		_, err := read(path)
		if !isDamaged(t, path, err) {
			require.Less(t, size, int64(2*os.Getpagesize()), "the file is long enough to be recognized")
		}
		after, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, size, after.Size(), "the file is unchanged")
	}
}

func TestW6_AFileThatIsCutShortWhileItIsOpen(t *testing.T) {
	for _, use := range []func(s *boltrecord.Record) error{
		func(s *boltrecord.Record) error { _, err := s.Load(); return err },
		func(s *boltrecord.Record) error {
			return s.Save([]worker.Previous[string]{{Task: strings.Repeat("0", 197) + "150"}}, nil)
		}, // reads a part of the mapping that the file no longer has
	} {
		path := filepath.Join(t.TempDir(), "cut.db")
		full(t, path)
		s := open(t, path)
		require.NoError(t, os.Truncate(path, int64(4*os.Getpagesize())))
		require.ErrorIs(t, use(s), boltrecord.ErrDamaged)
		require.ErrorIs(t, s.Save([]worker.Previous[string]{{Task: strings.Repeat("0", 197) + "150"}}, nil), boltrecord.ErrDamaged)
		_, err := s.Load()
		require.ErrorIs(t, err, boltrecord.ErrDamaged)
		require.ErrorContains(t, err, path)
		_, err = boltrecord.Open(path)
		require.ErrorIs(t, err, boltrecord.ErrInUse, "until it is closed")
		require.NoError(t, s.Remove())
		got, err := read(path)
		require.NoError(t, err)
		require.Empty(t, got)
	}
}

func TestW6_AFileWithAPageWrittenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "over.db")
	before, after := full(t, path)
	original, err := os.ReadFile(path)
	require.NoError(t, err)
	random := rand.NewChaCha8([32]byte{1})
	size, damaged := os.Getpagesize(), 0
	for at := 0; at < len(original); at += size {
		content := slices.Clone(original)
		_, _ = random.Read(content[at : at+size])
		require.NoError(t, os.WriteFile(path, content, 0o600))
		got, err := read(path)
		switch {
		case err != nil:
			require.True(t, isDamaged(t, path, err))
			damaged++
		case at < 2*size:
			require.True(t, reflect.DeepEqual(before, got) || reflect.DeepEqual(after, got), "page %d", at/size)
		default:
			require.True(t, reflect.DeepEqual(after, got), "page %d", at/size)
		}
	}
	require.Greater(t, damaged, len(original)/size/4)
}

// Some of this damage cannot be found, but none of it may end the process or keep
// the file locked.
func TestW6_AFileWithBytesWrittenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "over.db")
	full(t, path)
	original, err := os.ReadFile(path)
	require.NoError(t, err)
	page := os.Getpagesize()
	for seed := range byte(200) {
		seeds := rand.NewChaCha8([32]byte{seed})
		random := rand.New(seeds)
		content := slices.Clone(original)
		for range 1 + random.IntN(8) {
			at := random.IntN(len(original)/page) * page
			if random.IntN(2) == 0 {
				at += random.IntN(64) // the header of the page
			} else {
				at += random.IntN(page)
			}
			_, _ = seeds.Read(content[at:min(at+1+random.IntN(256), len(content))])
		}
		require.NoError(t, os.WriteFile(path, content, 0o600))
		s, err := boltrecord.Open(path)
		if err != nil {
			_ = isDamaged(t, path, err)
			continue
		}
		if _, err := s.Load(); err != nil {
			require.ErrorIs(t, err, boltrecord.ErrDamaged, "seed %d", seed)
		}
		_ = s.Save([]worker.Previous[string]{{Task: strings.Repeat("0", 197) + "150"}}, nil) // a damaged list of free pages may direct it to any page
		require.NoError(t, s.Close())
	}
}

func TestW6_AFileThatIsTooShortIsForeign(t *testing.T) {
	for _, size := range []int{1, 100, 4095, 4096, 5000, 8191, 8192, 20_000} {
		path := filepath.Join(t.TempDir(), "short")
		content := make([]byte, size)
		_, _ = rand.NewChaCha8([32]byte{2}).Read(content)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		_, err := boltrecord.Open(path)
		require.ErrorIs(t, err, boltrecord.ErrForeign, "%d bytes", size)
		require.False(t, isDamaged(t, path, err))
		left, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, content, left)
	}
	_, err := boltrecord.Open(t.TempDir())
	require.ErrorIs(t, err, syscall.EISDIR)
	require.NotErrorIs(t, err, boltrecord.ErrForeign)
}
