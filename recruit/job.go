package recruit

// Jobs and their counts.

import (
	"context"
	"sync/atomic"
	"time"
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
	failing, late complaints // guarded by Recruiter.mu
}

// snapshot returns the counts of the job. The caller holds Recruiter.mu.
func (j *job) snapshot() JobStats {
	s := j.stats
	s.Name, s.Rate = j.name, j.rate
	s.Dismissed, s.Behind = j.dismissed.sum(), int(j.behind.Load())
	return s
}
