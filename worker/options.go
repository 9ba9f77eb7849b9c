package worker

// The options of New, and their validation.

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/f8949c05/orchestrator"
)

// Option changes how [New] sets up a Worker.
type Option interface {
	apply(*config)
}

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// config is what the options of a worker add up to.
type config struct {
	slots     int           // 0: no limit
	attempts  int           // 0: no limit
	lease     time.Duration // 0: none
	stop      time.Duration // what of the lease tasks have to stop in
	readiness bool
	backoff   backoff
	spare     spareTime
	seed      uint64
	logger    *slog.Logger
	problems  []error

	// Functions of the user's, whose types depend on the worker's; nil: none.
	completion any // func(T)
	failure    any // func(T, error)
	resort     any // func([]T)
	update     any // func(context.Context, T) error
	accept     any // func(T, []byte) error
	record     any // Record[T]
}

func newConfig(opts []Option) config {
	c := config{
		backoff: backoff{first: 100 * time.Millisecond, longest: time.Minute},
		seed:    rand.Uint64(),
		logger:  slog.New(slog.DiscardHandler),
	}
	for _, opt := range opts {
		if opt == nil {
			c.invalid("an Option is nil")
			continue
		}
		opt.apply(&c)
	}
	return c
}

func (c *config) invalid(format string, args ...any) {
	c.problems = append(c.problems, fmt.Errorf("%w: "+format, append([]any{orchestrator.ErrInvalid}, args...)...))
}

// WithSlots lets at most n tasks run at once. The others wait for a slot, first
// in, first out; they are in List, and Add answers for them without an error
// as soon as they are in the queue.
//
// A task holds its slot from its first start until it has stopped or
// completed, also between two restarts: what was accepted first stays ahead of
// what came later, and a task that failed once does not start over behind
// tasks that may never end. So a task that always fails occupies a slot until
// it is removed.
//
// Default: 0, which means no limit. Range: n >= 0.
func WithSlots(n int) Option {
	return optionFunc(func(c *config) {
		if n < 0 {
			c.invalid("WithSlots(%d): must not be negative", n)
		}
		c.slots = n
	})
}

// WithReadiness makes Add answer only once the task has called [Ready], so that
// a handover that starts a task here before it stops it elsewhere has no gap.
// A task that waits for a slot is answered for at once, as without it.
//
// Where the Add's context ends first, the task goes on starting: it is in List,
// and a further Add waits for it again. A task that fails before it is ready
// is restarted like any other.
//
// Default: a task counts as running as soon as it was started.
func WithReadiness() Option {
	return optionFunc(func(c *config) { c.readiness = true })
}

// WithBackoff sets the pauses before a task that returned or panicked is
// started again. They double from first to longest, and each is shortened by a
// random part of up to a half, so that tasks that failed together do not come
// back together. A run that lasted for at least longest starts the sequence
// over.
//
// Default: 100 ms and 1 minute. Range: 0 < first <= longest.
func WithBackoff(first, longest time.Duration) Option {
	return optionFunc(func(c *config) {
		if first <= 0 || longest < first {
			c.invalid("WithBackoff(%v, %v): must be 0 < first <= longest", first, longest)
		}
		c.backoff = backoff{first: first, longest: longest}
	})
}

// WithSeed makes the random part of the pauses between restarts repeatable.
//
// Default: a random seed. Every value is in range.
func WithSeed(seed uint64) Option {
	return optionFunc(func(c *config) { c.seed = seed })
}

// WithLogger has the worker log what its tasks do wrong: a restart, an
// update that a task did not take and the loss of the lease at Warn, a panic with
// its stack and tasks that outlive the lease at Error; what ends as it should at
// Debug. The keys are task, tasks, err, pause and stack.
//
// Default: nil, which means that nothing is logged.
func WithLogger(l *slog.Logger) Option {
	return optionFunc(func(c *config) {
		if l == nil {
			l = slog.New(slog.DiscardHandler)
		}
		c.logger = l
	})
}

// WithLease says that the worker holds its tasks by a lease of length d, which a
// transport obtains and renews (see [Worker.Sending]), and that its tasks need
// stop to come to an end. The worker then stops everything before the lease can
// have ended. With a margin of a tenth of d it counts, from the moment in which
// the last renewal that was acknowledged was sent,
//
//   - d - margin - stop until the contexts of all tasks end, with the cause
//     [ErrLeaseLost];
//   - d - margin until what has not stopped is handed to [WithLastResort].
//
// It accepts no task before the lease was first acknowledged, nor after it was
// lost, until [Worker.Rejoin]. The package documentation says what that
// promises and what not.
//
// Default: no lease; a worker that nobody hears from runs on. Range: d > 0,
// stop >= 0, and d - margin - stop, which is what there is to renew the lease
// in, at least d/4.
func WithLease(d, stop time.Duration) Option {
	return optionFunc(func(c *config) {
		switch {
		case d <= 0 || stop < 0:
			c.invalid("WithLease(%v, %v): must be positive, and stop not negative", d, stop)
		case d-margin(d)-stop < d/4:
			c.invalid("WithLease(%v, %v): leaves %v to renew the lease in, must be at least a quarter of it: needs a lease of %v",
				d, stop, d-margin(d)-stop, leastLease(stop))
		}
		c.lease, c.stop = d, stop
	})
}

// leastLease returns a lease, in whole milliseconds, that leaves enough to
// renew it in.
func leastLease(stop time.Duration) time.Duration {
	exact := (stop*20 + 12) / 13 // d - d/10 - d/4 is 13/20 of d
	return (exact + time.Millisecond - 1).Truncate(time.Millisecond)
}
