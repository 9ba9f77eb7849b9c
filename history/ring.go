package history

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
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
	keptWorkers = 1 << 20 // with a load
	longestText = 512     // bytes of a name or an error
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
	notes []string // of Open; do not change

	mu      sync.Mutex // guards the rest; held for O(workers) at most
	closed  bool
	terms   []*Term // the oldest first; the array may be shared with views
	shared  bool    // a view shares the array
	changes int     // and events, of terms
	quiet   Quiet   // since the last of terms
	workers map[string]*series
	// stripped counts those of terms, from the first, that have lost their changes.
	stripped int
}

// series is what a ring knows of a worker.
type series struct {
	row    WorkerRow
	points []point
}

// point is a number of tasks from a term on.
type point struct {
	seq   uint64 // of the term
	tasks int32
}

// Option is a setting of [New] or [Open]. If an option is given twice, the later one
// counts.
type Option func(*config) error

type config struct {
	terms, changes int
	logger         *slog.Logger
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{orchestrator.ErrInvalid}, args...)...)
}

// WithTerms sets how many terms the ring keeps, quiet ones not counted. The default is
// 1000, and 200,000 for Open. n must be at least 1.
func WithTerms(n int) Option {
	return func(c *config) error {
		if n < 1 {
			return invalid("WithTerms(%d): must be at least 1", n)
		}
		c.terms = n
		return nil
	}
}

// WithChanges sets how many changes and worker events the ring keeps; older terms keep
// their statistics only. The default is 100,000, and 1,000,000 for Open. n must be at
// least 1. The last term keeps its changes in any case, which are at most 10,000.
func WithChanges(n int) Option {
	return func(c *config) error {
		if n < 1 {
			return invalid("WithChanges(%d): must be at least 1", n)
		}
		c.changes = n
		return nil
	}
}

// WithLogger sets the logger. The default, and nil, discard everything. A failed write to
// the file logs one line at Error, and the next one that succeeds a line at Info.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) error {
		if l == nil {
			l = slog.New(slog.DiscardHandler)
		}
		c.logger = l
		return nil
	}
}

// New returns an empty ring.
func New(opts ...Option) (*Ring, error) {
	return newRing(config{terms: defaultTerms, changes: defaultChanges}, opts)
}

func newRing(cfg config, opts []Option) (*Ring, error) {
	cfg.logger = slog.New(slog.DiscardHandler)
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

// Close ends the recording.
func (r *Ring) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return nil
}

// addQuiet records that the terms since the last recorded one were quiet.
func (r *Ring) addQuiet(q Quiet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quiet = q
}

// add records a term, which must not change afterwards, with the rows of the workers that
// differ from those before. It takes O(rows), and drops the oldest terms.
func (r *Ring) add(t *Term, rows []WorkerRow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.terms); n > 0 {
		t.seq = r.terms[n-1].seq + 1
	}
	r.terms = append(r.terms, t)
	r.changes += t.kept()
	r.quiet = Quiet{}
	for i := range rows {
		r.addRow(t.seq, &rows[i])
	}
	r.trim()
}

// addRow records a worker.
func (r *Ring) addRow(seq uint64, row *WorkerRow) {
	s := r.workers[row.Name]
	if s == nil {
		if len(r.workers) >= keptWorkers {
			return
		}
		s = &series{row: WorkerRow{Tasks: -1}}
		r.workers[row.Name] = s
	}
	if s.row.Tasks != row.Tasks {
		if len(s.points) == keptPoints {
			s.points = append(s.points[:0], s.points[1:]...)
		}
		s.points = append(s.points, point{seq, int32(row.Tasks)})
	}
	s.row = *row
}

// trim enforces the bounds.
func (r *Ring) trim() {
	if over := len(r.terms) - r.cfg.terms; over > 0 {
		for _, t := range r.terms[:over] {
			r.changes -= t.kept()
		}
		r.terms = r.terms[over:]
		r.stripped = max(0, r.stripped-over)
		r.forget(r.terms[0].seq)
	}
	for r.changes > r.cfg.changes && r.stripped < len(r.terms)-1 {
		if r.shared {
			r.terms, r.shared = slices.Clone(r.terms), false
		}
		t := r.terms[r.stripped]
		r.changes -= t.kept()
		r.terms[r.stripped] = t.withoutChanges()
		r.stripped++
	}
}

// forget drops the removed workers without a point since a term.
func (r *Ring) forget(seq uint64) {
	if seq%64 != 0 { // once in a while, because it takes O(workers)
		return
	}
	for name, s := range r.workers {
		if s.row.Removed && s.points[len(s.points)-1].seq < seq {
			delete(r.workers, name)
		}
	}
}

// present returns the workers that are not removed, in the order of their names, and
// reports whether the ring has a term.
func (r *Ring) present() (rows []WorkerRow, begun bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.workers {
		if !s.row.Removed {
			rows = append(rows, s.row)
		}
	}
	slices.SortFunc(rows, func(a, b WorkerRow) int { return cmp.Compare(a.Name, b.Name) })
	return rows, len(r.terms) > 0
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
	return &View{ring: r, terms: r.terms, quiet: r.quiet, stripped: r.stripped, changes: r.changes}
}

// plain returns a time as it is read back from JSON.
func plain(t time.Time) time.Time { return t.Round(0).UTC() }
