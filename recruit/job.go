package recruit

// Jobs, their counts, their runs and their log lines. A job runs in a separate
// goroutine, so that its caller can leave it behind.

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator/internal/loglimit"
	"github.com/f8949c05/orchestrator/internal/panics"
)

// Job is work of which each run does a small part.
//
// # Concurrency
//
// Do is called from any number of goroutines at the same time, in this process and
// in others. There is no leader. Concurrent calls must not harm each other.
//
// # Blocking
//
// The context ends shortly before the budget is used up ([WithBudget]), or when the
// caller's context ends. Do should then return. If it does not, it is left behind,
// and its job is not recruited again until it has returned. So a Do that blocks
// forever disables its own job, and costs one goroutine for each run that had begun
// by then.
//
// # Errors
//
// An error or a panic is logged and counted. It is not retried, except that a later
// call may draw the job again. So each run must find the work that an earlier run
// left half done.
//
// A Do that stops because its context has ended, and leaves the rest to the next
// run, has not failed and should return nil. It should return the context's error
// only if it has done nothing for lack of time, for example because a store does not
// answer.
type Job interface {
	Do(ctx context.Context) error
}

// JobFunc adapts a function to [Job].
type JobFunc func(ctx context.Context) error

var _ Job = JobFunc(nil)

// Do implements [Job].
func (f JobFunc) Do(ctx context.Context) error { return f(ctx) }

// JobStats are the counts of a job since it was installed. They are consistent with
// each other, except that Dismissed may be a few calls ahead.
type JobStats struct {
	Name string
	// Rate is the rate given to Install. The job is drawn with that probability,
	// rounded down to a multiple of 2⁻⁴⁰.
	Rate float64

	// Recruited counts the runs that have begun. Dismissed counts the callers that
	// drew the job but could not run it. The reasons are a run left behind that has
	// not returned, the limit, the end of the caller's context, and Close.
	Recruited, Dismissed uint64
	// Failed counts the runs that returned an error, panicked or called
	// runtime.Goexit. Panicked counts those that panicked or called runtime.Goexit.
	Failed, Panicked uint64
	// Overdue counts the runs that were left behind, whatever their result.
	Overdue uint64

	// Running counts the runs under way that have a waiting caller, Behind those
	// left behind.
	Running, Behind int
	// Spent is the total duration of the runs that have returned.
	Spent time.Duration
}

// job is an installed Job.
type job struct {
	name  string
	rate  float64 // as given, for display
	units uint64  // the rate in units, for drawing
	do    Job

	dismissed counter
	behind    atomic.Int32 // written with Recruiter.mu held; read without it before a run begins

	// Guarded by Recruiter.mu. Name, Rate, Dismissed and Behind are unused: their
	// values are in the fields above.
	stats JobStats

	// failing limits the log lines for failed runs, late those for runs left behind.
	// They are separate, so that lines of one kind do not hide the other.
	failing, late loglimit.Limiter
}

// snapshot returns the counts of the job. The caller holds Recruiter.mu.
func (j *job) snapshot() JobStats {
	s := j.stats
	s.Name, s.Rate = j.name, j.rate
	s.Dismissed, s.Behind = j.dismissed.sum(), int(j.behind.Load())
	return s
}

// run is one call of a job's Do.
type run struct {
	job   *job
	began time.Time
	// ended is closed when the job has returned and is counted.
	ended chan struct{}

	outcome Outcome // once ended is closed

	// Guarded by Recruiter.mu until over is set, and constant from then on.
	left   bool // the caller has left the run behind
	logged bool // and this was logged
	over   bool // the job has returned
}

// result is the result of a call of Do.
type result struct {
	err    error
	abrupt bool   // the job panicked or called runtime.Goexit
	stack  []byte // of a panic
}

// recruit runs j, unless a reason prevents that.
func (r *Recruiter) recruit(ctx context.Context, j *job) Outcome {
	if reason := r.turnedAway(ctx, j); reason != "" {
		return r.dismiss(ctx, j, reason)
	}
	u, reason := r.begin(j)
	if reason != "" {
		return r.dismiss(ctx, j, reason)
	}
	within, cancel := context.WithTimeoutCause(ctx, r.cfg.budget-r.cfg.reserve(), ErrBudget)
	go func() {
		defer cancel()
		r.do(within, u)
	}()
	return r.await(ctx, u)
}

// The reasons to dismiss a caller that drew a job.
const (
	reasonBehind = "run left behind"
	reasonLimit  = "limit reached"
	reasonEnded  = "caller's context ended"
	reasonClosed = "recruiter closed"
)

// turnedAway returns the reason to dismiss a caller of j, or "" if j can run. It
// takes no lock and writes nothing. So a job that blocks forever, or a limit that is
// always reached, costs callers no more than no job.
func (r *Recruiter) turnedAway(ctx context.Context, j *job) string {
	switch {
	case j.behind.Load() > 0:
		return reasonBehind
	case r.full():
		return reasonLimit
	case ctx.Err() != nil:
		return reasonEnded
	}
	return ""
}

func (r *Recruiter) full() bool {
	return r.cfg.limit > 0 && r.running.Load() >= int64(r.cfg.limit)
}

func (r *Recruiter) dismiss(ctx context.Context, j *job, reason string) Outcome {
	j.dismissed.inc()
	if r.cfg.logger.Enabled(ctx, slog.LevelDebug) {
		r.cfg.logger.DebugContext(ctx, "caller dismissed", slog.String("job", j.name), slog.String("reason", reason))
	}
	return Dismissed
}

// begin records a new run of j, or returns the reason to dismiss the caller. It
// repeats the checks of turnedAway with mu held, because the state may have changed.
func (r *Recruiter) begin(j *job) (*run, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return nil, reasonClosed
	case j.behind.Load() > 0:
		return nil, reasonBehind
	case r.full():
		return nil, reasonLimit
	}
	r.begun++
	r.active[j.name]++
	r.running.Add(1)
	j.stats.Recruited++
	j.stats.Running++
	return &run{job: j, began: time.Now(), ended: make(chan struct{})}, ""
}

// do runs a job in a separate goroutine. A deferred function handles the end,
// because it runs whether the job returns, panics or calls runtime.Goexit.
func (r *Recruiter) do(ctx context.Context, u *run) {
	res := result{err: errGoexit, abrupt: true}
	defer func() {
		if v := recover(); v != nil {
			res.err, res.stack = panics.Error(v), debug.Stack() // the stack is still intact
		}
		r.end(ctx, u, res)
	}()
	res = result{err: u.job.do.Do(ctx)}
}

// end counts and logs a run that has returned.
func (r *Recruiter) end(ctx context.Context, u *run, res result) {
	now := time.Now()
	omitted, mustLog := r.conclude(u, res, now)
	close(u.ended)
	if mustLog {
		r.logEnd(ctx, u, res, now.Sub(u.began), omitted)
	}
	r.deactivate(u) // last, so that nothing is logged after Close has returned
}

func (r *Recruiter) logEnd(ctx context.Context, u *run, res result, took time.Duration, omitted int) {
	level, message := slog.LevelDebug, "job done"
	switch {
	case res.stack != nil && u.left:
		level, message = slog.LevelError, "job left behind panicked"
	case res.stack != nil:
		level, message = slog.LevelError, "job panicked"
	case res.err != nil && u.left:
		level, message = slog.LevelWarn, "job left behind failed"
	case res.err != nil:
		level, message = slog.LevelWarn, "job failed"
	case u.left:
		level, message = slog.LevelInfo, "job left behind returned"
	}
	attrs := []slog.Attr{slog.String("job", u.job.name), slog.Duration("took", took)}
	if res.err != nil {
		attrs = append(attrs, slog.Any("err", res.err))
	}
	attrs = append(attrs, loglimit.Omitted(omitted))
	if res.stack != nil {
		attrs = append(attrs, slog.String("stack", string(res.stack)))
	}
	r.cfg.logger.LogAttrs(ctx, level, message, attrs...)
}

// conclude counts a run that has returned. It reports whether to log the run, and
// how many lines were omitted before it.
func (r *Recruiter) conclude(u *run, res result, now time.Time) (omitted int, mustLog bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u.over, u.outcome = true, Done
	s := &u.job.stats
	s.Spent += now.Sub(u.began)
	if res.abrupt {
		s.Panicked++
	}
	if u.left {
		u.job.behind.Add(-1)
	} else {
		s.Running--
		r.running.Add(-1)
	}
	if res.err == nil {
		return 0, !u.left || u.logged // log the return only if the delay was logged
	}
	u.outcome = Failed
	s.Failed++
	return u.job.failing.Take(now, "")
}

// deactivate removes a run from the active ones, which lets Close return after the last
// run.
func (r *Recruiter) deactivate(u *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active[u.job.name]--; r.active[u.job.name] == 0 {
		delete(r.active, u.job.name)
	}
	r.settle()
}

// await waits until the run has ended or its budget is used up. If the caller's
// context ends, it waits at most for the reserve, so that a job that returns with
// its context is not left behind.
func (r *Recruiter) await(ctx context.Context, u *run) Outcome {
	timer := time.NewTimer(r.cfg.budget)
	defer timer.Stop()
	caller := ctx.Done()
	for {
		select {
		case <-u.ended:
			return u.outcome
		case <-caller:
			caller = nil
			timer.Reset(min(r.cfg.reserve(), time.Until(u.began.Add(r.cfg.budget))))
		case <-timer.C:
			return r.leave(ctx, u)
		}
	}
}

// leave leaves the run behind, unless it has just returned.
func (r *Recruiter) leave(ctx context.Context, u *run) Outcome {
	now := time.Now()
	omitted, left := r.abandon(u, now)
	if !left {
		return u.outcome
	}
	if u.logged { // set by abandon, and never changed again
		r.cfg.logger.LogAttrs(ctx, slog.LevelWarn, "job left behind",
			slog.String("job", u.job.name), slog.Duration("took", now.Sub(u.began)), loglimit.Omitted(omitted))
	}
	return Overdue
}

// abandon marks the run as left behind, and frees its place under the limit. left is
// false if the run has returned. If the line may be logged now, abandon sets u.logged
// and returns how many lines were omitted before it.
func (r *Recruiter) abandon(u *run, now time.Time) (omitted int, left bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u.over {
		return 0, false
	}
	u.left = true
	u.job.stats.Overdue++
	u.job.stats.Running--
	u.job.behind.Add(1)
	r.running.Add(-1)
	omitted, u.logged = u.job.late.Take(now, "")
	return omitted, true
}
