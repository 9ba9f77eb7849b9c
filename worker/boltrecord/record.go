package boltrecord

// The Record, and how traces are laid out in its file.

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

// What Open returns, wrapped with the path.
var (
	// ErrInUse says that another process, or another Record of this one, has
	// the file open.
	ErrInUse = errors.New("in use by another worker")

	// ErrForeign says that the file is no record, or that of a later version of
	// this package, or so little of one that nobody can tell. It was not changed.
	ErrForeign = errors.New("not a record of this version")

	// ErrDamaged says that the file is a record of which part is lost: it was cut
	// short, as by a copy to a disk that was full, or written over. Load and Save
	// return it too, where an entry cannot be read or that happened while the file
	// was open; Close and Remove work as ever then. Delete the file: it is only
	// for reports, and decides nothing.
	//
	// Not all damage can be seen: there are no sums over the contents.
	ErrDamaged = errors.New("the file is damaged: delete it, it is only for reports")
)

// bucket holds the traces. What it holds stands in its name, so that a later
// layout gets another.
var bucket = []byte("orchestrator worker 1")

// lockWait is how long Open waits for a process that is on its way out.
const lockWait = time.Second

// Record is a [worker.Record] in a file. Its methods may be called from any
// number of goroutines.
type Record struct {
	path string

	mu     sync.Mutex // guards what follows
	db     *database
	closed bool
}

var _ worker.Record[string] = (*Record)(nil)

// Open opens the record at path, or makes it, readable for its owner only. The
// folder must be there. It waits a second for a process that still has the file
// open, and fails then with an error that wraps [ErrInUse]; a file that is
// something else is one that wraps [ErrForeign], and one that cannot be read to its
// end is one that wraps [ErrDamaged].
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
		// Who had it before may have removed it while this waited for the lock.
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
	return nil, fmt.Errorf("%w: it is removed again and again", ErrInUse)
}

// isAt reports whether the file that is open is the one at path.
func isAt(file *os.File, path string) bool {
	opened, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(opened, there)
}

// entry is what stands in the file for a task.
type entry struct {
	Name      []byte `json:"name,omitempty"` // where the key is not it
	Completed bool   `json:"completed,omitempty"`
	Failed    bool   `json:"failed,omitempty"`
	Err       []byte `json:"err,omitempty"`
	Attempts  int    `json:"attempts,omitempty"`
	Version   int64  `json:"version,omitempty"`
	Token     uint64 `json:"token,omitempty"`
	Scope     uint64 `json:"scope,omitempty"`
	Receipt   []byte `json:"receipt,omitempty"` // bytes, as it need not be UTF-8
}

// keyOf returns a task's key, and reports whether that tells its name: a key may
// not be empty, nor as long as a name may be.
func keyOf(task string) (key []byte, tells bool) {
	if len(task) < bbolt.MaxKeySize {
		return []byte("=" + task), true
	}
	return fmt.Appendf(nil, "#%x", sha256.Sum256([]byte(task))), false
}

func entryOf(t worker.Trace[string]) (key, value []byte, err error) {
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

func traceOf(key, value []byte) (worker.Trace[string], error) {
	var e entry
	if err := json.Unmarshal(value, &e); err != nil {
		return worker.Trace[string]{}, fmt.Errorf("key %q: %w", key, err)
	}
	if name, ok := bytes.CutPrefix(key, []byte("=")); ok {
		e.Name = name
	}
	return worker.Trace[string]{
		Task: string(e.Name), Completed: e.Completed, Failed: e.Failed, Err: string(e.Err), Attempts: e.Attempts, Version: e.Version, Token: e.Token, Scope: e.Scope,
		Receipt: string(e.Receipt),
	}, nil
}

// Load returns what was saved. It is for the worker to call.
func (r *Record) Load() (traces []worker.Trace[string], err error) {
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

// Save writes traces, and takes out those of tasks that are gone, in one
// transaction that is on the disk when it returns. It is for the worker to call.
func (r *Record) Save(traces []worker.Trace[string], gone []string) error {
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

// Remove deletes the file and closes the record. It is for the worker to call.
// After Close it does nothing but return an error, as the file may be another's.
func (r *Record) Remove() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("remove record %s: %w", r.path, os.ErrClosed)
	}
	// First while it is locked, so that it is nobody else's. Where a file that is
	// open cannot be removed, a moment later.
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

// Close closes the file and leaves it where it is, for the next to read. A
// worker that was closed without an error has done more already; Close is for
// where that did not come to an end. It may be called again.
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

// do keeps the file open while f uses it.
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
