package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/backoff"
)

// Option configures a Worker; see [New].
type Option interface {
	apply(*config)
}

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// config collects the options of a worker.
type config struct {
	slots     int           // 0: no limit
	attempts  int           // 0: no limit
	lease     time.Duration // 0: none
	stop      time.Duration // the part of the lease that tasks have to stop
	readiness bool
	backoff   backoff.Backoff
	seed      uint64
	logger    *slog.Logger
	problems  []error

	// Functions of the user, whose types depend on the worker's; nil: none.
	completion any // func(T)
	failure    any // func(T, error)
	resort     any // func([]T)
	update     any // func(context.Context, T) error
	accept     any // func(T, []byte) error
	record     any // Record[T]
}

func newConfig(opts []Option) config {
	c := config{
		backoff: backoff.Backoff{First: 100 * time.Millisecond, Longest: time.Minute},
		seed:    rand.Uint64(),
		logger:  slog.New(slog.DiscardHandler),
	}
	for _, opt := range opts {
		if c.refuse(opt == nil, "an Option is nil"); opt != nil {
			opt.apply(&c)
		}
	}
	return c
}

// refuse records a problem if there is one.
func (c *config) refuse(bad bool, format string, args ...any) {
	if bad {
		c.problems = append(c.problems, fmt.Errorf("%w: "+format, append([]any{orchestrator.ErrInvalid}, args...)...))
	}
}

// WithSlots limits the number of tasks that run at the same time to n. The other
// tasks wait for a slot in the order in which they were added. They are in List, and
// Add returns nil as soon as they are queued.
//
// A task holds its slot from its first start until it has stopped, completed or
// failed for good, also between restarts. So a task that failed once does not queue
// again behind tasks that may never end. A task that always fails holds its slot
// until it is removed.
//
// The default is 0, which means no limit. n must not be negative.
func WithSlots(n int) Option {
	return optionFunc(func(c *config) {
		c.refuse(n < 0, "WithSlots(%d): must not be negative", n)
		c.slots = n
	})
}

// WithReadiness makes Add wait until the task has called [Ready]. Then a handover
// that starts a task here before it stops it elsewhere leaves no gap. If the task
// waits for a slot, Add returns immediately, as it does without the option.
//
// If the context of Add ends first, the task keeps starting: it is in List, and
// another Add waits for it again. A task that fails before it is ready is restarted
// like any other.
//
// By default a task counts as running as soon as it is started.
func WithReadiness() Option {
	return optionFunc(func(c *config) { c.readiness = true })
}

// WithBackoff sets the pauses before a task that returned or panicked is started
// again. The pause doubles with each failure, from first to longest. Each pause is
// shortened by a random part of up to half, so that tasks that failed together do
// not restart together. A run of at least longest starts the sequence over.
//
// The default is 100 ms and 1 minute. first must be positive and at most longest.
func WithBackoff(first, longest time.Duration) Option {
	return optionFunc(func(c *config) {
		c.refuse(first <= 0 || longest < first, "WithBackoff(%v, %v): must be 0 < first <= longest", first, longest)
		c.backoff = backoff.Backoff{First: first, Longest: longest}
	})
}

// WithSeed makes the random part of the pauses between restarts repeatable. Every
// value is valid. The default is a random seed.
func WithSeed(seed uint64) Option {
	return optionFunc(func(c *config) { c.seed = seed })
}

// WithLogger sets the logger. It gets restarts, failed updates, tasks that do not
// stop or are to run elsewhere, failed saves of the record, lost pins (once) and the loss of the lease at Warn. It gets panics
// with their stack, failed jobs and tasks that outlive the lease at Error, and
// normal ends at Debug. The keys are task, tasks, err, pause, attempts, since and
// stack.
//
// The default is nil, which means that nothing is logged.
func WithLogger(l *slog.Logger) Option {
	return optionFunc(func(c *config) { c.logger = cmp.Or(l, slog.New(slog.DiscardHandler)) })
}

// WithLease makes the worker hold its tasks under a lease of length d, which a
// transport obtains and renews (see [Worker.Sending]). stop is the time that tasks
// need to stop. The worker stops everything before the lease can have ended. Counted
// from the sending of the last acknowledged renewal, and with a margin of d/10, it
//
//   - ends the contexts of all tasks after d - margin - stop, with the cause
//     [ErrLeaseLost];
//   - hands the tasks that have not stopped to [WithLastResort] after d - margin.
//
// The worker accepts no task before the first acknowledgement, nor between the loss
// of the lease and [Worker.Rejoin]. The package documentation states the guarantees
// and their limits.
//
// By default there is no lease, and a worker that is cut off keeps running its
// tasks. d must be positive and stop must not be negative. d - margin - stop, the
// time left for renewals, must be at least d/4.
func WithLease(d, stop time.Duration) Option {
	return optionFunc(func(c *config) {
		bad := d <= 0 || stop < 0
		c.refuse(bad, "WithLease(%v, %v): the lease must be positive, and stop not negative", d, stop)
		c.refuse(!bad && d-margin(d)-stop < d/4, "WithLease(%v, %v): leaves %v for renewals, must be at least a quarter of the lease: "+
			"use a lease of at least %v", d, stop, d-margin(d)-stop, leastLease(stop))
		c.lease, c.stop = d, stop
	})
}

// leastLease returns the shortest valid lease for stop, in whole milliseconds.
func leastLease(stop time.Duration) time.Duration {
	exact := (stop*20 + 12) / 13 // d - d/10 - d/4 is 13/20 of d
	return (exact + time.Millisecond - 1).Truncate(time.Millisecond)
}

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
	c.refuse(!ok && given != nil, "%s takes a %T, this worker's is a %v", option, given, reflect.TypeFor[F]())
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
// List and Report pin a job that runs or has completed, and a Remove based on an older
// answer is rejected. A job that waits for a slot or for a restart can be moved, and so
// can a task that has called [Movable]. Over a transport that loses pins, a job that runs
// is never stopped: a drain waits for it, and even a task that is not expected any more
// runs to its end. Transports that use neither List nor Report pin nothing: with package
// replica a running job may move.
//
// f is called without locks, from many goroutines at the same time; it may call the
// worker. [Worker.Close] does not wait for f. T must be the worker's.
//
// By default a function that returns nil is started again like any other. f must not
// be nil.
func WithCompletion[T any](f func(task T)) Option {
	return optionFunc(func(c *config) {
		c.refuse(f == nil, "WithCompletion(nil): must be a function")
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
		c.refuse(n < 1 || f == nil, "WithAttempts(%d, f), f nil: %t: n must be at least 1, and f a function", n, f == nil)
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
		c.refuse(f == nil, "WithLastResort(nil): must be a function")
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
// in place, unless its run has called [Updated]. f must not be nil.
func WithUpdate[T any](f func(ctx context.Context, task T) error) Option {
	return optionFunc(func(c *config) {
		c.refuse(f == nil, "WithUpdate(nil): must be a function")
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
		c.refuse(f == nil, "WithAccept(nil): must be a function")
		c.accept = f
	})
}

// Given returns the names of those of opts that decide about the lease or the end of tasks,
// in this order: WithLease, WithLastResort, WithCompletion, WithAttempts, WithRecord. A
// package that makes the worker itself uses it to refuse options that it would override.
// Nil options and invalid values are ignored; [New] reports them.
func Given(opts ...Option) (names []string) {
	var c config
	for _, opt := range opts {
		if opt != nil {
			opt.apply(&c)
		}
	}
	for i, given := range []bool{c.lease != 0, c.resort != nil, c.completion != nil, c.failure != nil, c.record != nil} {
		if given {
			names = append(names, []string{"WithLease", "WithLastResort", "WithCompletion", "WithAttempts", "WithRecord"}[i])
		}
	}
	return names
}
