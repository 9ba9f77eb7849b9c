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
	slots      int // 0: no limit
	readiness  bool
	backoff    backoff
	seed       uint64
	logger     *slog.Logger
	completion any // nil, or a func(T)
	problems   []error
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

// WithLogger has the worker log what its tasks do wrong: a restart at Warn, a
// panic with its stack at Error; what ends as it should at Debug. The keys are
// task, err, restarts, pause and stack.
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

// WithCompletion lets tasks complete: one whose function returns nil, though
// its context has not ended, has done all it had to do. It is not started
// again, gives back its slot, and stays in List, so that nobody else starts
// it, until it is removed. f is told, so that it can see to the removal where
// the expectations are kept. To report is all that the worker does: a task that
// completes in the moment in which it is removed counts as stopped, and may
// run again elsewhere.
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
