package history

// Reading a log.

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/f8949c05/orchestrator"
)

const (
	headerBytes = 1 << 10 // bounds the first line
	mostNotes   = 20
)

// ErrFormat reports a file that is not a log of this version.
var ErrFormat = errors.New("not a history log")

var (
	errVersion   = fmt.Errorf("%w of this version", ErrFormat)
	errCutHeader = errors.New("the header is cut")
)

// checkHeader checks the start of a file, which has at most headerBytes bytes.
func checkHeader(start []byte) error {
	first, _, ended := bytes.Cut(start, []byte("\n"))
	if !ended && strings.HasPrefix(header(), string(start)) {
		return errCutHeader
	}
	var l line
	if !ended || json.Unmarshal(first, &l) != nil {
		return ErrFormat
	}
	return l.checkFormat()
}

// checkFormat checks a line that is a header.
func (l *line) checkFormat() error {
	switch {
	case l.Format != format:
		return ErrFormat
	case l.Version != version:
		return fmt.Errorf("%w: its version is %d, not %d", errVersion, l.Version, version)
	}
	return nil
}

// Open returns a ring with what a log has: the file at path, and before it the rotated
// ones, path.1 being the newest of them. It reads them once, and leaves them as they are. A
// process may be writing them.
//
// Lines that are damaged or cut are left out, as are rotated files of another version or
// that cannot be read; [Ring.Notes] has them, and the gaps of a log that could not be
// written. Open returns [ErrFormat] if the file at path is not a log of this version, and an
// error if it cannot be read or if no file has a header. [WithFile] is not an option of
// Open, and [Ring.Close] does nothing.
func Open(path string, opts ...Option) (*Ring, error) {
	r, err := newRing(config{terms: openTerms, changes: openChanges}, opts)
	if err != nil {
		return nil, err
	}
	if r.cfg.path != "" {
		return nil, invalid("WithFile: not an option of Open")
	}
	rd := reader{ring: r}
	files, err := rd.open(path)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, f := range slices.Backward(files) {
		err = rd.file(f)
		if err != nil && f.Name() != path {
			rd.note("%v", err)
		}
		errs = append(errs, err)
		_ = f.Close() // it was read
	}
	switch {
	case err != nil && files[0].Name() == path:
		return nil, err
	case !rd.found:
		return nil, cmp.Or(errors.Join(errs...), fmt.Errorf("%s: empty: no term has been recorded", path))
	case rd.more > 0:
		r.notes = append(r.notes, fmt.Sprintf("and %d more", rd.more))
	}
	r.closed = true
	return r, nil
}

// reader fills a ring with the lines of files.
type reader struct {
	ring    *Ring
	found   bool // a file with a header
	last    orchestrator.Term
	foreign bool // the lines are those of another format or version
	more    int  // notes beyond mostNotes
}

// note records a defect.
func (rd *reader) note(format string, args ...any) {
	if len(rd.ring.notes) == mostNotes {
		rd.more++
		return
	}
	rd.ring.notes = append(rd.ring.notes, fmt.Sprintf(format, args...))
}

// open opens the files of a log, the newest first. It opens them before any is read, so that
// a rotation in between loses none.
func (rd *reader) open(path string) (files []*os.File, err error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	numbers := []int{0}
	for _, e := range entries {
		suffix, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		if n, err := strconv.Atoi(suffix); ok && err == nil && n > 0 && strconv.Itoa(n) == suffix {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		f, e := os.Open(fileName(path, n))
		switch missing := errors.Is(e, fs.ErrNotExist); {
		case n == 0 && missing:
			err = e
		case n == 0 && e != nil:
			return nil, e
		case missing: // it was removed
		case e != nil:
			rd.note("%v", e)
		case len(files) > 0 && sameFile(f, files[len(files)-1]): // it was renamed
			_ = f.Close() // it was not read
		default:
			files = append(files, f)
		}
	}
	if len(files) > 0 {
		err = nil
	}
	return files, err
}

func sameFile(a, b *os.File) bool {
	x, errX := a.Stat()
	y, errY := b.Stat()
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// file reads a file. It returns [ErrFormat] if the file is not a log of this version, and
// an error if it cannot be read.
func (rd *reader) file(f *os.File) error {
	path := f.Name()
	in := bufio.NewReaderSize(f, 64<<10)
	start, err := in.Peek(headerBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", path, err)
	}
	switch err := checkHeader(start); {
	case errors.Is(err, errCutHeader): // or empty
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	}
	rd.found = true
	for n := 1; ; n++ {
		text, err := in.ReadBytes('\n')
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := rd.line(bytes.TrimSuffix(text, []byte("\n"))); err != nil && ended {
			rd.note("%s:%d: cut, left out", path, n)
		} else if err != nil {
			rd.note("%s:%d: damaged, left out: %v", path, n, err)
		}
		if ended {
			return nil
		}
	}
}

// line adds a line to the ring, which no other goroutine has yet.
func (rd *reader) line(text []byte) error {
	if len(text) == 0 {
		return nil // a cut line was ended
	}
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return err
	}
	if l.Format != "" {
		err := l.checkFormat()
		if rd.foreign = err != nil; !rd.foreign {
			rd.ring.begin()
		}
		return err
	}
	if rd.foreign {
		return nil
	}
	if slices.ContainsFunc(l.Workers, func(w WorkerRow) bool { return w.Tasks < 0 }) {
		return errors.New("not a worker")
	}
	if l.Missed > 0 {
		rd.note("%d terms after term %d were not written", l.Missed, rd.last.Number)
	}
	switch {
	case l.Term != nil:
		is, last := l.Term.Stats.Term, rd.last
		if rd.last = is; is.Compare(last) <= 0 && !rd.ring.restart && last.Number > 0 {
			rd.note("term %d of epoch %d is after term %d of epoch %d: two processes wrote the log", is.Number, is.Epoch, last.Number, last.Epoch)
		}
		rd.ring.add(l.Term, l.Workers)
	case l.Missed == 0 && l.Quiet == nil && l.Workers == nil:
		return errors.New("not a line of a history log")
	default:
		rd.ring.addRows(l.Workers)
		if l.Quiet != nil {
			rd.ring.quiet, rd.last = *l.Quiet, l.Quiet.Last
		}
	}
	return nil
}
