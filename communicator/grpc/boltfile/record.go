package boltfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/f8949c05/orchestrator/worker"
)

// Record is a [worker.Record] in a file. Its methods may be called from any number of
// goroutines. If the file is damaged, delete it: it is only for reports.
type Record struct{ file *file }

var _ worker.Record[string] = (*Record)(nil)

// OpenRecord opens the record at path, or creates it, readable for its owner only.
// The folder must exist, on a file system that can lock files. OpenRecord waits one
// second for another process that has the file open, then returns an error that wraps
// [ErrInUse]. The error wraps [ErrForeign] if the file is something else, and
// [ErrDamaged] if it cannot be read completely.
func OpenRecord(path string) (*Record, error) {
	f, err := open(kind{
		name:   "record",
		bucket: []byte("orchestrator worker 1"),
		repair: "delete it, it is only for reports",
	}, path)
	if err != nil {
		return nil, err
	}
	return &Record{f}, nil
}

// Load returns the saved tasks. The worker calls it.
func (r *Record) Load() (tasks []worker.TaskRecord[string], err error) {
	err = r.file.load(func(key, value []byte) error {
		t, err := decode(key, value)
		tasks = append(tasks, t)
		return err
	})
	if err != nil {
		return nil, err
	}
	return tasks, nil
}

// Save adds or replaces tasks and deletes those in gone, in one transaction,
// which is on the disk when Save returns. The worker calls it.
func (r *Record) Save(tasks []worker.TaskRecord[string], gone []string) error {
	return r.file.save(func(b *bbolt.Bucket) error {
		for _, task := range gone {
			key, _ := keyOf(task)
			if err := b.Delete(key); err != nil {
				return fmt.Errorf("task %q: %w", task, err)
			}
		}
		for _, t := range tasks {
			key, value, err := encode(t)
			if err == nil {
				err = b.Put(key, value)
			}
			if err != nil {
				return fmt.Errorf("task %q: %w", t.Task, err)
			}
		}
		return nil
	})
}

// Remove deletes the file and closes the record. The worker calls it. After Close it
// only returns an error, because another process may own the file by then.
func (r *Record) Remove() error { return r.file.remove() }

// Close closes the file and keeps it for the next process. A worker that was closed
// without an error has already removed the file. Call Close if closing the worker
// failed or did not finish. It may be called again.
func (r *Record) Close() error { return r.file.close() }

// storedTask is the value that is stored for a task, as JSON.
type storedTask struct {
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

// keyOf returns the key of a task, and whether the key contains the name. Keys of
// bbolt must not be empty, and names may be longer than a key can be.
func keyOf(task string) (key []byte, named bool) {
	if len(task) < bbolt.MaxKeySize {
		return []byte("=" + task), true
	}
	return fmt.Appendf(nil, "#%x", sha256.Sum256([]byte(task))), false
}

func encode(p worker.TaskRecord[string]) (key, value []byte, err error) {
	t := storedTask{
		Completed: p.Completed, Failed: p.Failed, Err: []byte(p.Err), Attempts: p.Attempts,
		Version: p.Version, Token: p.Token, Scope: p.Scope, Receipt: []byte(p.Receipt),
	}
	key, named := keyOf(p.Task)
	if !named {
		t.Name = []byte(p.Task)
	}
	value, err = json.Marshal(t)
	return key, value, err
}

func decode(key, value []byte) (worker.TaskRecord[string], error) {
	var t storedTask
	if err := json.Unmarshal(value, &t); err != nil {
		return worker.TaskRecord[string]{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if name, ok := bytes.CutPrefix(key, []byte("=")); ok {
		t.Name = name
	}
	return worker.TaskRecord[string]{
		Task: string(t.Name), Completed: t.Completed, Failed: t.Failed, Err: string(t.Err), Attempts: t.Attempts,
		Version: t.Version, Token: t.Token, Scope: t.Scope, Receipt: string(t.Receipt),
	}, nil
}
