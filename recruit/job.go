package recruit

// What is recruited for, and what is counted of it.

import (
	"context"
	"sync/atomic"
	"time"
)

// Job is a small piece of work that whoever has a moment to spare does a slice
// of.
//
// # Concurrency
//
// Do is called from any number of goroutines at once, in this process and in
// others: there is no leader. Two calls must do no harm to each other.
//
// # Blocking
//
// Its context ends shortly before the budget is up ([WithBudget]), and when the
// caller's does. Do should return then. One that does not is left behind, and
// its job is not recruited again until it has returned; so whoever blocks for
// ever turns off the own job, and costs a goroutine for each call that had begun
// by then.
//
// # Errors
//
// An error, or a panic, is logged and counted. Nobody tries again: the next
// recruit does. So what a call leaves half done, the next has to find.
//
// A Do whose context has ended, and which leaves the rest to the next recruit,
// has not failed: it should return nil. The context's error is for one that got
// nothing done for want of time, as where a store does not answer.
type Job interface {
	Do(ctx context.Context) error
}

// JobFunc makes a function a [Job].
type JobFunc func(ctx context.Context) error

var _ Job = JobFunc(nil)

// Do implements [Job].
func (f JobFunc) Do(ctx context.Context) error { return f(ctx) }

// JobStats is what a job has come to since it was installed. Its figures belong
// to one moment, but for Dismissed, which may be some calls ahead.
type JobStats struct {
	Name string
	// Rate is the one given. The job is drawn with that probability, rounded down
	// to a multiple of 2⁻⁴⁰.
	Rate float64

	// Recruited counts the runs that began, and Dismissed the callers who drew
	// the job when it was not to be had: one left behind had not returned, the
	// limit was reached, or the caller's context had ended.
	Recruited, Dismissed uint64
	// Failed counts the runs that returned an error or panicked, Panicked those
	// of them that panicked, or left by runtime.Goexit.
	Failed, Panicked uint64
	// Overdue counts the runs that were left behind, whatever came of them.
	Overdue uint64

	// Running and Behind are the runs under way: those that somebody waits for,
	// and those that were left behind.
	Running, Behind int
	// Spent is how long the runs took that have returned.
	Spent time.Duration
}

// job is an installed Job.
type job struct {
	name  string
	rate  float64 // as given, to be shown
	units uint64  // of the rate, to draw by
	do    Job

	dismissed counter
	behind    atomic.Int32 // changed under Recruiter.mu; read by who draws the job

	stats JobStats // guarded by Recruiter.mu; but for what stands above

	// What is logged of runs that failed, and of those that were left behind: apart,
	// for what a job fails with is not to be hidden by its being late, nor that it
	// blocks by what it failed with before.
	failing, late complaints // guarded by Recruiter.mu
}

// snapshot returns what there is to say of the job. Recruiter.mu is held.
func (j *job) snapshot() JobStats {
	s := j.stats
	s.Name, s.Rate = j.name, j.rate
	s.Dismissed, s.Behind = j.dismissed.sum(), int(j.behind.Load())
	return s
}
