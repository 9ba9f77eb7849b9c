package recruit

// The options of New, and their validation.

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"
)

// Option changes how [New] sets up a Recruiter.
type Option interface {
	apply(*config)
}

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// config is what the options add up to.
type config struct {
	logger   *slog.Logger
	budget   time.Duration
	limit    int         // 0: none
	source   rand.Source // nil: the calls are counted, and draw, by themselves
	problems []error
}

func newConfig(opts []Option) config {
	c := config{
		logger: slog.New(slog.DiscardHandler),
		budget: 50 * time.Millisecond,
		limit:  64,
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
	c.problems = append(c.problems, fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...))
}

// WithLogger has the recruiter log what becomes of recruits: a panic with its
// stack at Error; a job that failed, or was left behind, at Warn; one that came
// back after that at Info; one that was done, and a caller who drew a job that
// is not to be had, at Debug. Nothing is logged for a caller who draws no job.
//
// Of each job, at most one line in a second says that it failed or panicked, and
// at most one that it was left behind; omitted is how many like it there were
// since the one before. The counts ([Recruiter.Jobs]) are of all.
//
// The keys are job, took, err, omitted, reason and stack.
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

// WithBudget sets how long a recruit may keep its caller. The deadline of the
// job's context is a tenth of that earlier, but at most 5 ms: a job that ends
// when its context does is back in time, and one that ignores it is told from
// that.
//
// Default: 50 ms. Range: d > 0.
func WithBudget(d time.Duration) Option {
	return optionFunc(func(c *config) {
		if d <= 0 {
			c.invalid("WithBudget(%v): must be positive", d)
		}
		c.budget = d
	})
}

// WithLimit lets at most n recruits run at once, of all jobs together. Who draws
// a job beyond that is dismissed. One that was left behind does not count any
// more: it keeps its own job from being recruited, and no other.
//
// Default: 64. 0 means no limit. Range: n >= 0.
func WithLimit(n int) Option {
	return optionFunc(func(c *config) {
		if n < 0 {
			c.invalid("WithLimit(%d): must not be negative", n)
		}
		c.limit = n
	})
}

// WithSource draws from s, one number for each call of Enlist: for tests, and for
// draws of a better quality. Of a number the upper 40 bits count. s need not be
// safe for many goroutines, but is one recruiter's alone; all callers wait for the
// same lock then, which the default does not need.
//
// Default: generators that start at random, one for each of the goroutines that
// run at the same time or so, without a lock. A nil s is out of range.
func WithSource(s rand.Source) Option {
	return optionFunc(func(c *config) {
		if s == nil {
			c.invalid("WithSource(nil): must be a source")
		}
		c.source = s
	})
}

// WithSeed is WithSource with a generator that begins at seed: the same seed
// gives the same draws, in the order in which Enlist is called.
//
// Default: as WithSource. Every value is in range.
func WithSeed(seed uint64) Option {
	// A generator for each recruiter that the option is given to.
	return optionFunc(func(c *config) { c.source = rand.NewPCG(seed, 0) })
}

// reserve is what of the budget is left when the job's context ends.
func (c *config) reserve() time.Duration { return min(c.budget/10, 5*time.Millisecond) }
