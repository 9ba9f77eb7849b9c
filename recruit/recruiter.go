package recruit

// The Recruiter: its jobs, and the draw. What follows for who draws one is in
// run.go.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Recruiter hands out small jobs, by chance, to whoever calls Enlist. See the
// package documentation. Its methods may be called from any goroutine. New makes
// one; the zero value is of no use, and most of its methods panic.
type Recruiter struct {
	// What Enlist reads when it recruits nobody. Nothing here is written but by
	// Install, Uninstall and Close.
	cfg   config
	table atomic.Pointer[table] // what is drawn from
	calls counter               // one for each draw

	sourceMu sync.Mutex // guards cfg.source, where there is one

	_ [128]byte // what is above shares no line with what recruits write

	running atomic.Int64 // recruits that somebody waits for; changed under mu

	// mu guards what follows, and the counts of every job. It is never held over
	// a call to the outside, nor over a wait.
	mu        sync.Mutex
	installed *table // what Jobs tells of; table is the same until Close
	closed    bool
	begun     uint64         // runs of all jobs there ever were
	told      uint64         // the most that Dismissed has returned
	active    map[string]int // those not yet over, by job, whether somebody waits or not; none is 0
	idle      chan struct{}  // closed when closed and nothing is active
}

// New returns a Recruiter without jobs. It has no goroutine of its own.
//
// The error names every option that is out of range, and wraps ErrInvalid.
func New(opts ...Option) (*Recruiter, error) {
	cfg := newConfig(opts)
	if len(cfg.problems) > 0 {
		return nil, fmt.Errorf("new recruiter: %w", errors.Join(cfg.problems...))
	}
	r := &Recruiter{
		cfg: cfg, calls: newCounter(), installed: new(table),
		active: make(map[string]int), idle: make(chan struct{}),
	}
	r.table.Store(r.installed)
	return r, nil
}

// Install adds a job: from now on a call of Enlist draws it with a probability
// of rate, rounded down to a multiple of 2⁻⁴⁰.
//
// The error says which job and which value, and wraps ErrInvalid: where name is
// empty or installed already, where rate is not a number, not above 0, above 1
// or below 2⁻⁴⁰, where the rates of all jobs would add up to more than 1, and where
// job is nil; or it wraps ErrClosed. Nothing has changed then.
func (r *Recruiter) Install(name string, rate float64, j Job) error {
	if err := r.install(name, rate, j); err != nil {
		return fmt.Errorf("install job %q at rate %v: %w", name, rate, err)
	}
	return nil
}

func (r *Recruiter) install(name string, rate float64, do Job) error {
	if r == nil || r.idle == nil {
		return fmt.Errorf("%w: the Recruiter is not one that New made", ErrInvalid)
	}
	if name == "" {
		return fmt.Errorf("%w: the name is empty", ErrInvalid)
	}
	if f, ok := do.(JobFunc); do == nil || ok && f == nil {
		return fmt.Errorf("%w: the Job is nil", ErrInvalid)
	}
	units, err := unitsOf(rate)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	t, err := r.installed.with(&job{name: name, rate: rate, units: units, do: do, dismissed: newCounter()})
	if err != nil {
		return err
	}
	r.set(t)
	return nil
}

// set replaces the jobs that are installed. The lock is held.
func (r *Recruiter) set(t *table) {
	r.installed = t
	if !r.closed {
		r.table.Store(t)
	}
}

// Uninstall takes a job away, and reports whether there was one of this name.
// Runs that have begun go on. Installed again it is another job, with counts of
// its own.
func (r *Recruiter) Uninstall(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.installed.find(name)
	if i < 0 {
		return false
	}
	r.set(r.installed.without(i))
	return true
}

// Enlist draws once. Mostly it draws no job: then the caller is dismissed, within
// nanoseconds. Else it does a slice of the job, and returns when that has
// returned, or when the budget is up ([WithBudget]), or very soon after ctx has
// ended, whichever comes first. What becomes of the job is never a failure of
// the caller's.
//
// The job's context has the values of ctx, and ends with it: where the caller's
// context ends before there is time for a job, as that of an HTTP request does,
// hand over [context.WithoutCancel]. A ctx that has ended is seen only where a
// job was drawn; the caller is dismissed then.
func (r *Recruiter) Enlist(ctx context.Context) Outcome {
	j := r.draw()
	if j == nil {
		return Dismissed
	}
	return r.recruit(ctx, j)
}

// draw counts a call, and returns the job that chance has chosen for it; nil:
// none.
func (r *Recruiter) draw() *job {
	n := r.calls.draw()
	if r.cfg.source != nil {
		n = r.fromSource()
	}
	return r.table.Load().pick(n >> (64 - unitBits))
}

func (r *Recruiter) fromSource() uint64 {
	r.sourceMu.Lock()
	defer r.sourceMu.Unlock()
	return r.cfg.source.Uint64()
}

// Jobs returns what became of each job, in the order they were installed; also
// after Close. The slice is the caller's.
func (r *Recruiter) Jobs() []JobStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	jobs := r.installed.jobs
	out := make([]JobStats, len(jobs))
	for i, j := range jobs {
		out[i] = j.snapshot()
	}
	return out
}

// Dismissed returns how many callers did nothing: mostly because they drew no
// job; of those who drew one, [JobStats] tells too. It never falls: one whose job
// is about to begin may be counted, and the next one who is dismissed is not then.
func (r *Recruiter) Dismissed() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = max(r.told, r.calls.sum()-r.begun) // who began had been counted
	return r.told
}

// Close has no job recruited any more, and waits until every run has returned, and
// is counted and logged, those that were left behind too. Enlist goes on
// dismissing, and Jobs telling of the jobs: their counts are final when Close has
// returned nil, but for Dismissed. Where ctx ends first, the error says how many
// runs of which jobs have not returned, and wraps the context's cause; Close may
// be called again.
func (r *Recruiter) Close(ctx context.Context) error {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		r.table.Store(new(table))
		r.settle()
	}
	r.mu.Unlock()
	select {
	case <-r.idle:
		return nil
	default: // nothing left wins over a context that has ended
	}
	select {
	case <-r.idle:
		return nil
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.active) == 0 { // in this very moment
			return nil
		}
		return fmt.Errorf("close recruiter: runs that have not returned: %s: %w", r.listActive(), context.Cause(ctx))
	}
}

// listActive names the jobs that run, and says how often. The lock is held.
func (r *Recruiter) listActive() string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(r.active)) {
		list = append(list, fmt.Sprintf("%d of %q", r.active[name], name))
	}
	return strings.Join(list, ", ")
}

// settle lets Close return once nothing runs. The lock is held, and what brought
// it about is done once.
func (r *Recruiter) settle() {
	if r.closed && len(r.active) == 0 {
		close(r.idle)
	}
}
