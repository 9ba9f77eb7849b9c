package boltstore

// The Store, and how it opens its file.

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// What Open returns, wrapped with the path.
var (
	// ErrInUse says that another process, or another Store of this one, has the
	// file open.
	ErrInUse = errors.New("in use by another manager")

	// ErrForeign says that the file is no store, or that of a later version of
	// this package. It was not changed.
	ErrForeign = errors.New("not a store of this version")
)

// bucket holds everything. What it holds stands in its name, so that a later
// layout gets another.
var bucket = []byte("orchestrator manager 1")

// lockWait is how long Open waits for a process that is on its way out.
const lockWait = time.Second

// Store is a [grpc.Store] in a file. Its methods may be called from any number
// of goroutines.
type Store struct {
	path string

	mu sync.RWMutex // held for reading while db is used
	db *bbolt.DB    // nil: closed
}

var _ grpc.Store = (*Store)(nil)

// Open opens the store at path, or makes it, readable for its owner only. The
// folder must be there, on a file system that can lock files. It waits a second
// for a process that still has the file open, and fails then with an error that
// wraps [ErrInUse]; a file that is something else is one that wraps [ErrForeign].
//
// Whoever opens a store closes it: after the manager's Run has returned.
func Open(path string) (*Store, error) {
	db, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	return &Store{path: path, db: db}, nil
}

func open(path string) (*bbolt.DB, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, ErrInUse
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrVersionMismatch), errors.Is(err, berrors.ErrChecksum):
		return nil, fmt.Errorf("%w: %w", ErrForeign, err)
	case err != nil:
		return nil, err
	}
	if err := db.Update(claim); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// claim makes the bucket, in a file that holds nothing yet.
func claim(tx *bbolt.Tx) error {
	if tx.Bucket(bucket) != nil {
		return nil
	}
	if name, _ := tx.Cursor().First(); name != nil {
		return fmt.Errorf("%w: it holds %q", ErrForeign, name)
	}
	_, err := tx.CreateBucket(bucket)
	return err
}

// Load returns everything that was saved. It is for the manager to call.
func (s *Store) Load() (values map[string][]byte, err error) {
	values = make(map[string][]byte)
	err = s.do("load", func(db *bbolt.DB) error {
		return db.View(func(tx *bbolt.Tx) error {
			return tx.Bucket(bucket).ForEach(func(key, value []byte) error {
				values[string(key)] = bytes.Clone(value) // what bbolt gives lasts as long as the transaction
				return nil
			})
		})
	})
	return values, err
}

// Save makes changes in one transaction, which is on the disk when it returns.
// It is for the manager to call.
func (s *Store) Save(changes map[string][]byte) error {
	return s.do("save", func(db *bbolt.DB) error {
		return db.Update(func(tx *bbolt.Tx) error {
			b := tx.Bucket(bucket)
			for _, key := range slices.Sorted(maps.Keys(changes)) { // in their order pages fill up best
				var err error
				if value := changes[key]; value != nil {
					err = b.Put([]byte(key), value)
				} else {
					err = b.Delete([]byte(key))
				}
				if err != nil {
					return fmt.Errorf("key %q: %w", key, err)
				}
			}
			return nil
		})
	})
}

// Close closes the file, for the next to open, once no other call is under way.
// It may be called again.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return nil
	}
	db := s.db
	s.db = nil
	if err := db.Close(); err != nil {
		return fmt.Errorf("close store %s: %w", s.path, err)
	}
	return nil
}

// do keeps the file open while f uses it.
func (s *Store) do(what string, f func(db *bbolt.DB) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	err := os.ErrClosed
	if s.db != nil {
		err = f(s.db)
	}
	if err != nil {
		return fmt.Errorf("%s store %s: %w", what, s.path, err)
	}
	return nil
}
