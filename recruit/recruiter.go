package recruit

// The Recruiter: its jobs, the result of Enlist, the middleware for web servers, and
// the errors. The draw is in draw.go, and the runs of jobs are in job.go.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator/internal/loglimit"
)

// Recruiter draws jobs at random for the callers of Enlist. See the package
// documentation. Its methods may be called from any goroutine. Create a Recruiter
// with New; most methods of the zero value panic.
type Recruiter struct {
	// These fields are read by a call of Enlist that draws no job. Such a call
	// writes only calls; Install, Uninstall and Close write table.
	cfg   config
	table atomic.Pointer[table] // for the draw; empty after Close
	calls counter               // one count per draw

	sourceMu sync.Mutex // guards cfg.source, if there is one

	_ [128]byte // keeps the fields above off the cache lines that runs write

	running atomic.Int64 // runs with a waiting caller; written with mu held

	// mu guards the fields below and the counts of every job. It is not held during
	// calls of a job or of the logger, nor while waiting.
	mu           sync.Mutex
	installed    *table // for Jobs; the same as table until Close
	closed       bool
	begun        uint64         // runs of all jobs, ever
	maxDismissed uint64         // the highest result of Dismissed
	active       map[string]int // runs under way by job, those left behind included; no zeros
	idle         chan struct{}  // closed when closed is set and active is empty
}

// New returns a Recruiter without jobs. A Recruiter has no goroutine except those of
// runs.
//
// The error names every invalid option and wraps ErrInvalid.
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

// Install adds a job. From now on each call of Enlist draws the job with probability
// rate, rounded down to a multiple of 2⁻⁴⁰.
//
// The error names the job and the rate, and then nothing has changed. It wraps
// ErrClosed after Close. It wraps ErrInvalid if name is empty or already installed,
// or if j is nil. It also does if rate is NaN, above 1 or below 2⁻⁴⁰, or if the
// rates of all jobs would add up to more than 1.
func (r *Recruiter) Install(name string, rate float64, j Job) error {
	if err := r.install(name, rate, j); err != nil {
		return fmt.Errorf("install job %q at rate %v: %w", name, rate, err)
	}
	return nil
}

func (r *Recruiter) install(name string, rate float64, do Job) error {
	if r == nil || r.idle == nil {
		return fmt.Errorf("%w: the Recruiter was not created by New", ErrInvalid)
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
	t, err := r.installed.with(&job{
		name: name, rate: rate, units: units, do: do, dismissed: newCounter(),
		failing: loglimit.Limiter{Every: time.Second}, late: loglimit.Limiter{Every: time.Second},
	})
	if err != nil {
		return err
	}
	r.set(t)
	return nil
}

// set replaces the installed jobs. The caller holds mu.
func (r *Recruiter) set(t *table) {
	r.installed = t
	if !r.closed {
		r.table.Store(t)
	}
}

// Uninstall removes the job with this name, and reports whether there was one. Runs
// that have begun continue. A job that is installed again starts with new counts.
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

// Enlist draws once. Usually it draws no job and returns Dismissed within
// nanoseconds. Otherwise it runs the job and returns when the job has returned, or
// when the budget is used up ([WithBudget]). If ctx ends first, it waits for the job
// for at most another 5 ms. A failure of the job is not a failure of the caller.
//
// The job's context has the values of ctx and ends with ctx. If ctx may end too
// early for a job, like that of an HTTP request, pass [context.WithoutCancel](ctx).
// Enlist checks whether ctx has ended only if it has drawn a job, and then returns
// Dismissed.
func (r *Recruiter) Enlist(ctx context.Context) Outcome {
	j := r.draw()
	if j == nil {
		return Dismissed
	}
	return r.recruit(ctx, j)
}

// draw counts a call, and returns the job drawn, or nil.
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

// Jobs returns the counts of each job, in the order of installation, also after
// Close. The caller owns the slice.
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

// Dismissed returns how many callers ran no job. Most of them drew none; [JobStats]
// counts the others. The result never falls. A caller whose job is about to begin
// may be counted as dismissed; a later dismissal then makes up for it.
func (r *Recruiter) Dismissed() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.maxDismissed = max(r.maxDismissed, r.calls.sum()-r.begun) // each run has been counted as a call before
	return r.maxDismissed
}

// Close stops recruiting, and waits until every run has returned and is counted and
// logged, including those left behind. Enlist then returns Dismissed. Jobs still
// returns the jobs; after Close has returned nil, their counts are final, except
// Dismissed. If ctx ends first, the error counts the runs that have not returned, by
// job, and wraps the cause of ctx. Close may be called again.
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
	default: // if both are done, success counts
	}
	select {
	case <-r.idle:
		return nil
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.active) == 0 { // the last run ended in the meantime
			return nil
		}
		return fmt.Errorf("close recruiter: runs have not returned: %s: %w", r.listActive(), context.Cause(ctx))
	}
}

// listActive lists the active runs by job, with their number. The caller holds mu.
func (r *Recruiter) listActive() string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(r.active)) {
		list = append(list, fmt.Sprintf("%d of %q", r.active[name], name))
	}
	return strings.Join(list, ", ")
}

// settle closes idle, for which Close waits, if nothing runs. The caller holds mu.
// The condition becomes true only once.
func (r *Recruiter) settle() {
	if r.closed && len(r.active) == 0 {
		close(r.idle)
	}
}

// Outcome is the result of a call of Enlist. It is for information only: the
// caller's own work does not depend on it.
type Outcome uint8

// The outcomes of a call.
const (
	Dismissed Outcome = iota // no job ran: none was drawn, or the one drawn could not run
	Done                     // a job ran and returned nil
	Failed                   // a job returned an error, panicked or called runtime.Goexit
	Overdue                  // a job was left behind
)

var outcomes = [...]string{Dismissed: "dismissed", Done: "done", Failed: "failed", Overdue: "overdue"}

// String returns the name of the outcome in lower case.
func (o Outcome) String() string {
	if int(o) >= len(outcomes) {
		return fmt.Sprintf("Outcome(%d)", uint8(o))
	}
	return outcomes[o]
}

// MarshalText returns the result of String.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Middleware returns a handler that calls next and then enlists. A job does not
// delay the response, nor the next request on the same connection.
//
// The draw takes nanoseconds and is made when next has returned. A job that is drawn
// runs in a separate goroutine after the server has ended the request's context,
// when the outermost handler has returned as well. The job's context has the values
// of the request's context but does not end with it. net/http writes the end of the
// response after that, without a signal, so the job may run at the same time.
//
// If next panics, there is no draw. If Close is called before a drawn job has begun,
// the job is dropped and counted as dismissed.
//
// Middleware panics if next is nil, as net/http does for a nil handler, or if the
// Recruiter was not created by New.
func (r *Recruiter) Middleware(next http.Handler) http.Handler {
	if f, ok := next.(http.HandlerFunc); next == nil || ok && f == nil {
		panic("recruit: Middleware of a nil handler") //nolint:forbidigo // now, and not at each request
	}
	if r == nil || r.idle == nil {
		panic("recruit: Middleware of a Recruiter not created by New") //nolint:forbidigo // now, and not at each request
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		next.ServeHTTP(w, req)
		if j := r.draw(); j != nil {
			r.enlistAfter(req.Context(), j)
		}
	})
}

// enlistAfter recruits j when ctx has ended. If ctx never ends, as in a test without
// a server, it recruits j immediately.
func (r *Recruiter) enlistAfter(ctx context.Context, j *job) {
	lasting := context.WithoutCancel(ctx)
	if ctx.Done() == nil {
		go r.recruit(lasting, j)
		return
	}
	context.AfterFunc(ctx, func() { r.recruit(lasting, j) })
}

var (
	// ErrInvalid is wrapped by the errors of [New] and [Recruiter.Install] for an
	// invalid argument. The error names the job or the option, and the value.
	ErrInvalid = errors.New("invalid")

	// ErrClosed is wrapped by the error of [Recruiter.Install] after
	// [Recruiter.Close].
	ErrClosed = errors.New("recruiter closed")

	// ErrBudget is the cause with which the context of a job ends shortly before its
	// budget is used up.
	ErrBudget = errors.New("budget used up")

	// errGoexit is the failure of a job that called runtime.Goexit.
	errGoexit = errors.New("job called runtime.Goexit")
)
