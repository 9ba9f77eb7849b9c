// Package worker is the worker's side of the orchestrator: it runs tasks, and
// answers List, Add and Remove for whatever transport brings the calls.
//
// A [Worker] runs one function per task. Tasks are long-lived: a function that
// returns or panics is started again, with growing pauses, until the task is
// removed. It has to do one thing in return: end when its context does.
//
//	w, err := worker.New(func(ctx context.Context, task string) error {
//		return poll(ctx, task)
//	})
//
// # Transports
//
// A transport brings each call to the method of the same name, with a context
// that carries the identity of the call's term (see
// [orchestrator.ContextWithTerm]) and ends when the caller stops waiting. The
// Worker does the rest of what a [orchestrator.Communicator] promises: it is
// idempotent, says truthfully what was done and what was not, and is fenced
// against writes of terms that are over.
//
// What the transport itself has to do: give the calls of a later process of
// the same name to that process only, by means of [Worker.Incarnation] and
// [ContextWithIncarnation]; raise the fence with [Worker.Fence] to the current
// term, where it can learn that, before the first call gets through; and, where
// the worker has a lease, keep that alive as described below. Where tasks have
// content or owners have tokens, it calls AddWith, ApplyWith and Update in place
// of Add and Apply; where it reports what changed, Report and Changes.
//
// # The life of a task
//
//	Add ──► Queued ──► Starting ──► Running ──► Completed
//	                       ▲           │
//	                       └─ Backoff ◄┴──────► Failed
//
// Queued is only seen with [WithSlots], Starting only with [WithReadiness],
// Completed only with [WithCompletion], Failed only with [WithAttempts]. From each
// state a Remove leads out of the list: at once where nothing runs, through Stopping
// where something does. Newer content leads from Completed and Failed back to the
// queue.
//
// A task's content may change while it is here: [WithUpdate] and
// [Worker.Update] say what comes of it. It never changes where the task runs.
//
// After a crash, the process that comes next can tell what ran and what had
// completed, where both are given the same [WithRecord].
//
// # Jobs
//
// With [WithCompletion] a task may end: it is a job. A job that runs is not moved, as
// it would begin again elsewhere: List pins it, a drain waits for it, and workers that
// join take what still waits. A task that goes on for ever beside jobs, or that has
// saved how far it has come, calls [Movable]. A job's failures can be read in
// [Worker.Status], and [WithAttempts] bounds them.
//
// This is right for jobs that run for seconds to hours, number thousands rather than
// millions, are known by name, and may run once more after a crash: a backfill for
// each tenant, a report for each shard, a file to be indexed. For many short jobs,
// for jobs that must be written in the transaction that causes them, for priorities,
// schedules or a history of each run, use a queue such as River
// (https://riverqueue.com).
//
// # Leases
//
// A worker that is cut off goes on running what it runs, and sooner or later
// somebody gives it up and starts that elsewhere. For no task to run twice then,
// both sides need to count: the coordinator grants a lease and starts nothing
// elsewhere before it has ended; the worker stops everything before it can have
// ended, by [WithLease]. The transport
//
//   - asks for a lease of the length that [Worker.Lease] says, and renews it
//     several times in that length; it calls [Worker.Sending] right before each
//     request, and what that returns once it is acknowledged;
//   - calls [Worker.GiveUp] as soon as it hears that the lease is gone;
//   - once [Worker.Fenced] is closed renews nothing any more, calls
//     [Worker.Rejoin], which waits until everything has stopped, gives back what
//     may be left of the lease, and begins anew.
//
// # What is promised
//
// With a lease: no task runs here once the lease can have ended, provided that
//
//   - the process gets to run: whatever delays it, at the moment in which tasks
//     are told to stop or the last resort is called, is shorter than the margin,
//     together with
//   - the difference between the clocks: while one lease lasts, those of worker
//     and coordinator do not drift apart by more than is left of the margin; and
//   - tasks keep their part: their functions, with everything they have begun,
//     return within the time they are given to stop, or the function given to
//     [WithLastResort] ends the process.
//
// What no clock can prevent is a pause in the wrong place:
//
//  1. A task looks at the clock: the lease holds. It is about to write.
//  2. The process is stopped, the machine suspended, the virtual machine moved.
//  3. The lease ends. Another worker starts the task, and writes.
//  4. The process goes on where it was, and writes.
//
// While it is paused nothing runs, but at 4 something does, until the worker has
// noticed. How long that takes depends on what paused it. A process that was
// stopped and continued finds its timers overdue, at once. A machine that was
// suspended is noticed within a twentieth of the lease. In a virtual machine
// whose clocks stood still as well, nothing in it knows, until the transport
// hears from the coordinator that the lease is gone. In all but the last case
// [Check] tells at once, as it reads the clock when it is called, so a task that
// calls it before each write does at most one write too late; it cannot close
// the gap between 1 and 4.
//
// Tokens do. [Token] gives a number that rises with each new owner of a task,
// where the transport has such (etcd does). A store that is handed the token
// with each write, remembers the highest it has seen for a task in that scope,
// and refuses what comes with a lower one, in the same step in which it would
// write, takes nothing from a former owner once the new one has been there,
// whatever was paused where. So a new owner goes to the store, if only to leave
// its token, before it reads what it builds upon. It promises nothing about what
// happened before the new owner was there, about reads, nor about stores that
// are not asked: a mail that was sent at 4 was sent twice.
//
// Without a lease nothing of this is promised: a worker that nobody hears from
// runs on, and whoever gives it up runs its tasks twice until they can talk
// again.
package worker
