package boltrecord

// The file, as bbolt has it: what keeps one that is damaged from ending the
// process.

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

// database is a bbolt database whose file may hold anything. One call at a time.
type database struct {
	file    *os.File
	db      *bbolt.DB
	damaged error // bbolt is called no more
	stuck   bool  // nor to close the file
}

func openDatabase(path string) (*database, error) {
	// First what does not look at the list of free pages: of a bbolt that panics
	// while it opens a file, nobody can take back the mapping.
	look := &database{}
	err := look.open(path, true)
	if err == nil {
		err = errors.Join(look.view(look.length), look.close())
	}
	if errors.Is(err, ErrDamaged) || errors.Is(err, ErrInUse) {
		return nil, err
	}
	d := &database{} // whatever else it was, there may be no file yet
	if err := d.open(path, false); err != nil {
		return nil, err
	}
	return d, nil
}

// open leaves nothing open where it fails.
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
	default: // what the system did not refuse, bbolt did: there are errors of it that have no name
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
}

// guard has f use bbolt. What makes no sense to bbolt it panics about, and what is
// not there any more of a file that is mapped is a fault, which without
// SetPanicOnFault ends the process. (It counts for this goroutine only, which is why
// tx.Check, which starts another, is of no use here.)
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	return f()
}

// call has f use bbolt, unless it was found that it cannot.
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

// view has f read. Its panics end before bbolt, which can be closed then.
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

// claim makes the bucket in a file that holds nothing yet, and reads one that
// holds something to its end: better that a start fails than something later. It
// takes as long as the Load that follows, some 50 ms for 100,000 entries of 200
// bytes, and writes nothing, so that what is damaged stays as it was found.
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
			return fmt.Errorf("%w: it holds %q", ErrForeign, name)
		}
		_, err := tx.CreateBucket(bucket)
		return err
	})
}

// pair is what stands in the file under a key.
type pair struct{ key, value []byte }

// load returns everything in the file, in the order of keys.
func (d *database) load() (pairs []pair, err error) {
	err = d.view(func(tx *bbolt.Tx) (err error) {
		pairs, err = d.read(tx)
		return err
	})
	return pairs, err
}

// length finds a file that was cut short. bbolt writes all that a head speaks of
// before the head.
func (d *database) length(tx *bbolt.Tx) error {
	info, err := d.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < tx.Size() {
		return fmt.Errorf("%w: it was cut short, from at least %d bytes to %d", ErrDamaged, tx.Size(), info.Size())
	}
	return nil
}

// pages finds a page that says it is longer than it can be: to free it would take
// bbolt for ever, and all memory.
func (d *database) pages(tx *bbolt.Tx) error {
	id := 2 // after the two heads
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

// read also finds what bbolt does not look at: it has no sums over its pages.
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
		case left < 0: // before memory is taken for it, or a circle of pages is followed for ever
			return fmt.Errorf("%w: an entry is longer than the file", ErrDamaged)
		case value == nil:
			return fmt.Errorf("%w: there is a bucket among the entries", ErrDamaged)
		case last != nil && bytes.Compare(last, key) >= 0:
			return fmt.Errorf("%w: the keys are not in order", ErrDamaged)
		}
		last = bytes.Clone(key) // what bbolt gives lasts as long as the transaction
		pairs = append(pairs, pair{last, bytes.Clone(value)})
		return nil
	})
	return pairs, err
}

// close closes the file, and frees its lock. A bbolt that has panicked may hold
// locks of its own, for which its Close would wait for ever; without that the
// file stays mapped until the process ends.
func (d *database) close() error {
	if d.stuck {
		return errors.Join(unlock(d.file), d.file.Close())
	}
	return d.db.Close()
}
