// Package recruit has small side jobs done by whoever has a moment to spare:
// garbage collection, expiry, compaction, all that nobody should own all the
// time. It needs no daemon, no cron job and no leader.
//
//	r, err := recruit.New(recruit.WithLogger(logger))
//	…
//	err = r.Install("expire sessions", 0.01, recruit.JobFunc(func(ctx context.Context) error {
//		return store.Expire(ctx, 5) // a few at a time: ctx ends in 45 ms
//	}))
//	…
//	r.Enlist(ctx) // on a cache hit, on an empty queue, between two tasks
//
// Each call of [Recruiter.Enlist] draws once. Mostly it draws nothing, and the
// caller is dismissed within nanoseconds; one time in a hundred, here, it does a
// small slice of the job. The more there is to do in a service, the more often
// it is called, and the more hands there are to clean up.
//
// A web server need not call it: [Recruiter.Middleware] does, off the path of the
// response. Nor need a worker of this module: worker.WithSpareTime does, while a
// slot is free.
//
// # How to write a job
//
// A job that is safe here does a little, and can be done by two at once, or be
// cut off anywhere:
//
//   - it takes a few items at a time, and ends with its context. In that time it
//     keeps its caller;
//   - what it takes it takes in one step (a transaction, a script, a compare and
//     swap), so that another that runs at the same time, in whatever process,
//     finds other work or none;
//   - what it leaves behind where it stops, the next one finds.
//
// How fast it gets on is the rate, times what one call does, times how often
// Enlist is called. That has to be more than what comes in: examples/recruit does
// the sum for a hash on Redis whose fields expire, and shows it.
//
// So a rate belongs to an occasion. 1000 requests a second at a rate of 0.01 are ten
// recruits a second; a worker's spare time, once a second at the most, would at the
// same rate be one in a hundred seconds. There the rates should add up to 1 or
// nearly so, and a recruiter of its own is better than to share a web server's.
//
// # What is promised
//
// S1. [Recruiter.Install] takes rates above 0 and up to 1, rounded down to a
// multiple of 2⁻⁴⁰, and their sum is at most 1. What is out of range is an error
// that names the job and the value, and changes nothing.
//
// S2. Enlist draws once: at most one job is recruited, with the probability of
// its rate; else the caller is dismissed. A call that recruits nobody takes some
// ten nanoseconds, allocates nothing, takes no lock, and counts on one of several
// shards for each core, on which two cores that call at the same time rarely
// meet. Jobs may be installed and uninstalled while others enlist.
//
// S3. A recruited job has a budget ([WithBudget]), and keeps its caller no longer
// than that. One that does not return by then is left behind, and is not
// recruited again until it has returned. Its error or panic is logged and
// counted, is never a failure of the caller's, and is not retried: the next
// recruit tries. At most so many run at once ([WithLimit]). [Recruiter.Close] waits
// for them, and where they do not return it names them.
//
// S4. [Recruiter.Jobs] and [Recruiter.Dismissed] count what comes of it, [WithLogger]
// logs it, where it is bad at most once a second for each job, and package stats
// shows it to Prometheus.
//
// S5. There is no state but these counts, no lock is held over a call, and no
// process asks another. What chance is drawn from can be chosen ([WithSource],
// [WithSeed]).
//
// # What is not
//
// That a job runs soon, or at all: where nobody calls Enlist, nothing is done. So
// nothing may be wrong where a job is late: a read has to know for itself that
// what it has found is over, whether that was collected or not.
package recruit
