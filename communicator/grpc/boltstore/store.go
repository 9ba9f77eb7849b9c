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

// Errors of Open, which are wrapped with the path.
var (
	// ErrInUse reports that another process, or another Store in this process, has
	// the file open.
	ErrInUse = errors.New("in use by another manager")

	// ErrForeign reports that the file is not a store, or belongs to a later version
	// of this package, or is too short to tell. The file was not changed.
	ErrForeign = errors.New("not a store of this version")

	// ErrDamaged reports that part of the store is lost: the file was cut short, for
	// example by a copy to a full disk, or overwritten. Load and Save also return it
	// if the damage happens while the file is open; the only useful method is then
	// Close. Restore a copy while the manager is stopped; the package documentation
	// describes the effect of an older one.
	//
	// If there is no copy, move the file away. The manager then begins with an empty
	// store, as with [grpc.NewMemoryStore]. Tasks, completions and drains are lost,
	// so tasks that are put again may run again. Members are lost too. A worker from
	// before may still run such a task until it hears from the new manager, or its
	// lease expires.
	//
	// Not all damage is detected, because the contents have no checksums.
	ErrDamaged = errors.New("file is damaged: restore a copy")
)

// bucket holds all keys. Its name contains the version of the layout, so that a
// later layout gets another bucket.
var bucket = []byte("orchestrator manager 1")

// lockWait is how long Open waits for a process that is about to exit.
const lockWait = time.Second

// Store is a [grpc.Store] in a file. Its methods may be called from any number of
// goroutines.
type Store struct {
	path string

	mu sync.Mutex // held while db is used
	db *database  // nil: closed
}

var _ grpc.Store = (*Store)(nil)

// Open opens the store at path, or creates it, readable for its owner only. The
// folder must exist, on a file system that can lock files. Open waits one second for
// another process that has the file open, then returns an error that wraps
// [ErrInUse]. The error wraps [ErrForeign] if the file is something else, and
// [ErrDamaged] if it cannot be read completely.
//
// The caller closes the store after the manager's Run has returned.
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

// Load returns everything that was saved. Only the manager calls it.
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

// Save makes the changes in one transaction, which is on the disk when Save returns.
// Only the manager calls it.
func (s *Store) Save(changes map[string][]byte) error {
	return s.do("save", func(d *database) error {
		return d.update(func(tx *bbolt.Tx) error {
			b := tx.Bucket(bucket)
			for _, key := range slices.Sorted(maps.Keys(changes)) { // sorted keys fill pages best
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

// Close waits for a call under way and closes the file. It may be called again.
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

// do calls f while the file is open.
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
