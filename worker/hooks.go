package worker

// The options that take functions of the user's, for which T must be the
// worker's.

import (
	"context"
	"reflect"
)

// hooks are the user's functions; nil: not given.
type hooks[T comparable] struct {
	completed func(task T)
	failed    func(task T, err error)
	resort    func(tasks []T)
	update    func(ctx context.Context, task T) error
	accept    func(ctx context.Context, task T, content []byte) error
	record    Record[T]
}

// hooksOf finds them in c, and notes down those that are another worker's.
func hooksOf[T comparable](c *config) hooks[T] {
	return hooks[T]{
		completed: hookOf[func(T)](c, "WithCompletion", c.completion),
		failed:    hookOf[func(T, error)](c, "WithAttempts", c.failure),
		resort:    hookOf[func([]T)](c, "WithLastResort", c.resort),
		update:    hookOf[func(context.Context, T) error](c, "WithUpdate", c.update),
		accept:    hookOf[func(context.Context, T, []byte) error](c, "WithAccept", c.accept),
		record:    hookOf[Record[T]](c, "WithRecord", c.record),
	}
}

func hookOf[F any](c *config, option string, given any) F {
	f, ok := given.(F)
	if !ok && given != nil {
		c.invalid("%s takes a %T, this worker's is a %v", option, given, reflect.TypeFor[F]())
	}
	return f
}

// WithCompletion lets tasks complete: one whose function returns nil, though
// its context has not ended, has done all it had to do. It is not started
// again, gives back its slot, and stays in List, so that nobody else starts
// it, until it is removed or given newer content (see [Worker.Update]), which is
// something to do again. f is told, so that it can see to the removal where
// the expectations are kept. To report is all that the worker does: a task that
// completes in the moment in which it is removed counts as stopped, and may
// run again elsewhere; and by the time f is called it may have newer content
// already, and run again. Where content changes, f looks at [Worker.Status], and
// sees to the removal only of a task that is Completed, with that Version.
//
// A task that runs, or has completed, is a job that must not be moved, since it would
// begin again elsewhere: List and Report pin it, and a Remove that goes by an older
// one is rejected. A job that waits for a slot, or after a failure for its next run,
// can be moved, and so can a task that has called [Movable]. Transports that do not
// list by List or Report pin nothing: with package etcd a job that runs may move.
//
// f is called from many goroutines at once, without a lock held; it may call
// the worker. [Worker.Close] does not wait for it. T must be the worker's.
//
// Default: a function that returns nil is started again like any other. A nil
// f is out of range.
func WithCompletion[T any](f func(task T)) Option {
	return optionFunc(func(c *config) {
		if f == nil {
			c.invalid("WithCompletion(nil): must be a function")
		}
		c.completion = f
	})
}

// WithAttempts lets jobs fail: after n runs in a row that failed with the same
// content, a task is not started again. It gives back its slot, and stays in List,
// pinned, until it is removed or given newer content. f is told, with what the last
// run ended with, so that it can take the task off what is expected: removed before
// that, it would begin again elsewhere. How f is called is said at [WithCompletion].
// An update in place or a stop is no failure. For a task that has called [Movable] a
// long run ends the row, as for [WithBackoff]. Attempts count on this worker alone: a
// job that is moved between two of them, or ends the process, begins anew. T must be the worker's.
//
// Default: no limit: a task that fails is started again for ever. Out of range: n
// below 1, a nil f, and the option without WithCompletion.
func WithAttempts[T any](n int, f func(task T, err error)) Option {
	return optionFunc(func(c *config) {
		if n < 1 || f == nil {
			c.invalid("WithAttempts(%d, nil is %t): must be at least 1, and a function", n, f == nil)
		}
		c.attempts, c.failure = n, f
	})
}

// WithLastResort has f called with the tasks that have not stopped when only
// the margin of the lease is left (see [WithLease]), in the order of List: soon
// somebody else may run them. f is called at most once for each loss of the
// lease, and not at all where everything has stopped in time. What it can do is
// end the process, and so most do. Where it returns, the tasks stay in List, and
// [Worker.Rejoin] and [Worker.Close] wait for them.
//
// f is called without a lock held, and before the worker logs anything about it:
// where f ends the process, it is f that says why. A panic in it is not
// recovered. T must be the worker's.
//
// Default: that it happened is logged, and nothing else. A nil f is out of range,
// and so is the option without WithLease.
func WithLastResort[T any](f func(tasks []T)) Option {
	return optionFunc(func(c *config) {
		if f == nil {
			c.invalid("WithLastResort(nil): must be a function")
		}
		c.resort = f
	})
}

// WithUpdate has f called when the content of a task that runs has changed,
// with a context that tells the new content (see [Content]) and ends when that
// of the task's function does, with the same cause. f is called once the task
// is ready where [WithReadiness] is set; where it is not, perhaps before the
// task's function has done anything.
//
// For one task f is never called twice at the same time, nor with older content
// after newer; of updates that come while it is called, it gets the last. For
// different tasks it is called at the same time. No lock is held. It must return
// soon after its context has ended: it is part of the run, and the task has not
// stopped, nor is it restarted, until it has. Where it returns an error, or
// panics, the task is restarted in place with the new content, as without the
// option.
//
// T must be the worker's.
//
// Default: a task whose content has changed is restarted in place. A nil f is
// out of range.
func WithUpdate[T any](f func(ctx context.Context, task T) error) Option {
	return optionFunc(func(c *config) {
		if f == nil {
			c.invalid("WithUpdate(nil): must be a function")
		}
		c.update = f
	})
}

// WithAccept has f asked before a task that is not here is accepted: where it
// returns an error, or panics, the Add is refused with an error that wraps that
// and [orchestrator.ErrRejected]. The content is that of the Add.
//
// f is called from many goroutines at once, without a lock held, and the Add
// waits for it; of one Apply, in the order of its writes. Its ctx is that of the
// call: f has to return soon after it has ended. T must be the worker's.
//
// Default: every task is accepted. A nil f is out of range.
func WithAccept[T any](f func(ctx context.Context, task T, content []byte) error) Option {
	return optionFunc(func(c *config) {
		if f == nil {
			c.invalid("WithAccept(nil): must be a function")
		}
		c.accept = f
	})
}
