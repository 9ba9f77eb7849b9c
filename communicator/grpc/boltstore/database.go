package boltstore

// The bbolt database, guarded so that a damaged file does not end the process.

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"syscall"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// database is a bbolt database whose file may contain anything. Calls must not
// overlap.
type database struct {
	file    *os.File
	db      *bbolt.DB
	damaged error // if set, bbolt is not called any more
	stuck   bool  // bbolt panicked and cannot close the file
}

func openDatabase(path string) (*database, error) {
	// First open the file read-only, without its list of free pages. If bbolt panics
	// while it opens a file, the file stays mapped.
	look := &database{}
	err := look.open(path, true)
	if err == nil {
		err = errors.Join(look.view(look.length), look.close())
	}
	if errors.Is(err, ErrDamaged) || errors.Is(err, ErrInUse) {
		return nil, err
	}
	d := &database{} // after any other error too: the file may not exist yet
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
	default: // an error of bbolt, not of the system; some have no exported name
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
}

// guard calls f, which uses bbolt, and turns panics into errors. bbolt panics on
// invalid data. If a mapped file has become shorter, an access is a fault, which
// would end the process without SetPanicOnFault. That setting holds for this
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
		d.stuck = true // until f has returned
		err := f()
		d.stuck = false
		return err
	})
	if errors.Is(err, ErrDamaged) {
		d.damaged = err
	}
	return err
}

// view calls f in a read transaction. A panic of f is recovered before it reaches
// bbolt, which can then still be closed.
func (d *database) view(f func(tx *bbolt.Tx) error) error {
	return d.call(func() error {
		return d.db.View(func(tx *bbolt.Tx) error {
			return guard(func() error { return f(tx) })
		})
	})
}

func (d *database) update(f func(tx *bbolt.Tx) error) error {
	return d.call(func() error { return d.db.Update(f) })
}

// claim creates the bucket in an empty file. Otherwise it reads the whole bucket,
// because a start should fail rather than a later operation. That takes as long as
// the Load that follows, about 50 ms for 100,000 entries of 200 bytes. It writes
// nothing, so a damaged file stays as it was found.
func (d *database) claim() error {
	fresh := false
	err := d.view(func(tx *bbolt.Tx) error {
		if fresh = tx.Bucket(bucket) == nil; fresh {
			return nil
		}
		_, err := d.read(tx)
		return err
	})
	if err != nil || !fresh {
		return err
	}
	return d.update(func(tx *bbolt.Tx) error {
		if name, _ := tx.Cursor().First(); name != nil {
			return fmt.Errorf("%w: file contains %q", ErrForeign, name)
		}
		_, err := tx.CreateBucket(bucket)
		return err
	})
}

// pair is a key with its value.
type pair struct{ key, value []byte }

// load returns all entries, in the order of their keys.
func (d *database) load() (pairs []pair, err error) {
	err = d.view(func(tx *bbolt.Tx) (err error) {
		pairs, err = d.read(tx)
		return err
	})
	return pairs, err
}

// length detects a file that was cut short. bbolt writes everything that a meta page
// refers to before the meta page itself.
func (d *database) length(tx *bbolt.Tx) error {
	info, err := d.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < tx.Size() {
		return fmt.Errorf("%w: cut short from at least %d bytes to %d", ErrDamaged, tx.Size(), info.Size())
	}
	return nil
}

// pages detects a page that claims to be longer than the file allows. To free such a
// page, bbolt would run forever and take all memory.
func (d *database) pages(tx *bbolt.Tx) error {
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
		return fmt.Errorf("%w: page is longer than the file", ErrDamaged)
	}
	return nil
}

// read returns all entries. It also detects damage that bbolt does not, because
// bbolt has no checksums over its data pages.
func (d *database) read(tx *bbolt.Tx) (pairs []pair, err error) {
	if err := d.length(tx); err != nil {
		return nil, err
	}
	if err := d.pages(tx); err != nil {
		return nil, err
	}
	var last []byte
	left := tx.Size()
	err = tx.Bucket(bucket).ForEach(func(key, value []byte) error {
		left -= int64(len(key)) + int64(len(value))
		switch {
		case left < 0: // before memory is allocated for it, or a cycle of pages is followed forever
			return fmt.Errorf("%w: entry is longer than the file", ErrDamaged)
		case value == nil:
			return fmt.Errorf("%w: bucket among the entries", ErrDamaged)
		case last != nil && bytes.Compare(last, key) >= 0:
			return fmt.Errorf("%w: keys are not in order", ErrDamaged)
		}
		last = bytes.Clone(key) // bbolt's slices are valid only during the transaction
		pairs = append(pairs, pair{last, bytes.Clone(value)})
		return nil
	})
	return pairs, err
}

// close closes the file, and releases its lock. A bbolt that has panicked may hold
// locks for which its Close would wait forever. Then only the file is closed, and
// stays mapped until the process ends.
func (d *database) close() error {
	if d.stuck {
		return errors.Join(unlock(d.file), d.file.Close())
	}
	return d.db.Close()
}
