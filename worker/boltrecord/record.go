package boltrecord

// The Record, and the layout of traces in its file.

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/worker"
	"go.etcd.io/bbolt"
)

// The errors that Open wraps, together with the path.
var (
	// ErrInUse reports that another process, or another Record of this process, has
	// the file open.
	ErrInUse = errors.New("in use by another worker")

	// ErrForeign reports that the file is not a record, is a record of a later
	// version of this package, or is too short to tell. Open did not change the
	// file.
	ErrForeign = errors.New("not a record of this version")

	// ErrDamaged reports that a part of the record is lost, because the file was
	// truncated or overwritten. Load and Save return it too, if an entry cannot be
	// read or the file was damaged while open; Close and Remove still work. Delete
	// the file: it is only for reports.
	//
	// Not all damage can be found, because the contents have no checksums.
	ErrDamaged = errors.New("the file is damaged: delete it, it is only for reports")
)

// bucket holds the traces. Its name contains the version of the layout, so that a
// later layout gets another bucket.
var bucket = []byte("orchestrator worker 1")

// lockWait is how long Open waits for another process to close the file.
const lockWait = time.Second

// Record is a [worker.Record] in a file. Its methods may be called from any number
// of goroutines.
type Record struct {
	path string

	mu     sync.Mutex // guards the fields below
	db     *database
	closed bool
}

var _ worker.Record[string] = (*Record)(nil)

// Open opens the record at path. It creates a missing file, readable and writable
// only by its owner, but no directory. If another process still has the file open,
// Open waits up to a second, and then fails with an error that wraps [ErrInUse]. If
// the file is not a record, the error wraps [ErrForeign]. If the file cannot be read
// to its end, the error wraps [ErrDamaged].
func Open(path string) (*Record, error) {
	r, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("open record %s: %w", path, err)
	}
	return r, nil
}

func open(path string) (*Record, error) {
	for range 3 {
		d, err := openDatabase(path)
		if err != nil {
			return nil, err
		}
		// The previous owner may have removed the file while Open waited for its
		// lock.
		if !isAt(d.file, path) {
			if err := d.close(); err != nil {
				return nil, err
			}
			continue
		}
		if err := d.claim(); err != nil {
			return nil, errors.Join(err, d.close())
		}
		return &Record{path: path, db: d}, nil
	}
	return nil, fmt.Errorf("%w: the file was removed repeatedly while opening", ErrInUse)
}

// isAt reports whether file is the file at path.
func isAt(file *os.File, path string) bool {
	opened, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(opened, there)
}

// entry is the value that is stored for a task.
type entry struct {
	Name      []byte `json:"name,omitempty"` // only if the key does not contain the name
	Completed bool   `json:"completed,omitempty"`
	Failed    bool   `json:"failed,omitempty"`
	Err       []byte `json:"err,omitempty"`
	Attempts  int    `json:"attempts,omitempty"`
	Version   int64  `json:"version,omitempty"`
	Token     uint64 `json:"token,omitempty"`
	Scope     uint64 `json:"scope,omitempty"`
	Receipt   []byte `json:"receipt,omitempty"` // bytes, because it need not be UTF-8
}

// keyOf returns the key of a task. tells reports whether the key contains the name.
// Keys of bbolt must not be empty, and names may be longer than a key can be.
func keyOf(task string) (key []byte, tells bool) {
	if len(task) < bbolt.MaxKeySize {
		return []byte("=" + task), true
	}
	return fmt.Appendf(nil, "#%x", sha256.Sum256([]byte(task))), false
}

func entryOf(t worker.Previous[string]) (key, value []byte, err error) {
	e := entry{
		Completed: t.Completed, Failed: t.Failed, Err: []byte(t.Err), Attempts: t.Attempts, Version: t.Version, Token: t.Token, Scope: t.Scope, Receipt: []byte(t.Receipt),
	}
	key, tells := keyOf(t.Task)
	if !tells {
		e.Name = []byte(t.Task)
	}
	value, err = json.Marshal(e)
	return key, value, err
}

func traceOf(key, value []byte) (worker.Previous[string], error) {
	var e entry
	if err := json.Unmarshal(value, &e); err != nil {
		return worker.Previous[string]{}, fmt.Errorf("key %q: %w", key, err)
	}
	if name, ok := bytes.CutPrefix(key, []byte("=")); ok {
		e.Name = name
	}
	return worker.Previous[string]{
		Task: string(e.Name), Completed: e.Completed, Failed: e.Failed, Err: string(e.Err), Attempts: e.Attempts, Version: e.Version, Token: e.Token, Scope: e.Scope,
		Receipt: string(e.Receipt),
	}, nil
}

// Load returns the saved traces. The worker calls it.
func (r *Record) Load() (traces []worker.Previous[string], err error) {
	err = r.do("load", func(d *database) error {
		pairs, err := d.load()
		if err != nil {
			return err
		}
		for _, p := range pairs {
			t, err := traceOf(p.key, p.value)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrDamaged, err)
			}
			traces = append(traces, t)
		}
		return nil
	})
	return traces, err
}

// Save writes traces and deletes those of the tasks in gone, in one transaction,
// which is on disk when Save returns. The worker calls it.
func (r *Record) Save(traces []worker.Previous[string], gone []string) error {
	return r.do("save", func(d *database) error {
		return d.update(func(tx *bbolt.Tx) error {
			b := tx.Bucket(bucket)
			for _, task := range gone {
				key, _ := keyOf(task)
				if err := b.Delete(key); err != nil {
					return fmt.Errorf("task %q: %w", task, err)
				}
			}
			for _, t := range traces {
				key, value, err := entryOf(t)
				if err == nil {
					err = b.Put(key, value)
				}
				if err != nil {
					return fmt.Errorf("task %q: %w", t.Task, err)
				}
			}
			return nil
		})
	})
}

// Remove deletes the file and closes the record. The worker calls it. After Close it
// only returns an error, because another process may own the file by then.
func (r *Record) Remove() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("remove record %s: %w", r.path, os.ErrClosed)
	}
	// Remove the file while it is locked, so that no other process has opened it. If
	// the system cannot remove an open file, try again after closing it.
	err := os.Remove(r.path)
	if closing := r.close(); closing != nil {
		return closing
	}
	if err != nil {
		err = os.Remove(r.path)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove record: %w", err)
	}
	return nil
}

// Close closes the file and keeps it for the next process. A worker that was closed
// without an error has already removed the file. Call Close if closing the worker
// failed or did not finish. Close may be called again.
func (r *Record) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.close()
}

func (r *Record) close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	if err := r.db.close(); err != nil {
		return fmt.Errorf("close record %s: %w", r.path, err)
	}
	return nil
}

// do calls f with the database, and keeps the file open during the call.
func (r *Record) do(what string, f func(d *database) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := os.ErrClosed
	if !r.closed {
		err = f(r.db)
	}
	if err != nil {
		return fmt.Errorf("%s record %s: %w", what, r.path, err)
	}
	return nil
}
