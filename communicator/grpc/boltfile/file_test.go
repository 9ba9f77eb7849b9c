package boltfile_test

// What records and stores share. Most of it is tested with a Store.

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator/communicator/grpc/boltfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestR2_FileIsOpenOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manager.db")
	s := openStore(t, path)
	_, err := boltfile.OpenStore(path)
	require.ErrorIs(t, err, boltfile.ErrInUse)
	require.ErrorContains(t, err, path)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())

	require.ErrorIs(t, s.Save(map[string][]byte{"epoch": []byte("2")}), os.ErrClosed)
	_, err = s.Load()
	require.ErrorIs(t, err, os.ErrClosed)
	require.ErrorContains(t, err, path)
	requireValues(t, openStore(t, path), map[string][]byte{})
}

func TestR2_ForeignFileIsNotChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text")
	text := []byte(strings.Repeat("not a database\n", 10_000))
	require.NoError(t, os.WriteFile(path, text, 0o600))
	_, err := boltfile.OpenStore(path)
	require.ErrorIs(t, err, boltfile.ErrForeign)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, text, after)

	path = filepath.Join(t.TempDir(), "other.db")
	write(t, path, "theirs", "a", "b")
	_, err = boltfile.OpenStore(path)
	require.ErrorIs(t, err, boltfile.ErrForeign)
	require.ErrorContains(t, err, "theirs")

	_, err = boltfile.OpenStore(filepath.Join(t.TempDir(), "no", "folder"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// write creates a file with an entry without this package.
func write(t *testing.T, path, bucket, key, value string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte(bucket))
		if err != nil {
			return err
		}
		return b.Put([]byte(key), []byte(value))
	}))
	require.NoError(t, db.Close())
}

// full creates a file of several hundred KiB with two transactions, and returns the
// contents after each. If the meta page of the second is lost, bbolt returns to the
// first, as after a crash.
func full(t *testing.T, path string) (before, after map[string][]byte) {
	t.Helper()
	s := openStore(t, path)
	before = make(map[string][]byte)
	for i := range 1000 {
		before[fmt.Sprintf("task/%04d", i)] = fmt.Appendf(nil, "content %0200d", i)
	}
	require.NoError(t, s.Save(before))
	change := make(map[string][]byte)
	for i := 0; i < 1000; i += 3 {
		change[fmt.Sprintf("task/%04d", i)] = fmt.Appendf(nil, "another %0200d", i)
	}
	require.NoError(t, s.Save(change))
	after = maps.Clone(before)
	maps.Copy(after, change)
	require.NoError(t, s.Close())
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	require.NoError(t, err)
	var used int64
	require.NoError(t, db.View(func(tx *bbolt.Tx) error { used = tx.Size(); return nil }))
	require.NoError(t, db.Close())
	require.Greater(t, used, int64(300<<10))
	require.NoError(t, os.Truncate(path, used)) // the pages behind were never used
	return before, after
}

// read opens and loads a store, as a starting process does.
func read(path string) (map[string][]byte, error) {
	s, err := boltfile.OpenStore(path)
	if err != nil {
		return nil, err
	}
	got, err := s.Load()
	if closing := s.Close(); closing != nil {
		return nil, closing
	}
	return got, err
}

// isDamaged reports whether err is ErrDamaged; otherwise it must be ErrForeign. The
// error must contain the path, and a second attempt must return the same error.
func isDamaged(t *testing.T, path string, err error) bool {
	t.Helper()
	want := boltfile.ErrDamaged
	if errors.Is(err, boltfile.ErrForeign) {
		want = boltfile.ErrForeign
	}
	require.ErrorIs(t, err, want)
	require.ErrorContains(t, err, path)
	_, err = read(path)
	require.ErrorIs(t, err, want, "the second time")
	return errors.Is(err, boltfile.ErrDamaged)
}

func TestR2_TruncatedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cut.db")
	_, content := full(t, path)
	info, err := os.Stat(path)
	require.NoError(t, err)
	got, err := read(path)
	require.NoError(t, err)
	require.True(t, reflect.DeepEqual(content, got))
	for size := (info.Size() - 1) &^ 511; size > 0; size -= 512 { // an empty file is a new store
		require.NoError(t, os.Truncate(path, size))
		_, err := read(path)
		if !isDamaged(t, path, err) {
			require.Less(t, size, int64(2*os.Getpagesize()), "enough bytes to identify the file")
		}
		after, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, size, after.Size(), "the file is unchanged")
	}
}

func TestR2_FileTruncatedWhileOpen(t *testing.T) {
	for _, use := range []func(s *boltfile.Store) error{
		func(s *boltfile.Store) error { _, err := s.Load(); return err },
		func(s *boltfile.Store) error { return s.Save(map[string][]byte{"task/0150": []byte("-")}) }, // reads a mapped page that no longer exists
	} {
		path := filepath.Join(t.TempDir(), "cut.db")
		full(t, path)
		s := openStore(t, path)
		require.NoError(t, os.Truncate(path, int64(4*os.Getpagesize())))
		require.ErrorIs(t, use(s), boltfile.ErrDamaged)
		require.ErrorIs(t, s.Save(map[string][]byte{"task/0150": []byte("-")}), boltfile.ErrDamaged)
		_, err := s.Load()
		require.ErrorIs(t, err, boltfile.ErrDamaged)
		require.ErrorContains(t, err, path)
		require.NoError(t, s.Close())
		_, err = read(path)
		require.ErrorIs(t, err, boltfile.ErrDamaged)
	}
}

func TestR2_OverwrittenPage(t *testing.T) {
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

// Not all of this damage can be detected, but it must neither end the process nor
// leave the file locked.
func TestR2_OverwrittenBytes(t *testing.T) {
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
				at += random.IntN(64) // within the header of a page
			} else {
				at += random.IntN(page)
			}
			_, _ = seeds.Read(content[at:min(at+1+random.IntN(256), len(content))])
		}
		require.NoError(t, os.WriteFile(path, content, 0o600))
		s, err := boltfile.OpenStore(path)
		if err != nil {
			_ = isDamaged(t, path, err)
			continue
		}
		if _, err := s.Load(); err != nil {
			require.ErrorIs(t, err, boltfile.ErrDamaged, "seed %d", seed)
		}
		_ = s.Save(map[string][]byte{"task/0150": []byte("-")}) // a damaged list of free pages may make it write anywhere
		require.NoError(t, s.Close())
	}
}

func TestR2_ShortFileIsForeign(t *testing.T) {
	for _, size := range []int{1, 100, 4095, 4096, 5000, 8191, 8192, 20_000} {
		path := filepath.Join(t.TempDir(), "short")
		content := make([]byte, size)
		_, _ = rand.NewChaCha8([32]byte{2}).Read(content)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		_, err := boltfile.OpenStore(path)
		require.ErrorIs(t, err, boltfile.ErrForeign, "%d bytes", size)
		require.False(t, isDamaged(t, path, err))
		left, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, content, left)
	}
	_, err := boltfile.OpenStore(t.TempDir())
	require.ErrorIs(t, err, syscall.EISDIR)
	require.NotErrorIs(t, err, boltfile.ErrForeign)
}
