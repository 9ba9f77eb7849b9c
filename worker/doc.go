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
// the same name to that process only, by means of [Worker.Incarnation]; and
// raise the fence with [Worker.Fence] to the current term, where it can learn
// that, before the first call gets through.
//
// # The life of a task
//
//	Add ──► Queued ──► Starting ──► Running ──► Completed
//	                       ▲           │
//	                       └─ Backoff ◄┘
//
// Queued is only seen with [WithSlots], Starting only with [WithReadiness],
// Completed only with [WithCompletion]. From each state a Remove leads out of
// the list: at once where nothing runs, through Stopping where something does.
package worker
