package boltfile

import (
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/bbolt"
)

// Store keeps the data of a manager in a file. It implements manager.Store of package
// communicator/grpc/manager. Its methods may be called from any number of goroutines.
//
// Its keys are task/NAME, done/NAME, failed/NAME, member/NAME, drain/NAME, epoch,
// revision and key; the value of key is a secret. The file is somewhat larger than
// the contents, which are also held in memory. To copy the file, stop the manager. An
// empty file is a new store.
//
// If the file is replaced by an older copy, the manager's epoch runs back. Workers
// that have followed a later epoch refuse the manager, and its Run ends with
// orchestrator.ErrDeposed when two of them have. Each start takes the next epoch, so
// start the manager as many times as it was started since the copy was made.
//
// If the file is damaged, restore a copy while the manager is stopped. If there is no
// copy, move the file away. The manager then begins with an empty store. Tasks,
// completions and drains are lost, so tasks that are put again may run again. Members
// are lost too. A worker from before may still run such a task until it hears from
// the new manager, or its lease expires.
type Store struct{ file *file }

// OpenStore opens the store at path, or creates it, readable for its owner only. The
// folder must exist, on a file system that can lock files. OpenStore waits one second
// for another process that has the file open, then returns an error that wraps
// [ErrInUse]. The error wraps [ErrForeign] if the file is something else, and
// [ErrDamaged] if it cannot be read completely.
//
// The caller closes the store after the manager's Run has returned.
func OpenStore(path string) (*Store, error) {
	f, err := open(kind{
		name:   "store",
		bucket: []byte("orchestrator manager 1"),
		repair: "restore a copy",
	}, path)
	if err != nil {
		return nil, err
	}
	return &Store{f}, nil
}

// Load returns everything that was saved. Only the manager calls it.
func (s *Store) Load() (map[string][]byte, error) {
	values := make(map[string][]byte)
	err := s.file.load(func(key, value []byte) error {
		values[string(key)] = value
		return nil
	})
	if err != nil {
		return nil, err
	}
	return values, nil
}

// Save sets the keys in changes to their values, and deletes those whose value is
// nil, in one transaction, which is on the disk when Save returns. Only the manager
// calls it.
func (s *Store) Save(changes map[string][]byte) error {
	return s.file.save(func(b *bbolt.Bucket) error {
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
}

// Close waits for a call under way and closes the file. It may be called again.
func (s *Store) Close() error { return s.file.close() }
