package manager

// The Store of a manager.

import (
	"fmt"
	"maps"
	"sync"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
)

// Store keeps what must survive a manager: tasks with their contents, completions,
// failed tasks, members with their leases, drains, and the epoch. To the store these
// are keys and values of arbitrary bytes. No key is longer than 1100 bytes; no value
// is empty or much longer than [MaxContent].
//
// Package communicator/grpc/boltfile keeps them in a file, and [NewMemoryStore] keeps
// them in memory.
//
// # Concurrency
//
// A manager makes one call at a time: Load in [New], then Save. No two managers may use
// the same store at the same time. A store that could be read by one process while
// another writes must prevent that itself, as package boltfile does by locking its file.
//
// # Ownership
//
// Neither side changes a map or a value that it has given to the other.
//
// # Blocking
//
// A manager waits for Save before it answers a call that changes stored data; plain
// heartbeats do not wait. One call of Save carries all changes that were made during
// the previous one.
//
// # Errors
//
// An error of Save ends the manager, because it no longer knows what is stored.
type Store interface {
	// Load returns everything that was saved.
	Load() (map[string][]byte, error)
	// Save sets the keys in changes to their values, and deletes those whose value
	// is nil. It makes all changes or, if it fails, none. Once it has returned
	// without an error, no crash of the process or the machine undoes them.
	Save(changes map[string][]byte) error
}

// MemoryStore is a Store that forgets everything when the process ends.
type MemoryStore struct {
	mu     sync.Mutex
	values map[string][]byte
}

var _ Store = (*MemoryStore)(nil)

// NewMemoryStore returns a store for managers that need not survive their process:
// for tests, and for programs that put all tasks again at each start. A later
// manager with the same MemoryStore in the same process continues where the previous
// one ended.
//
// After the process has ended, tasks, completions and drains are lost, so everything
// may run again. Members are lost too, so the next manager waits for none of them.
// It may start a task that a worker from before still runs. That worker stops when
// it learns from the new manager that it is not a member, or before its lease
// expires.
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

// load returns the contents of a store.
func load(s Store) (state.Records, error) {
	values, err := s.Load()
	if err != nil {
		return state.Records{}, fmt.Errorf("load: %w", err)
	}
	kept, err := state.DecodeAll(values)
	if err != nil {
		return state.Records{}, fmt.Errorf("load: %w", err)
	}
	return kept, nil
}
