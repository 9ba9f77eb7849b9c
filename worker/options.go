package worker

// The options of New, and their validation.

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/f8949c05/orchestrator"
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
	backoff   backoff
	spare     spareTime
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
		if n < 0 {
			c.invalid("WithSlots(%d): must not be negative", n)
		}
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
		if first <= 0 || longest < first {
			c.invalid("WithBackoff(%v, %v): must be 0 < first <= longest", first, longest)
		}
		c.backoff = backoff{first: first, longest: longest}
	})
}

// WithSeed makes the random part of the pauses between restarts repeatable. Every
// value is valid. The default is a random seed.
func WithSeed(seed uint64) Option {
	return optionFunc(func(c *config) { c.seed = seed })
}

// WithLogger sets the logger. It gets restarts, failed updates, tasks that do not
// stop, failed saves of the record and the loss of the lease at Warn. It gets panics
// with their stack, failed jobs and tasks that outlive the lease at Error, and
// normal ends at Debug. The keys are task, tasks, err, pause, attempts, since and
// stack.
//
// The default is nil, which means that nothing is logged.
func WithLogger(l *slog.Logger) Option {
	return optionFunc(func(c *config) {
		if l == nil {
			l = slog.New(slog.DiscardHandler)
		}
		c.logger = l
	})
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
		switch {
		case d <= 0 || stop < 0:
			c.invalid("WithLease(%v, %v): the lease must be positive, and stop not negative", d, stop)
		case d-margin(d)-stop < d/4:
			c.invalid("WithLease(%v, %v): leaves %v for renewals, must be at least a quarter of the lease: use a lease of at least %v",
				d, stop, d-margin(d)-stop, leastLease(stop))
		}
		c.lease, c.stop = d, stop
	})
}

// leastLease returns the shortest valid lease for stop, in whole milliseconds.
func leastLease(stop time.Duration) time.Duration {
	exact := (stop*20 + 12) / 13 // d - d/10 - d/4 is 13/20 of d
	return (exact + time.Millisecond - 1).Truncate(time.Millisecond)
}
