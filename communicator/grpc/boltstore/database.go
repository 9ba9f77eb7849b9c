package boltstore

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
	file     *os.File
	db       *bbolt.DB
	damaged  error // bbolt is called no more
	panicked bool  // nor to close the file
}

func openDatabase(path string) (*database, error) {
	d := &database{}
	options := &bbolt.Options{
		Timeout: lockWait,
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
	case err == nil:
		return d, nil
	case errors.Is(err, ErrDamaged):
		return nil, errors.Join(err, d.close())
	case errors.Is(err, berrors.ErrTimeout):
		return nil, ErrInUse
	case errors.As(err, &refused):
		return nil, err
	default: // what the system did not refuse, bbolt did: there are errors of it that have no name
		return nil, fmt.Errorf("%w: %w", ErrForeign, err)
	}
}

// call has f use bbolt. What makes no sense to bbolt it panics about, and what is
// not there any more of a file that is mapped is a fault, which without
// SetPanicOnFault ends the process. (It counts for this goroutine only, which is why
// tx.Check, which starts another, is of no use here.)
func (d *database) call(f func() error) (err error) {
	if d.damaged != nil {
		return d.damaged
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			d.panicked, err = true, fmt.Errorf("%w: %v", ErrDamaged, p)
		}
		if errors.Is(err, ErrDamaged) {
			d.damaged = err
		}
	}()
	return f()
}

// claim makes the bucket in a file that holds nothing yet, and reads one that
// holds something to its end: better that a start fails than something later. It
// takes as long as the Load that follows, some 50 ms for 100,000 entries of 200
// bytes, and writes nothing, so that what is damaged stays as it was found.
func (d *database) claim() error {
	return d.call(func() error {
		fresh := false
		err := d.db.View(func(tx *bbolt.Tx) error {
			if fresh = tx.Bucket(bucket) == nil; fresh {
				return nil
			}
			_, err := d.read(tx)
			return err
		})
		if err != nil || !fresh {
			return err
		}
		return d.db.Update(func(tx *bbolt.Tx) error {
			if name, _ := tx.Cursor().First(); name != nil {
				return fmt.Errorf("%w: it holds %q", ErrForeign, name)
			}
			_, err := tx.CreateBucket(bucket)
			return err
		})
	})
}

// pair is what stands in the file under a key.
type pair struct{ key, value []byte }

// load returns everything in the file, in the order of keys.
func (d *database) load() (pairs []pair, err error) {
	err = d.call(func() error {
		return d.db.View(func(tx *bbolt.Tx) (err error) {
			pairs, err = d.read(tx)
			return err
		})
	})
	return pairs, err
}

// read also finds what bbolt does not look at: it has no sums over its pages.
func (d *database) read(tx *bbolt.Tx) (pairs []pair, err error) {
	info, err := d.file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() < tx.Size() {
		return nil, fmt.Errorf("%w: it was cut short, from at least %d bytes to %d", ErrDamaged, tx.Size(), info.Size())
	}
	id := 2 // after the two heads
	for {
		page, err := tx.Page(id)
		if err != nil {
			return nil, err
		}
		if page == nil {
			break
		}
		id++
		if page.Type != "free" {
			id += page.OverflowCount
		}
	}
	if int64(id)*int64(d.db.Info().PageSize) != tx.Size() { // freeing it would take for ever, and all memory
		return nil, fmt.Errorf("%w: a page is longer than the file", ErrDamaged)
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

func (d *database) update(f func(b *bbolt.Bucket) error) error {
	return d.call(func() error {
		return d.db.Update(func(tx *bbolt.Tx) error { return f(tx.Bucket(bucket)) })
	})
}

// close closes the file, and frees its lock. A bbolt that has panicked may hold
// locks of its own, for which its Close would wait for ever; without that the
// file stays mapped until the process ends.
func (d *database) close() error {
	if d.panicked {
		return errors.Join(unlock(d.file), d.file.Close())
	}
	return d.db.Close()
}
