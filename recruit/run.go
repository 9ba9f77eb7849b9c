package recruit

// A recruit: what follows for a caller who drew a job. The job runs on a
// goroutine of its own, so that the caller can leave it behind.

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// run is one call of a job's Do.
type run struct {
	job   *job
	began time.Time
	// ended is closed when the job has returned and that is counted.
	ended chan struct{}

	outcome Outcome // of a run that has ended

	// Guarded by Recruiter.mu until it is over, and the same from then on.
	left bool // nobody waits for it any more
	told bool // and that is logged
	over bool // it has returned
}

// result is how a call of Do ended.
type result struct {
	err    error
	abrupt bool   // by a panic, or by runtime.Goexit
	stack  []byte // of a panic
}

// recruit does a slice of j, unless that cannot be now.
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

// The reasons for which a caller who drew a job is dismissed.
const (
	reasonBehind = "one that was left behind has not returned"
	reasonLimit  = "the limit is reached"
	reasonEnded  = "the caller's context has ended"
	reasonClosed = "the recruiter is closed"
)

// turnedAway says why nobody is recruited; "": somebody may be. It takes no lock
// and writes nothing, so that a job that blocks for ever, or a limit that is
// reached all the time, costs the callers as little as no job at all.
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

// begin notes down a run, unless somebody was faster: what turnedAway saw may
// have changed by now.
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

// do is the whole of a run. The end is dealt with in a deferred function, since
// that runs whatever the job does: return, panic, or leave by runtime.Goexit.
func (r *Recruiter) do(ctx context.Context, u *run) {
	res := result{err: errGoexit, abrupt: true}
	defer func() {
		if v := recover(); v != nil {
			res.err, res.stack = panicError(v), debug.Stack() // which still stands
		}
		r.end(ctx, u, res)
	}()
	res = result{err: u.job.do.Do(ctx)}
}

// panicError makes an error of what a job panicked with.
func panicError(v any) error {
	if err, ok := v.(error); ok {
		return fmt.Errorf("panic: %w", err)
	}
	return fmt.Errorf("panic: %v", v)
}

// end counts a run that has returned, and logs it.
func (r *Recruiter) end(ctx context.Context, u *run, res result) {
	now := time.Now()
	omitted, tell := r.conclude(u, res, now)
	close(u.ended)
	if tell {
		r.logEnd(ctx, u, res, now.Sub(u.began), omitted)
	}
	r.gone(u) // last: after Close nothing is logged
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
	attrs = appendOmitted(attrs, omitted)
	if res.stack != nil {
		attrs = append(attrs, slog.String("stack", string(res.stack)))
	}
	r.cfg.logger.LogAttrs(ctx, level, message, attrs...)
}

// conclude counts a run that has returned. It reports whether that is to be
// logged, and how many like it were not.
func (r *Recruiter) conclude(u *run, res result, now time.Time) (omitted int, tell bool) {
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
		return 0, !u.left || u.told // that it is back is for who was told that it is late
	}
	u.outcome = Failed
	s.Failed++
	return u.job.failing.take(now)
}

// gone lets Close return where this was the last run.
func (r *Recruiter) gone(u *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active[u.job.name]--; r.active[u.job.name] == 0 {
		delete(r.active, u.job.name)
	}
	r.settle()
}

// await returns when the run has ended, or the budget is up. A caller whose
// context has ended waits a moment longer, so that a job that ends with it is
// not left behind.
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

// leave goes on without the job, unless it has returned in this very moment.
func (r *Recruiter) leave(ctx context.Context, u *run) Outcome {
	now := time.Now()
	omitted, left := r.abandon(u, now)
	if !left {
		return u.outcome
	}
	if u.told { // which nobody else changes
		attrs := []slog.Attr{slog.String("job", u.job.name), slog.Duration("took", now.Sub(u.began))}
		r.cfg.logger.LogAttrs(ctx, slog.LevelWarn, "job left behind", appendOmitted(attrs, omitted)...)
	}
	return Overdue
}

// abandon notes down that nobody waits for the run any more, and frees its place
// for another. It reports whether there was anything to wait for, and how many
// runs left behind before were not logged, where this one is to be.
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
	omitted, u.told = u.job.late.take(now)
	return omitted, true
}
