package boltstore

// The Store, and how it opens its file.

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc"
	"go.etcd.io/bbolt"
)

// What Open returns, wrapped with the path.
var (
	// ErrInUse says that another process, or another Store of this one, has the
	// file open.
	ErrInUse = errors.New("in use by another manager")

	// ErrForeign says that the file is no store, or that of a later version of
	// this package, or so little of one that nobody can tell. It was not changed.
	ErrForeign = errors.New("not a store of this version")

	// ErrDamaged says that the file is a store of which part is lost: it was cut
	// short, as by a copy to a disk that was full, or written over. Load and Save
	// return it too where that happened while the file was open; all that is left
	// then is to close the Store. Put a copy back, with the manager stopped; the
	// package's documentation says what an older one means.
	//
	// Where there is no copy, move the file away, and the manager begins with an
	// empty one, as with [grpc.NewMemoryStore]: tasks, completions and drains are
	// gone, so what is put again may be run again; and members are, so that it may
	// be started while a worker of before runs it still, until that one has heard
	// from the new manager or its lease has run out.
	//
	// Not all damage can be seen: there are no sums over the contents.
	ErrDamaged = errors.New("the file is damaged: put a copy back")
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

	mu sync.Mutex // held while db is used
	db *database  // nil: closed
}

var _ grpc.Store = (*Store)(nil)

// Open opens the store at path, or makes it, readable for its owner only. The
// folder must be there, on a file system that can lock files. It waits a second
// for a process that still has the file open, and fails then with an error that
// wraps [ErrInUse]; a file that is something else is one that wraps [ErrForeign],
// and one that cannot be read to its end is one that wraps [ErrDamaged].
//
// Whoever opens a store closes it: after the manager's Run has returned.
func Open(path string) (*Store, error) {
	db, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	return &Store{path: path, db: db}, nil
}

func open(path string) (*database, error) {
	d, err := openDatabase(path)
	if err != nil {
		return nil, err
	}
	if err := d.claim(); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// Load returns everything that was saved. It is for the manager to call.
func (s *Store) Load() (values map[string][]byte, err error) {
	err = s.do("load", func(d *database) error {
		pairs, err := d.load()
		values = make(map[string][]byte, len(pairs))
		for _, p := range pairs {
			values[string(p.key)] = p.value
		}
		return err
	})
	return values, err
}

// Save makes changes in one transaction, which is on the disk when it returns.
// It is for the manager to call.
func (s *Store) Save(changes map[string][]byte) error {
	return s.do("save", func(d *database) error {
		return d.update(func(tx *bbolt.Tx) error {
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
	if err := db.close(); err != nil {
		return fmt.Errorf("close store %s: %w", s.path, err)
	}
	return nil
}

// do keeps the file open while f uses it.
func (s *Store) do(what string, f func(d *database) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := os.ErrClosed
	if s.db != nil {
		err = f(s.db)
	}
	if err != nil {
		return fmt.Errorf("%s store %s: %w", what, s.path, err)
	}
	return nil
}
