package worker

// The options that take functions or a record of the user. Their T must be the
// worker's.

import (
	"context"
	"reflect"
)

// hooks are the user's functions and record; nil: not given.
type hooks[T comparable] struct {
	completed func(task T)
	failed    func(task T, err error)
	resort    func(tasks []T)
	update    func(ctx context.Context, task T) error
	accept    func(ctx context.Context, task T, content []byte) error
	record    Record[T]
}

// hooksOf returns the hooks in c, and records an error for each of another type.
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

// WithCompletion lets tasks complete. A task whose function returns nil before its
// context has ended is done. It is not started again, and releases its slot. It
// stays in List, so that no other worker starts it, until it is removed or gets
// newer content (see [Worker.Update]).
//
// f is called with each completed task, so that it can remove the task from the
// expected tasks. The worker itself removes nothing. A task that completes while it
// is being removed counts as stopped and may run again elsewhere. When f is called,
// the task may already have newer content and run again. If content changes, f
// should check [Worker.Status], and remove the task only if it is Completed with
// that Version.
//
// A job that runs or has completed must not be moved, because it would start from
// the beginning elsewhere. List and Report pin it, and a Remove based on an older
// answer is rejected. A job that waits for a slot or for a restart can be moved, and
// so can a task that has called [Movable]. Transports that use neither List nor
// Report pin nothing: with package etcd a running job may move.
//
// f is called without locks, from many goroutines at the same time; it may call the
// worker. [Worker.Close] does not wait for f. T must be the worker's.
//
// By default a function that returns nil is started again like any other. f must not
// be nil.
func WithCompletion[T any](f func(task T)) Option {
	return optionFunc(func(c *config) {
		if f == nil {
			c.invalid("WithCompletion(nil): must be a function")
		}
		c.completion = f
	})
}

// WithAttempts lets jobs fail. After n failed runs in a row with the same content, a
// task is not started again. It releases its slot and stays in List, pinned, until
// it is removed or given newer content. f is called as described at
// [WithCompletion], with the error of the last run, so that it can remove the task
// from the expected tasks. A task that is removed from the worker while it is still
// expected starts from the beginning elsewhere.
//
// An update in place and a stop are not failures. For a task that has called
// [Movable], a run of at least the longest pause resets the count (see
// [WithBackoff]). Attempts count on this worker only: the count starts again for a
// job that is moved between two attempts or that ends the process. T must be the
// worker's.
//
// By default there is no limit, and a task that fails is started again forever. n
// must be at least 1 and f must not be nil. The option requires WithCompletion.
func WithAttempts[T any](n int, f func(task T, err error)) Option {
	return optionFunc(func(c *config) {
		if n < 1 || f == nil {
			c.invalid("WithAttempts(%d, f), f nil: %t: n must be at least 1, and f a function", n, f == nil)
		}
		c.attempts, c.failure = n, f
	})
}

// WithLastResort sets a function f to call when only the margin of the lease is left
// (see [WithLease]). f gets the tasks that have not stopped, in the order of List.
// Another worker may run them soon, so f typically ends the process. f is called at
// most once per lost lease, and never if everything has stopped in time. If f
// returns, the tasks stay in List, and [Worker.Rejoin] and [Worker.Close] wait for
// them.
//
// f is called without locks, before the worker logs the event: if f ends the
// process, f must log why. Its panics are not recovered. T must be the worker's.
//
// By default the event is only logged. f must not be nil. The option requires
// WithLease.
func WithLastResort[T any](f func(tasks []T)) Option {
	return optionFunc(func(c *config) {
		if f == nil {
			c.invalid("WithLastResort(nil): must be a function")
		}
		c.resort = f
	})
}

// WithUpdate sets a function f to call when the content of a running task changes.
// The context of f carries the new content (see [Content]) and ends with that of the
// task's function, with the same cause. With [WithReadiness] f is called once the
// task is ready. Without it f may be called before the task's function has done
// anything.
//
// For the same task, calls of f never overlap, and older content never follows
// newer. Of several updates during a call, only the last is delivered. For different
// tasks f is called at the same time. f is called without locks.
//
// f must return soon after its context has ended. It is part of the run: until f has
// returned, the task has not stopped and is not restarted. If f returns an error or
// panics, the task is restarted in place with the new content, as without the
// option.
//
// T must be the worker's. By default a task whose content has changed is restarted
// in place. f must not be nil.
func WithUpdate[T any](f func(ctx context.Context, task T) error) Option {
	return optionFunc(func(c *config) {
		if f == nil {
			c.invalid("WithUpdate(nil): must be a function")
		}
		c.update = f
	})
}

// WithAccept sets a function f to call before the worker accepts a new task. content
// is that of the Add. If f returns an error or panics, Add fails with an error that
// wraps f's error and [orchestrator.ErrRejected].
//
// f is called without locks, from many goroutines at the same time, and Add waits
// for it. For the writes of one Apply, f is called in their order. ctx is the
// context of the call: f must return soon after ctx has ended. T must be the
// worker's.
//
// By default every task is accepted. f must not be nil.
func WithAccept[T any](f func(ctx context.Context, task T, content []byte) error) Option {
	return optionFunc(func(c *config) {
		if f == nil {
			c.invalid("WithAccept(nil): must be a function")
		}
		c.accept = f
	})
}
