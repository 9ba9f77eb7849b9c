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
	mostValues  = 400_000 // of a line; one that the writer made has fewer
	mostNotes   = 20
	keptBytes   = 1 << 30 // of lines
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
// ones, path.1 being the newest of them. It reads them once, in memory that is bounded
// whatever is in them, and leaves them as they are. A process may be writing them.
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
	var buf []byte
	for n := 1; ; n++ {
		var whole, short bool
		buf, whole, short, err = readLine(in, buf[:0])
		ended := errors.Is(err, io.EOF)
		switch {
		case err != nil && !ended:
			return fmt.Errorf("%s: %w", path, err)
		case !short:
			rd.note("%s:%d: longer than %d bytes, left out", path, n, longestLine)
		case ended && len(buf) == 0:
			return nil
		default:
			if err := rd.line(buf); err != nil && !whole {
				rd.note("%s:%d: cut, left out", path, n)
			} else if err != nil {
				rd.note("%s:%d: damaged, left out: %v", path, n, err)
			}
		}
		if ended {
			return nil
		}
	}
}

// readLine appends a line to buf, without its end. whole reports whether it has an end, and
// short whether it is not too long. A line that is too long is skipped.
func readLine(in *bufio.Reader, buf []byte) (_ []byte, whole, short bool, err error) {
	for short = true; ; {
		var part []byte
		part, err = in.ReadSlice('\n')
		if short = short && len(buf)+len(part) <= longestLine; short {
			buf = append(buf, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
	}
	buf, whole = bytes.CutSuffix(buf, []byte("\n"))
	return buf, whole, short, err
}

// line adds a line to the ring, which no other goroutine has yet.
func (rd *reader) line(text []byte) error {
	if len(text) == 0 {
		return nil // a cut line was ended
	}
	if values(text) > mostValues {
		return errors.New("too many values")
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
	if err := l.check(); err != nil {
		return err
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
		l.Term.bytes = len(text)
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

// values counts the commas outside of strings, which bound the values of a JSON text and so
// the memory of its decoded form.
func values(text []byte) (n int) {
	for i, quoted := 0, false; i < len(text); i++ {
		switch text[i] {
		case '"':
			quoted = !quoted
		case '\\':
			i++
		case ',':
			if !quoted {
				n++
			}
		}
	}
	return n
}

// check checks the bounds of what the ring keeps for each term and for each worker.
func (l *line) check() error {
	if t := l.Term; t != nil && (len(t.Changes) > keptChanges || len(t.Events) > keptChanges ||
		len(t.Waiting) > keptList || len(t.Paused) > keptList) {
		return errors.New("too many values")
	}
	for i := range l.Workers {
		if w := &l.Workers[i]; len(w.Name) > LongestText || w.Tasks < 0 {
			return errors.New("not a worker")
		}
	}
	return nil
}
