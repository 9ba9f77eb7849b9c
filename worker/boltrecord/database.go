package boltrecord

// Access to the bbolt file. A damaged file must not end the process.

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

// database is a bbolt database whose file may be damaged. Calls must not overlap.
type database struct {
	file    *os.File
	db      *bbolt.DB
	damaged error // not nil: bbolt is not called again, except to close the file
	stuck   bool  // a call of bbolt panicked: not even to close the file
}

func openDatabase(path string) (*database, error) {
	// First open the file read-only, which skips the list of free pages. If
	// bbolt panics while it opens a file, the mapping of the file cannot be undone.
	look := &database{}
	err := look.open(path, true)
	if err == nil {
		err = errors.Join(look.view(look.length), look.close())
	}
	if errors.Is(err, ErrDamaged) || errors.Is(err, ErrInUse) {
		return nil, err
	}
	d := &database{} // on any other error try again: there may be no file yet
	if err := d.open(path, false); err != nil {
		return nil, err
	}
	return d, nil
}

// open opens the file. On an error it leaves nothing open.
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
	default: // bbolt refused the file, not the system; some of its errors are not exported
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
}

// guard calls f, which uses bbolt, and turns a panic into ErrDamaged. bbolt panics
// on invalid data. Reading a part of the mapping that the file no longer has is a
// fault, which ends the process without SetPanicOnFault. SetPanicOnFault applies to
// this goroutine only. So tx.Check, which starts another goroutine, cannot be used.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	return f()
}

// call calls f, which uses bbolt, unless the file is known to be damaged.
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
// transaction, so that bbolt can still be closed.
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

// claim creates the bucket in an empty file. It reads an existing bucket to its end,
// so that damage is found when the worker starts and not later. It takes as long as
// the Load that follows, about 50 ms for 100,000 entries of 200 bytes. It writes
// nothing to a file with a bucket, so a damaged file stays as it is.
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
			return fmt.Errorf("%w: found bucket %q", ErrForeign, name)
		}
		_, err := tx.CreateBucket(bucket)
		return err
	})
}

// pair is a key in the file with its value.
type pair struct{ key, value []byte }

// load returns everything in the file, in the order of keys.
func (d *database) load() (pairs []pair, err error) {
	err = d.view(func(tx *bbolt.Tx) (err error) {
		pairs, err = d.read(tx)
		return err
	})
	return pairs, err
}

// length finds a truncated file. bbolt writes all pages of a transaction before the
// meta page that refers to them.
func (d *database) length(tx *bbolt.Tx) error {
	info, err := d.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < tx.Size() {
		return fmt.Errorf("%w: truncated from at least %d bytes to %d", ErrDamaged, tx.Size(), info.Size())
	}
	return nil
}

// pages finds a page with an impossible length. bbolt would need endless time and
// all memory to free it.
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
		return fmt.Errorf("%w: a page is longer than the file", ErrDamaged)
	}
	return nil
}

// read returns all entries in the order of keys. It makes checks that bbolt does not
// make, because bbolt has no checksums on its pages.
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
		case left < 0:
			// Stop before a wrong length fills the memory, or a cycle of pages is
			// followed forever.
			return fmt.Errorf("%w: an entry is longer than the file", ErrDamaged)
		case value == nil:
			return fmt.Errorf("%w: found a bucket among the entries", ErrDamaged)
		case last != nil && bytes.Compare(last, key) >= 0:
			return fmt.Errorf("%w: keys out of order", ErrDamaged)
		}
		last = bytes.Clone(key) // bbolt's slice is valid only during the transaction
		pairs = append(pairs, pair{last, bytes.Clone(value)})
		return nil
	})
	return pairs, err
}

// close closes the file and frees its lock. After a panic, bbolt may hold internal
// locks for which its Close would wait forever. In that case close does not call it,
// and the file stays mapped until the process ends.
func (d *database) close() error {
	if d.stuck {
		return errors.Join(unlock(d.file), d.file.Close())
	}
	return d.db.Close()
}
