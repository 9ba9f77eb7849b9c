// Package recruit runs small side jobs in goroutines that have time to spare:
// garbage collection, expiry, compaction, and other work that needs no permanent
// owner. It needs no daemon, no cron job and no leader.
//
//	r, err := recruit.New(recruit.WithLogger(logger))
//	…
//	err = r.Install("expire sessions", 0.01, recruit.JobFunc(func(ctx context.Context) error {
//		return store.Expire(ctx, 5) // a few at a time: ctx ends in 45 ms
//	}))
//	…
//	r.Enlist(ctx) // on a cache hit, on an empty queue, between two tasks
//
// Each call of [Recruiter.Enlist] draws once. Usually it draws no job, and returns
// within nanoseconds: the caller is dismissed. In this example, one call in a
// hundred draws the job and runs a small part of it. A busier service has more to
// clean up, but also calls Enlist more often.
//
// A web server need not call Enlist: [Recruiter.Middleware] does so, without
// delaying the response. Any other process can call it from a ticker:
//
//	for range time.Tick(time.Second) {
//		r.Enlist(ctx)
//	}
//
// # How to write a job
//
// A job must be small, and must be safe if it runs twice at the same time or is cut
// off at any point:
//
//   - It processes a few items at a time, and returns when its context is done.
//     Until then it keeps its caller waiting.
//   - It claims items in one atomic step: a transaction, a script, a compare and
//     swap. So a run at the same time, in this process or another, finds other items
//     or none.
//   - The next run finds whatever a stopped run leaves behind.
//
// The throughput of a job is its rate, times the items per run, times the calls of
// Enlist per second. It must exceed the rate at which new items arrive. The program
// in examples/recruit calculates and demonstrates this for a hash on Redis whose
// fields expire.
//
// So a rate depends on where Enlist is called. With 1000 requests a second, a rate
// of 0.01 means ten runs a second. With a ticker of one second it means one run in a
// hundred seconds. There, use a separate recruiter, not shared with a web server, with
// rates that add up to almost 1.
//
// # Guarantees
//
// S1. [Recruiter.Install] accepts rates above 0 and up to 1, and rounds them down to
// a multiple of 2⁻⁴⁰. The sum of all rates is at most 1. An invalid argument changes
// nothing, and the error names the job and the value.
//
// S2. Enlist draws once. It recruits at most one job, with the probability of the
// job's rate; otherwise the caller is dismissed. A call that recruits no job takes
// about ten nanoseconds, allocates nothing and takes no lock. It counts on one of
// several shards per core, so that two cores rarely write to the same shard. Jobs
// may be installed and uninstalled during calls of Enlist.
//
// S3. A recruited job has a budget ([WithBudget]), and keeps its caller no longer
// than that. A job that has not returned by then is left behind: its caller
// continues, and the job is not recruited again until it has returned. Errors and
// panics are logged and counted. They never become failures of the caller, and are
// not retried, except that a later call may draw the job again. The number of runs
// at the same time is limited ([WithLimit]). [Recruiter.Close] waits for all runs,
// and names those that do not return.
//
// S4. [Recruiter.Jobs] and [Recruiter.Dismissed] count the results. [WithLogger]
// logs them, each kind of failure at most once a second per job. Package stats
// exports them to Prometheus.
//
// S5. The only state is these counts. No lock is held during a call of a job, and
// processes do not communicate. The random source can be chosen ([WithSource],
// [WithSeed]).
//
// # Limits
//
// A job may run late or never: if no goroutine calls Enlist, no job runs. So
// correctness must not depend on a job. For example, a read must check whether an
// item has expired, whether or not the item has been collected.
package recruit
