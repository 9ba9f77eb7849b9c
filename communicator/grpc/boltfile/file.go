// Package boltfile keeps a worker's record and a manager's store in files. Each file
// is a bbolt database that one process at a time has open.
//
// A [Record] is for workers whose tasks are strings. After a crash, the next process
// reads from it which tasks ran and which had completed:
//
//	record, err := boltfile.OpenRecord("/var/lib/service/worker.db")
//	…
//	w, err := worker.New(run, worker.WithRecord(record))
//	…
//	for _, t := range w.Previous() {
//		log.Info("ran before the crash", "task", t.Task, "completed", t.Completed)
//	}
//
// A [Store] is for the Manager of package communicator/grpc/manager. A manager that was
// restarted or killed still has its tasks, completions and members:
//
//	store, err := boltfile.OpenStore("/var/lib/service/manager.db")
//	…
//	defer store.Close()
//	m, err := manager.New(store)
//	…
//	err = m.Run(ctx, listener)
//
// The package is a separate module, so that only programs that import it require and
// link bbolt.
package boltfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// Errors of [OpenRecord] and [OpenStore], wrapped together with the path.
var (
	// ErrInUse reports that the file is open elsewhere, in this process or another.
	ErrInUse = errors.New("file is in use")

	// ErrForeign reports that the file is not of the expected kind, belongs to a
	// later version of this package, or is too short to tell. The file was not
	// changed.
	ErrForeign = errors.New("not a file of this kind and version")

	// ErrDamaged reports that a part of the file is lost: the file was truncated, for
	// example by a copy to a full disk, or overwritten. Load and Save also return it
	// if the damage happens while the file is open; the other methods still work.
	// Not all damage can be detected, because the contents have no checksums.
	//
	// A damaged record can be deleted, because it is only for reports. The
	// documentation of [Store] describes how to recover a store.
	ErrDamaged = errors.New("file is damaged")
)

// lockWait is how long opening waits for another process to close the file.
const lockWait = time.Second

// kind distinguishes the files of records from those of stores.
type kind struct {
	name   string // for errors
	bucket []byte // has the version of the layout in its name, so that a later layout gets another bucket
	repair string // what to do with a damaged file
}

// file is an open bbolt file with one bucket. Its methods may be called from any
// number of goroutines. Their errors contain the path.
type file struct {
	kind kind
	path string

	mu     sync.Mutex // guards the fields below
	db     *database
	closed bool
}

func open(k kind, path string) (*file, error) {
	f := &file{kind: k, path: path}
	var err error
	if f.db, err = openCurrent(k.bucket, path); err != nil {
		return nil, f.explain("open", err)
	}
	return f, nil
}

// openCurrent opens the file and makes sure that it still has its name: its previous
// owner may have removed it while openCurrent waited for its lock.
func openCurrent(bucket []byte, path string) (*database, error) {
	for range 3 {
		d, err := openDatabase(bucket, path)
		if err != nil {
			return nil, err
		}
		if isAt(d.file, path) {
			if err := d.claim(); err != nil {
				return nil, errors.Join(err, d.close())
			}
			return d, nil
		}
		if err := d.close(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: it was removed repeatedly while opening", ErrInUse)
}

// isAt reports whether f is the file at path.
func isAt(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(opened, there)
}

// explain adds to err what failed, and what to do.
func (f *file) explain(action string, err error) error {
	err = fmt.Errorf("%s %s %s: %w", action, f.kind.name, f.path, err)
	if errors.Is(err, ErrDamaged) {
		return fmt.Errorf("%w: %s", err, f.kind.repair)
	}
	return err
}

// load calls each for every entry, in the order of the keys. The slices belong to
// each.
func (f *file) load(each func(key, value []byte) error) error {
	return f.do("load", func() error {
		entries, err := f.db.load()
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := each(e.key, e.value); err != nil {
				return fmt.Errorf("key %q: %w", e.key, err)
			}
		}
		return nil
	})
}

// save calls change in one transaction, which is on the disk when save returns
// without an error. An error of change undoes the transaction.
func (f *file) save(change func(b *bbolt.Bucket) error) error {
	return f.do("save", func() error { return f.db.update(change) })
}

// remove deletes the file and closes it. If it is already closed, another process
// may own the file, so remove only returns an error.
func (f *file) remove() error {
	return f.do("remove", func() error {
		// Remove the file while it is locked, so that no other process has opened
		// it. If the system cannot remove an open file, try again after closing it.
		err := os.Remove(f.path)
		f.closed = true
		if closing := f.db.close(); closing != nil {
			return closing
		}
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return os.Remove(f.path)
	})
}

// close waits for a call under way and closes the file. It may be called again.
func (f *file) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	if err := f.db.close(); err != nil {
		return f.explain("close", err)
	}
	return nil
}

// do calls call while the file is open.
func (f *file) do(action string, call func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := os.ErrClosed
	if !f.closed {
		err = call()
	}
	if err != nil {
		return f.explain(action, err)
	}
	return nil
}

// database is a bbolt database whose file may contain anything: damage is an error
// and does not end the process. Calls must not overlap.
type database struct {
	bucket  []byte
	file    *os.File
	db      *bbolt.DB
	damaged error // if set, bbolt is called only to close the file
	stuck   bool  // a call of bbolt panicked: bbolt cannot close the file either
}

func openDatabase(bucket []byte, path string) (*database, error) {
	// First open the file read-only, which skips the list of free pages. If bbolt
	// panics while it opens a file, the file stays mapped.
	look := &database{}
	err := look.open(path, true)
	if err == nil {
		err = errors.Join(look.view(look.checkLength), look.close())
	}
	if errors.Is(err, ErrDamaged) || errors.Is(err, ErrInUse) {
		return nil, err
	}
	d := &database{bucket: bucket} // after any other error too: the file may not exist yet
	if err := d.open(path, false); err != nil {
		return nil, err
	}
	return d, nil
}

// open opens the file. After an error nothing is left open.
func (d *database) open(path string, readOnly bool) error {
	options := &bbolt.Options{
		ReadOnly: readOnly,
		Timeout:  lockWait,
		OpenFile: func(name string, flag int, mode os.FileMode) (f *os.File, err error) {
			d.file, err = os.OpenFile(name, flag, mode)
			return d.file, err
		},
	}
	err := d.call(func() (err error) {
		d.db, err = bbolt.Open(path, 0o600, options)
		return err
	})
	var refused syscall.Errno
	switch {
	case err == nil, errors.As(err, &refused):
		return err
	case errors.Is(err, ErrDamaged):
		return errors.Join(err, d.close())
	case errors.Is(err, berrors.ErrTimeout):
		return ErrInUse
	default: // an error of bbolt, not of the system; some of them are not exported
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
}

// guard calls f, which uses bbolt, and turns a panic into ErrDamaged. bbolt panics on
// invalid data. An access to a part of the mapping that the file no longer has is a
// fault, which ends the process without SetPanicOnFault. That setting applies to this
// goroutine only, so tx.Check, which starts another, cannot be used here.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	return f()
}

// call calls f, which uses bbolt, unless damage was found before.
func (d *database) call(f func() error) error {
	if d.damaged != nil {
		return d.damaged
	}
	err := guard(func() error {
		d.stuck = true // unless f returns
		err := f()
		d.stuck = false
		return err
	})
	if errors.Is(err, ErrDamaged) {
		d.damaged = err
	}
	return err
}

// view calls f in a read-only transaction. It recovers panics of f inside the
// transaction, so that bbolt can still close the file.
func (d *database) view(f func(tx *bbolt.Tx) error) error {
	return d.call(func() error {
		return d.db.View(func(tx *bbolt.Tx) error {
			return guard(func() error { return f(tx) })
		})
	})
}

// update calls f in a transaction that changes the bucket.
func (d *database) update(f func(b *bbolt.Bucket) error) error {
	return d.call(func() error {
		return d.db.Update(func(tx *bbolt.Tx) error { return f(tx.Bucket(d.bucket)) })
	})
}

// claim creates the bucket in an empty file. It reads an existing bucket to its end,
// so that damage is found now and not by a later call. That takes as long as the Load
// that follows, about 50 ms for 100,000 entries of 200 bytes. It does not write to a
// file that has the bucket, so a damaged file stays as it is.
func (d *database) claim() error {
	fresh := false
	err := d.view(func(tx *bbolt.Tx) error {
		if fresh = tx.Bucket(d.bucket) == nil; fresh {
			return nil
		}
		_, err := d.read(tx)
		return err
	})
	if err != nil || !fresh {
		return err
	}
	return d.call(func() error {
		return d.db.Update(func(tx *bbolt.Tx) error {
			if name, _ := tx.Cursor().First(); name != nil {
				return fmt.Errorf("%w: found bucket %q", ErrForeign, name)
			}
			_, err := tx.CreateBucket(d.bucket)
			return err
		})
	})
}

// entry is a key of the bucket with its value.
type entry struct{ key, value []byte }

// load returns all entries, in the order of their keys.
func (d *database) load() (entries []entry, err error) {
	err = d.view(func(tx *bbolt.Tx) (err error) {
		entries, err = d.read(tx)
		return err
	})
	return entries, err
}

// read returns all entries, in the order of their keys. It makes checks that bbolt
// does not make, because bbolt has no checksums on its data pages.
func (d *database) read(tx *bbolt.Tx) (entries []entry, err error) {
	if err := d.checkLength(tx); err != nil {
		return nil, err
	}
	if err := d.checkPages(tx); err != nil {
		return nil, err
	}
	var last []byte
	left := tx.Size()
	err = tx.Bucket(d.bucket).ForEach(func(key, value []byte) error {
		left -= int64(len(key)) + int64(len(value))
		switch {
		case left < 0:
			// Stop before memory is allocated for a wrong length, or a cycle of pages
			// is followed forever.
			return fmt.Errorf("%w: an entry is longer than the file", ErrDamaged)
		case value == nil:
			return fmt.Errorf("%w: found a bucket among the entries", ErrDamaged)
		case last != nil && bytes.Compare(last, key) >= 0:
			return fmt.Errorf("%w: keys are not in order", ErrDamaged)
		}
		last = bytes.Clone(key) // bbolt's slices are valid only during the transaction
		entries = append(entries, entry{last, bytes.Clone(value)})
		return nil
	})
	return entries, err
}

// checkLength detects a truncated file. bbolt writes all pages of a transaction
// before the meta page that refers to them.
func (d *database) checkLength(tx *bbolt.Tx) error {
	info, err := d.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < tx.Size() {
		return fmt.Errorf("%w: truncated from at least %d bytes to %d", ErrDamaged, tx.Size(), info.Size())
	}
	return nil
}

// checkPages detects a page with an impossible length. To free such a page, bbolt
// would run forever and take all memory.
func (d *database) checkPages(tx *bbolt.Tx) error {
	id := 2 // after the two meta pages
	for {
		page, err := tx.Page(id)
		if err != nil {
			return err
		}
		if page == nil {
			break
		}
		id++
		if page.Type != "free" {
			id += page.OverflowCount
		}
	}
	if int64(id)*int64(d.db.Info().PageSize) != tx.Size() {
		return fmt.Errorf("%w: a page is longer than the file", ErrDamaged)
	}
	return nil
}

// close closes the file and releases its lock. After a panic, bbolt may hold locks
// for which its Close would wait forever. Then only the file is closed, and stays
// mapped until the process ends.
func (d *database) close() error {
	if d.stuck {
		return errors.Join(unlock(d.file), d.file.Close())
	}
	return d.db.Close()
}
