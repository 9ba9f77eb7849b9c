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
	left    bool    // nobody waits for it any more; guarded by Recruiter.mu
	over    bool    // it has returned; guarded by Recruiter.mu
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
	r.active++
	r.running.Add(1)
	j.stats.Recruited++
	j.stats.Running++
	return &run{job: j, began: time.Now(), ended: make(chan struct{})}, ""
}

// do is the whole of a run. The end is dealt with in a deferred function, since
// that runs whatever the job does: return, panic, or leave by runtime.Goexit.
func (r *Recruiter) do(ctx context.Context, u *run) {
	err, abrupt := errGoexit, true
	defer func() {
		if v := recover(); v != nil {
			err = r.panicked(ctx, u, v)
		}
		r.end(ctx, u, err, abrupt)
	}()
	err = u.job.do.Do(ctx)
	abrupt = false
}

// panicked makes an error of what a job panicked with, and logs the stack. It is
// called while the stack still stands.
func (r *Recruiter) panicked(ctx context.Context, u *run, v any) error {
	err, ok := v.(error)
	if ok {
		err = fmt.Errorf("panic: %w", err)
	} else {
		err = fmt.Errorf("panic: %v", v)
	}
	r.cfg.logger.ErrorContext(ctx, "job panicked", slog.String("job", u.job.name), slog.Any("err", err),
		slog.String("stack", string(debug.Stack())))
	return err
}

// end counts a run that has returned.
func (r *Recruiter) end(ctx context.Context, u *run, err error, abrupt bool) {
	took := time.Since(u.began)
	left := r.conclude(u, err, abrupt, took)
	close(u.ended)

	level, message := slog.LevelDebug, "job done"
	switch {
	case left && err == nil:
		level, message = slog.LevelInfo, "job left behind returned"
	case left:
		level, message = slog.LevelWarn, "job left behind failed"
	case err != nil:
		level, message = slog.LevelWarn, "job failed"
	}
	attrs := []slog.Attr{slog.String("job", u.job.name), slog.Duration("took", took)}
	if err != nil {
		attrs = append(attrs, slog.Any("err", err))
	}
	r.cfg.logger.LogAttrs(ctx, level, message, attrs...)
	r.gone() // last: after Close nothing is logged
}

// conclude counts a run that has returned, and reports whether it was left
// behind before.
func (r *Recruiter) conclude(u *run, err error, abrupt bool, took time.Duration) (left bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u.over, u.outcome = true, Done
	s := &u.job.stats
	s.Spent += took
	if err != nil {
		u.outcome = Failed
		s.Failed++
	}
	if abrupt {
		s.Panicked++
	}
	if u.left {
		u.job.behind.Add(-1)
	} else {
		s.Running--
		r.running.Add(-1)
	}
	return u.left
}

// gone lets Close return where this was the last run.
func (r *Recruiter) gone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active--
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
	if !r.abandon(u) {
		return u.outcome
	}
	r.cfg.logger.WarnContext(ctx, "job left behind", slog.String("job", u.job.name),
		slog.Duration("took", time.Since(u.began)))
	return Overdue
}

// abandon notes down that nobody waits for the run any more, and frees its place
// for another. It reports whether there was anything to wait for.
func (r *Recruiter) abandon(u *run) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u.over {
		return false
	}
	u.left = true
	u.job.stats.Overdue++
	u.job.stats.Running--
	u.job.behind.Add(1)
	r.running.Add(-1)
	return true
}
