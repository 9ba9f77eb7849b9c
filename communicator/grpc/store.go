package grpc

// Where a manager keeps what it must not forget.

import (
	"fmt"
	"maps"
	"sync"
)

// Store keeps what a manager must not forget: tasks with their contents,
// completions, members with the lengths of their leases, drains, and in which
// epoch of managers it is. To the store these are keys and values, any bytes; no
// key is longer than 1100 bytes, no value is empty or much longer than
// [MaxContent].
//
// Package boltstore keeps them in a file, [NewMemoryStore] as long as the process
// lives.
//
// # Concurrency
//
// A manager makes one call at a time: Load in [NewManager], then Save. No two
// managers may use the same store at once: one that could read while another
// writes has to see to that itself, as boltstore does by locking its file.
//
// # Ownership
//
// Neither side changes a map or a value that it has given to the other.
//
// # Blocking
//
// A manager waits for Save with whatever changes what is kept, but not with
// heartbeats, and saves in one call what has come together meanwhile.
//
// # Errors
//
// An error of Save ends the manager, as it then no longer knows what is kept.
type Store interface {
	// Load returns everything that was saved.
	Load() (map[string][]byte, error)
	// Save sets the keys in changes to their values, and takes out those whose
	// value is nil: all of it, or nothing of it if it fails. When it returns without an error, a
	// crash of the process, or of the machine, takes none of it back.
	Save(changes map[string][]byte) error
}

// MemoryStore is a Store that forgets everything when the process ends.
type MemoryStore struct {
	mu     sync.Mutex
	values map[string][]byte
}

var _ Store = (*MemoryStore)(nil)

// NewMemoryStore returns a store for managers that need not survive: for tests,
// and for where somebody else knows the tasks and puts them again at each start.
// A manager made with the same MemoryStore later in the same process goes on
// where the one before ended.
//
// What it cannot promise after the process ended: tasks, completions and drains are
// gone, so everything may be run again. Members are gone too, so the next
// manager waits for none of them: a task that is put again may be started
// while a worker of before runs it still, until that one has heard from the new
// manager that it is no member, or its lease has run out.
func NewMemoryStore() *MemoryStore {
	return &MemoryStore{values: make(map[string][]byte)}
}

// Load returns everything that was saved.
func (s *MemoryStore) Load() (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.values), nil
}

// Save keeps changes in memory. It never fails.
func (s *MemoryStore) Save(changes map[string][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, value := range changes {
		if value == nil {
			delete(s.values, key)
		} else {
			s.values[key] = value
		}
	}
	return nil
}

// load returns what a store holds.
func load(s Store) (records, error) {
	values, err := s.Load()
	if err != nil {
		return records{}, fmt.Errorf("load: %w", err)
	}
	r := newRecords()
	for key, value := range values {
		if err := r.decode(key, value); err != nil {
			return records{}, fmt.Errorf("load: key %q: %w", key, err)
		}
	}
	return r, nil
}
