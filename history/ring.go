package history

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
)

// The bounds of a ring that have no option.
const (
	keptChanges = 10_000  // of a term, and as many events
	keptList    = 100     // waiting instances and pauses of a term
	keptPoints  = 256     // of the load of a worker
	keptGone    = 10_000  // removals of workers
	keptWorkers = 1 << 20 // with a load
)

// The defaults of a ring, and those of Open: about what the default log files hold.
const (
	defaultTerms, openTerms     = 1000, 200_000
	defaultChanges, openChanges = 100_000, 1_000_000
	defaultMaxBytes             = 64 << 20
	defaultFiles                = 4
)

// Ring holds the last terms of one leader after another. Its methods are safe for
// concurrent use, and never wait for a term or for the disk, except Close.
type Ring struct {
	cfg   config
	log   *logWriter // nil without a file
	notes []string   // of Open; do not change

	mu      sync.Mutex // guards the rest; held for O(workers) at most
	closed  bool
	terms   []*Term   // the oldest first; the array may be shared with views
	shared  bool      // a view shares the array
	changes int       // and events, of terms
	quiet   Quiet     // since the last of terms
	written time.Time // the start of the last term that was put into the log
	workers map[string]*series
	gone    []removal // of workers, the oldest first
	restart bool      // the next term is the first of another process
	// stripped counts those of terms, from the first, that have lost their changes.
	stripped int
}

// series is what a ring knows of a worker.
type series struct {
	row     WorkerRow
	points  []point
	removed uint64 // the seq of the last removal, or notYet
}

// notYet: the worker is not in the file of another process. The next term removes it.
const notYet = math.MaxUint64

// point is a number of tasks from a term on.
type point struct {
	seq   uint64 // of the term
	tasks int
}

// removal is the removal of a worker, which may have returned.
type removal struct {
	worker string
	seq    uint64 // of the term
}

// Option is a setting of [New] or [Open]. If an option is given twice, the later one
// counts.
type Option func(*config) error

type config struct {
	terms, changes int
	logger         *slog.Logger
	path           string // empty: no file
	maxBytes       int64
	files          int
	queue          int // values of lines
	openFile       func(path string) (f file, size int64, err error)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{orchestrator.ErrInvalid}, args...)...)
}

// WithTerms sets how many terms the ring keeps, quiet ones not counted. The default is
// 1000, and 200,000 for Open. n must be at least 1.
func WithTerms(n int) Option {
	return atLeastOne("WithTerms", n, func(c *config) { c.terms = n })
}

// atLeastOne returns an option that sets a number.
func atLeastOne(name string, n int, set func(*config)) Option {
	return func(c *config) error {
		if n < 1 {
			return invalid("%s(%d): must be at least 1", name, n)
		}
		set(c)
		return nil
	}
}

// WithChanges sets how many changes and worker events the ring keeps; older terms keep
// their statistics only. The default is 100,000, and 1,000,000 for Open. n must be at
// least 1. The last term keeps its changes in any case, which are at most 10,000.
func WithChanges(n int) Option {
	return atLeastOne("WithChanges", n, func(c *config) { c.changes = n })
}

// WithLogger sets the logger. The default, and nil, discard everything. The first of
// several failed writes to the file logs a line at Error, as does the first term that the
// queue has no room for. The next write that succeeds logs a line at Info.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) error {
		if l == nil {
			l = slog.New(slog.DiscardHandler)
		}
		c.logger = l
		return nil
	}
}

// WithFile writes what the ring records to a log file, for [Open]. Before the file exceeds
// maxBytes it is renamed to path.1, path.1 to path.2 and so on, so that at most the given
// number of files exist. A single term may exceed maxBytes. If the file exists, New appends
// to it, and returns [ErrFormat] if it is not a log. New files are readable by their owner
// only. A path belongs to one ring at a time.
//
// A goroutine of the ring writes a line for each term that is not quiet, and one a minute
// for quiet terms. It does not sync the disk. While writes fail, lines wait in a queue of
// 200,000 changes and other values; what does not fit is counted by [Ring.LogStatus]. The
// ring itself does not depend on the file.
//
// The default is no file. 0 stands for 64 MiB and for 4 files.
func WithFile(path string, maxBytes int64, files int) Option {
	return func(c *config) error {
		if path == "" || maxBytes < 0 || files < 0 {
			return invalid("WithFile(%q, %d, %d): must be a path and numbers that are not negative", path, maxBytes, files)
		}
		c.path, c.maxBytes, c.files = path, cmp.Or(maxBytes, defaultMaxBytes), cmp.Or(files, defaultFiles)
		return nil
	}
}

// New returns an empty ring. With a file it must be closed.
func New(opts ...Option) (*Ring, error) {
	r, err := newRing(config{terms: defaultTerms, changes: defaultChanges}, opts)
	if err != nil || r.cfg.path == "" {
		return r, err
	}
	if r.log, err = newLogWriter(&r.cfg); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	return r, nil
}

func newRing(cfg config, opts []Option) (*Ring, error) {
	cfg.logger, cfg.openFile, cfg.queue = slog.New(slog.DiscardHandler), openFile, mostQueued
	var errs []error
	for _, opt := range opts {
		if opt == nil {
			errs = append(errs, invalid("an Option is nil"))
			continue
		}
		errs = append(errs, opt(&cfg))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Ring{cfg: cfg, workers: make(map[string]*series)}, nil
}

// Close ends the recording, writes what waits to be written, and closes the file. It
// returns the error of the last write. The ring can still be read. A second call does
// nothing.
func (r *Ring) Close() error {
	r.mu.Lock()
	open := !r.closed && r.log != nil
	if open {
		r.log.finish(r.quiet, r.present)
	}
	r.closed = true
	r.mu.Unlock()
	if !open {
		return nil
	}
	<-r.log.done
	return r.log.state().Err
}

// LogStatus says whether the file of [WithFile] has all terms.
func (r *Ring) LogStatus() LogStatus {
	if r.log == nil {
		return LogStatus{}
	}
	return r.log.state()
}

// Notes says what [Open] has left out, and why: at most twenty notes and the number of the
// others.
func (r *Ring) Notes() []string { return slices.Clone(r.notes) }

// record adds a term, and queues it for the file.
func (r *Ring) record(t *Term, rows []WorkerRow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.add(t, rows)
	if r.log != nil {
		r.log.put(line{Term: t, Workers: rows}, r.present)
		r.written = t.Stats.Start
	}
}

// recordQuiet records a quiet term.
func (r *Ring) recordQuiet(id orchestrator.Term, start time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.quiet = Quiet{r.quiet.Terms + 1, id, start}
	if r.log != nil && start.Sub(r.written) >= quietWritten {
		r.log.put(line{Quiet: new(r.quiet)}, r.present)
		r.written = start
	}
}

// addRows adds workers that were read, as the last term left them.
func (r *Ring) addRows(rows []WorkerRow) {
	var seq uint64
	if n := len(r.terms); n > 0 {
		seq = r.terms[n-1].seq
	}
	for i := range rows {
		r.addRow(seq, &rows[i])
	}
}

// begin begins the terms of another process: no worker is known to be present.
func (r *Ring) begin() {
	for _, s := range r.workers {
		if !s.row.Removed {
			s.row.Removed, s.removed = true, notYet
		}
	}
	r.restart = true
}

// add adds a term, which must not change afterwards, with the rows of the workers that
// differ from those before. It takes O(rows), and drops the oldest terms. The caller holds
// mu, if another goroutine has the ring.
func (r *Ring) add(t *Term, rows []WorkerRow) {
	if n := len(r.terms); n > 0 {
		t.seq = r.terms[n-1].seq + 1
	}
	if t.Quiet.Terms < r.quiet.Terms {
		t.Quiet = r.quiet
	}
	r.terms = append(r.terms, t)
	r.changes += t.kept()
	r.quiet = Quiet{}
	for i := range rows {
		r.addRow(t.seq, &rows[i])
	}
	if r.restart {
		for name, s := range r.workers {
			if s.row.Removed && s.removed == notYet {
				r.remove(name, s, t.seq)
			}
		}
		r.restart = false
	}
	r.trim()
}

// remove records that a worker was removed.
func (r *Ring) remove(name string, s *series, seq uint64) {
	s.removed = seq
	r.gone = append(r.gone, removal{name, seq})
}

// addRow records a worker.
func (r *Ring) addRow(seq uint64, row *WorkerRow) {
	s := r.workers[row.Name]
	if s == nil {
		if row.Removed || len(r.workers) >= keptWorkers {
			return
		}
		s = &series{row: WorkerRow{Tasks: -1}}
		r.workers[row.Name] = s
	}
	if n := len(s.points); s.row.Tasks != row.Tasks {
		if n > 0 && s.points[n-1].seq == seq {
			s.points = s.points[:n-1]
		} else if n == keptPoints {
			s.points = append(s.points[:0], s.points[1:]...)
		}
		s.points = append(s.points, point{seq, row.Tasks})
	}
	if row.Removed && !s.row.Removed {
		r.remove(row.Name, s, seq)
	}
	s.row = *row
}

// trim enforces the bounds.
func (r *Ring) trim() {
	over := 0
	for len(r.terms)-over > r.cfg.terms {
		r.changes -= r.terms[over].kept()
		over++
	}
	if r.shared && (over > 0 || r.changes > r.cfg.changes) {
		r.terms, r.shared = slices.Clone(r.terms), false
	}
	clear(r.terms[:over]) // the array remains
	r.terms, r.stripped = r.terms[over:], max(0, r.stripped-over)
	for ; r.changes > r.cfg.changes && r.stripped < len(r.terms)-1; r.stripped++ {
		t := r.terms[r.stripped]
		r.changes -= t.kept()
		r.terms[r.stripped] = t.stripped()
	}
	for len(r.gone) > 0 && (len(r.gone) > keptGone || r.gone[0].seq < r.terms[0].seq) {
		x := r.gone[0]
		r.gone[0], r.gone = removal{}, r.gone[1:]
		if s := r.workers[x.worker]; s != nil && s.row.Removed && s.removed == x.seq {
			delete(r.workers, x.worker)
		}
	}
}

// begun returns the workers that are not removed, and reports whether the ring has a term.
func (r *Ring) begun() (rows []WorkerRow, begun bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.present(), len(r.terms) > 0
}

// present returns the workers that are not removed, in the order of their names. The caller
// holds mu.
func (r *Ring) present() (rows []WorkerRow) {
	for _, s := range r.workers {
		if !s.row.Removed {
			rows = append(rows, s.row)
		}
	}
	slices.SortFunc(rows, byName)
	return rows
}

// load returns the points of a worker's load, up to a term.
func (r *Ring) load(worker string, seq uint64) []point {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.workers[worker]
	if s == nil {
		return nil
	}
	end, _ := slices.BinarySearchFunc(s.points, seq, func(p point, seq uint64) int {
		return cmp.Or(cmp.Compare(p.seq, seq), -1) // after the points of the term
	})
	return slices.Clone(s.points[:end])
}

// View returns what the ring has now. It takes no time, and later terms do not change it.
func (r *Ring) View() *View {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shared = true
	return &View{ring: r, terms: r.terms, quiet: r.quiet, stripped: r.stripped}
}

// plain returns a time as it is read back from JSON.
func plain(t time.Time) time.Time { return t.Round(0).UTC() }
