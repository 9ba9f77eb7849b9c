package history

// The log file: its format, and the goroutine that writes it.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
)

// A log is a set of files of JSON lines. The first line of each file is a header. A line with
// all workers at that moment follows it. Each other line is a term, with the workers that
// differ from those before it, or the quiet terms since the last line of a term. A header
// within a file begins the terms of another process, or those after a gap.
type line struct {
	Format  string `json:"format,omitempty"`
	Version int    `json:"version,omitempty"`

	// Missed counts the terms between the line before and this one that are not in the log.
	// Workers then has all workers.
	Missed  int         `json:"missed,omitempty"`
	Term    *Term       `json:"term,omitempty"`
	Workers []WorkerRow `json:"workers,omitempty"`
	Quiet   *Quiet      `json:"quiet,omitempty"`
}

const (
	format  = "orchestrator history"
	version = 1

	mostQueued   = 200_000 // values of lines
	quietWritten = time.Minute
	mode         = 0o600
)

func header() string {
	return fmt.Sprintf(`{"format":%q,"version":%d}`+"\n", format, version)
}

// weight returns the number of values in a line.
func (l *line) weight() int {
	n := 1 + len(l.Workers)
	if l.Term != nil {
		n += l.Term.kept() + len(l.Term.Waiting) + len(l.Term.Paused) + len(l.Term.Holds)
	}
	return n
}

// LogStatus says whether the log file has all terms.
type LogStatus struct {
	// Err is the error of the last write. It is nil if that succeeded, without a file, and
	// after Open.
	Err error
	// Missed counts the terms that are not in the file, because it could not be written
	// for long.
	Missed int
}

// logWriter writes a log. Its queue is bounded. Terms that do not fit into it are counted,
// and the next line has all workers.
type logWriter struct {
	cfg  *config
	wake chan struct{} // holds a value after the queue, dropped or closed has changed
	done chan struct{} // closed when the goroutine has returned

	mu      sync.Mutex // guards the following, and is not held during a write
	queue   []line
	weight  int                // of the queue
	missed  int                // terms since the last line of the queue
	dropped *orchestrator.Term // the first that did not fit; nil when it is logged
	status  LogStatus
	closed  bool

	// The rest belongs to the goroutine.
	file  file
	size  int64
	cut   bool // the file ends within a line
	begun bool // the file has a header of this process
	rows  map[string]WorkerRow
	buf   bytes.Buffer
}

type file interface {
	io.ReaderAt
	io.Writer
	io.Closer
	Truncate(size int64) error
}

// newLogWriter opens the file and starts the goroutine.
func newLogWriter(cfg *config) (*logWriter, error) {
	w := &logWriter{cfg: cfg, wake: make(chan struct{}, 1), done: make(chan struct{}), rows: make(map[string]WorkerRow)}
	if err := w.open(); err != nil {
		return nil, err
	}
	go w.run()
	return w, nil
}

// put queues a line. It never waits for the disk. Quiet terms that do not fit are counted by
// a later line. all returns all workers at the end of the line's term.
func (w *logWriter) put(l line, all func() []WorkerRow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	most := w.cfg.queue
	if w.missed > 0 {
		most /= 2 // one gap in the log, instead of many
	}
	switch {
	case w.weight+l.weight() <= most || len(w.queue) == 0:
		w.add(l, all)
	case l.Term != nil:
		if w.missed++; w.missed == 1 {
			w.dropped = &l.Term.Stats.Term
		}
		w.status.Missed++
	}
	w.signal() // in any case, so that a write that failed is tried again
}

// add adds a line to the queue. The caller holds mu.
func (w *logWriter) add(l line, all func() []WorkerRow) {
	if w.missed > 0 {
		l.Missed, l.Workers, w.missed = w.missed, all(), 0
	}
	w.queue = append(w.queue, l)
	w.weight += l.weight()
}

func (w *logWriter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func byName(a, b WorkerRow) int { return cmp.Compare(a.Name, b.Name) }

// finish queues the last line, which has the quiet terms if there are some. After that,
// put does nothing.
func (w *logWriter) finish(quiet Quiet, all func() []WorkerRow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var l line
	if quiet.Terms > 0 {
		l.Quiet = &quiet
	}
	if l.Quiet != nil || w.missed > 0 {
		w.add(l, all)
	}
	w.closed = true
	w.signal()
}

func (w *logWriter) state() LogStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// run writes lines until the log is closed. A line that could not be written stays in the
// queue until the next one is put.
func (w *logWriter) run() {
	defer close(w.done)
	for closed := false; !closed; {
		<-w.wake
		w.mu.Lock()
		closed = w.closed // no line is queued after that
		dropped, err := w.dropped, w.status.Err
		w.dropped = nil
		w.mu.Unlock() // so that a slow logger delays no term
		if dropped != nil {
			w.cfg.logger.Error("history log too slow, terms dropped", "path", w.cfg.path, "term", *dropped, "err", err)
		}
		for l, ok := w.first(); ok; l, ok = w.first() {
			if !w.report(w.write(l)) {
				break
			}
		}
	}
	var err error
	if w.file != nil {
		err = w.file.Close()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.Err = cmp.Or(w.status.Err, err)
	for _, l := range w.queue {
		if l.Term != nil {
			w.status.Missed++
		}
	}
}

// first returns the first line of the queue.
func (w *logWriter) first() (line, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return line{}, false
	}
	return w.queue[0], true
}

// report records the result of writing the first line of the queue. It reports whether it
// was written.
func (w *logWriter) report(err error) bool {
	w.mu.Lock()
	before, missed := w.status.Err, w.status.Missed
	w.status.Err = err
	if err == nil {
		w.weight -= w.queue[0].weight()
		w.queue[0] = line{}
		w.queue = w.queue[1:]
	}
	w.mu.Unlock() // so that a slow logger delays no term
	switch {
	case err != nil && before == nil:
		w.cfg.logger.Error("history log not written, will retry", "path", w.cfg.path, "err", err)
	case err == nil && before != nil:
		w.cfg.logger.Info("history log written again", "path", w.cfg.path, "missed", missed)
	}
	return err == nil
}

// write writes a line, to the next file if this one is full.
func (w *logWriter) write(l line) error {
	if err := w.open(); err != nil {
		return err
	}
	if l.Missed > 0 { // and the log with it: the line has all workers
		w.rows, w.begun = make(map[string]WorkerRow), false
	}
	if err := w.encode(l); err != nil {
		return err
	}
	if w.size > 0 && w.size+int64(w.buf.Len()) > w.cfg.maxBytes {
		if err := w.rotate(); err != nil {
			return err
		}
		if err := w.encode(l); err != nil { // with a header
			return err
		}
	}
	n, err := w.file.Write(w.buf.Bytes())
	if err != nil {
		if w.file.Truncate(w.size) != nil {
			return w.abandon(err) // the next write looks at what is there
		}
		return err
	}
	w.size += int64(n)
	w.cut, w.begun = false, true
	for _, row := range l.Workers {
		if row.Removed {
			delete(w.rows, row.Name)
		} else {
			w.rows[row.Name] = row
		}
	}
	return nil
}

// encode puts a line into the buffer, with the header and all workers before it if the
// file has none of this process.
func (w *logWriter) encode(l line) error {
	w.buf.Reset()
	if w.cut {
		w.buf.WriteByte('\n')
	}
	if !w.begun {
		w.buf.WriteString(header())
	}
	to := json.NewEncoder(&w.buf)
	if !w.begun && len(w.rows) > 0 {
		if err := to.Encode(line{Workers: slices.SortedFunc(maps.Values(w.rows), byName)}); err != nil {
			return err
		}
	}
	return to.Encode(l)
}

// open opens the file unless it is open. A file of another version makes room for a new
// one.
func (w *logWriter) open() error {
	if w.file != nil {
		return nil
	}
	f, size, err := w.cfg.openFile(w.cfg.path)
	if err != nil {
		return err
	}
	w.file, w.size, w.cut, w.begun = f, size, false, false
	start := make([]byte, min(size, headerBytes))
	if _, err := f.ReadAt(start, 0); err != nil {
		return w.abandon(err)
	}
	switch err := checkHeader(start); {
	case size == 0:
	case errors.Is(err, errCutHeader):
		if err := f.Truncate(0); err != nil {
			return w.abandon(err)
		}
		w.size = 0
	case errors.Is(err, errVersion):
		return w.rotate()
	case err != nil:
		return w.abandon(fmt.Errorf("%s: %w", w.cfg.path, err))
	default:
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, size-1); err != nil {
			return w.abandon(err)
		}
		w.cut = last[0] != '\n'
	}
	return nil
}

// abandon closes the file after an error, which it returns.
func (w *logWriter) abandon(err error) error {
	_ = w.file.Close() // the other error says more
	w.file = nil
	return err
}

// rotate renames the files and begins a new one. Files move only up to the first name that
// is free, so that another attempt after a failed rename overwrites none.
func (w *logWriter) rotate() error {
	err := w.file.Close()
	w.file = nil
	if err != nil {
		return err
	}
	name := func(i int) string { return fileName(w.cfg.path, i) }
	free := 1
	for ; free < w.cfg.files-1; free++ {
		if _, err := os.Lstat(name(free)); errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if w.cfg.files == 1 {
		err, free = os.Remove(w.cfg.path), 0
	}
	for i := free; i > 0 && err == nil; i-- {
		err = os.Rename(name(i-1), name(i))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // path was removed
		return err
	}
	return w.open()
}

// fileName returns the name of the rotated file with a number, or of the log for 0.
func fileName(path string, number int) string {
	if number == 0 {
		return path
	}
	return path + "." + strconv.Itoa(number)
}

// openFile opens a file for appending, and creates it if it does not exist.
func openFile(path string) (f file, size int64, err error) {
	opened, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, mode)
	if err != nil {
		return nil, 0, err
	}
	info, err := opened.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a regular file", path)
	}
	if err != nil {
		_ = opened.Close() // nothing was written
		return nil, 0, err
	}
	return opened, info.Size(), nil
}
