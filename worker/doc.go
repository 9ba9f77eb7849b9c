// Package worker runs the tasks that an orchestrator assigns to a process. It
// answers List, Add and Remove for any transport.
//
// A [Worker] calls one function per task. Tasks are long-lived: a function that
// returns or panics is called again after a pause that grows with each failure,
// until the task is removed. The function must return when its context is done.
//
//	w, err := worker.New(func(ctx context.Context, task string) error {
//		return poll(ctx, task)
//	})
//
// # Transports
//
// A transport passes each call to the method of the same name. The call's context
// carries the term (see [orchestrator.ContextWithTerm]) and ends when the caller
// stops waiting. The Worker fulfils the rest of the contract of
// [orchestrator.Communicator]: its methods are idempotent, their results are
// accurate, and writes of past terms are refused.
//
// A transport must itself
//
//   - deliver the calls for one process to that process only, not to a predecessor
//     or successor of the same name, with [Worker.Incarnation] and
//     [ContextWithIncarnation];
//   - raise the fence to the current term with [Worker.Fence] before it delivers the
//     first call, if it can learn that term;
//   - carry the pins of List to the leader, with [orchestrator.ContextWithPins] at
//     the worker and [orchestrator.Pin] in the leader's List, if there are jobs: a
//     worker whose List cannot pin refuses to stop a job that runs;
//   - keep the lease alive as described below, if the worker has one;
//   - call AddWith, ApplyWith and Update instead of Add and Apply if tasks have
//     content or tokens;
//   - call Report and Changes if it reports changes.
//
// # The life of a task
//
//	Add ──► Queued ──► Starting ──► Running ──► Completed
//	                       ▲           │
//	                       └─ Backoff ◄┴──────► Failed
//
// Queued is visible only with [WithSlots], Starting only with [WithReadiness],
// Completed only with [WithCompletion] and Failed only with [WithAttempts]. Remove
// takes a task out of the list from any state: immediately if its function does not
// run, otherwise through Stopping. Newer content returns a Completed or Failed task
// to the queue.
//
// A task that cannot run on this worker calls [Reschedule]: it stops, and the leader
// starts it elsewhere.
//
// The content of a task may change while the worker has the task; see [WithUpdate]
// and [Worker.Update]. The change does not move the task.
//
// After a crash, the next process can tell which tasks ran and which had completed,
// if both processes use the same [WithRecord].
//
// # Jobs
//
// With [WithCompletion] a task may end; such a task is called a job. A running job
// is not moved, because it would start from the beginning elsewhere: List pins it, a
// drain waits for it, and a joining worker gets jobs that still wait. [Movable]
// exempts a task that runs forever beside jobs, or a job that has saved its
// progress. [Worker.Status] shows the failures of a job, and [WithAttempts] limits
// them.
//
// Jobs suit work that takes seconds to hours, counts in thousands rather than
// millions, has known names and may run again after a crash: a backfill per tenant,
// a report per shard, a file to index. Use a queue such as River
// (https://riverqueue.com) for many short jobs, or for jobs written in the
// transaction that causes them. Use one also for priorities, schedules or a history
// of runs.
//
// # Leases
//
// A worker that is cut off keeps running its tasks, and eventually it is declared
// lost and its tasks are started elsewhere. A lease prevents a task from running
// twice. The coordinator grants the lease, and starts no task of the worker
// elsewhere before the lease has ended. The worker stops all its tasks before the
// lease can have ended ([WithLease]). The transport
//
//   - requests a lease of the length [Worker.Lease] and renews it several times
//     within that length; it calls [Worker.Sending] right before each request, and
//     calls the returned function when the request is acknowledged;
//   - calls [Worker.EndLease] as soon as it learns that the lease is gone;
//   - once [Worker.LeaseLost] is closed, stops renewing and calls [Worker.Rejoin],
//     which waits until everything has stopped; then it revokes the rest of the
//     lease and requests a new one.
//
// # Clauses
//
// Tests carry these numbers in their names:
//
//   - W1: Add returns when the task has started, is ready or is queued. Remove returns when
//     the task's function has returned.
//   - W2: At most [WithSlots] tasks run. The others wait in the order of their Adds.
//   - W3: A function that returns or panics is called again, after growing pauses. No task
//     ends the worker.
//   - W4: Writes of earlier terms, and calls for another incarnation, are refused.
//   - W5: With a lease, every task is told to stop before the lease can have ended.
//   - W6: Close ends every task. After a crash, the next process can report the tasks.
//   - W7: New content reaches a task without a move.
//   - W8: A running job is not moved. A job that fails too often is not started again.
//   - W9: A task that calls [Reschedule] stops. The worker refuses it until its content
//     changes, or a leader that finds no other worker has asked for a minute.
//
// # Guarantees
//
// With a lease, no task runs on the worker once the lease can have ended, provided
// that
//
//   - the process is scheduled: any delay when tasks are told to stop, or when the
//     last resort is called, is shorter than the margin;
//   - clocks agree: over the length of one lease, the clocks of worker and
//     coordinator drift apart by less than the rest of the margin; and
//   - tasks stop: their functions, and everything that these have started, end
//     within the time they are given, or the function given to [WithLastResort] ends
//     the process.
//
// No clock can prevent a write after a pause at the wrong point:
//
//  1. A task reads the clock: the lease holds. The task is about to write.
//  2. The process is stopped, the machine is suspended, or the virtual machine is
//     migrated.
//  3. The lease ends. Another worker starts the task, and writes.
//  4. The process resumes, and writes.
//
// During the pause nothing runs. After step 4 tasks run until the worker has noticed
// the pause. How soon it does so depends on the cause. A process that was stopped
// and continued finds its timers overdue immediately. A suspended machine is noticed
// within a twentieth of the lease. A virtual machine with stopped clocks does not
// notice until the transport learns from the coordinator that the lease is gone.
// Except in that last case, [Check] reports the loss immediately, because it reads
// the clock. A task that calls Check before each write makes at most one late write.
// Check cannot close the gap between steps 1 and 4.
//
// Tokens can. [Token] returns a number that rises with each new owner of a task, if
// the transport provides tokens (package replica does). A store receives the token with
// each write and remembers the highest token per task and scope. It refuses a lower
// token in the same atomic step as the write. Such a store accepts no write of a
// former owner after a write of the new owner, whatever was paused. So a new owner
// should write to the store, if only its token, before it reads the state it
// continues from. Tokens do not cover writes before the new owner's first, reads, or
// systems that do not check the token: a mail sent at step 4 is sent twice.
//
// Without a lease there is no such guarantee. A worker that is cut off keeps
// running, and its tasks run twice from the time it is declared lost until the
// connection returns.
package worker
