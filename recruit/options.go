package recruit

// The options of New, and their validation.

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"
)

// Option configures a Recruiter; see [New].
type Option interface {
	apply(*config)
}

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// config collects the options.
type config struct {
	logger   *slog.Logger
	budget   time.Duration
	limit    int         // 0: no limit
	source   rand.Source // nil: the counter of calls generates the numbers
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

// WithLogger sets the logger. A panic is logged with its stack at Error. A failed
// job and one that is left behind are logged at Warn, and the return of such a job
// at Info. A job that is done, and a caller that is dismissed although it drew a
// job, are logged at Debug. Callers that draw no job are not logged.
//
// Failures and panics together are logged at most once a second per job, and so are
// jobs left behind. The key omitted counts the lines omitted since the previous one.
// [Recruiter.Jobs] counts all.
//
// The keys are job, took, err, omitted, reason and stack. The default is nil, which
// means that nothing is logged.
func WithLogger(l *slog.Logger) Option {
	return optionFunc(func(c *config) {
		if l == nil {
			l = slog.New(slog.DiscardHandler)
		}
		c.logger = l
	})
}

// WithBudget sets how long a job may keep its caller waiting. The deadline of the
// job's context is earlier by a tenth of d, but at most by 5 ms. So a job that
// returns when its context is done returns within the budget, and is not left
// behind.
//
// The default is 50 ms. d must be positive.
func WithBudget(d time.Duration) Option {
	return optionFunc(func(c *config) {
		if d <= 0 {
			c.invalid("WithBudget(%v): must be positive", d)
		}
		c.budget = d
	})
}

// WithLimit limits the number of runs at the same time to n, over all jobs. A caller
// that draws a job beyond the limit is dismissed. A run left behind no longer
// counts. It blocks only its own job from being recruited.
//
// The default is 64; 0 means no limit. n must not be negative.
func WithLimit(n int) Option {
	return optionFunc(func(c *config) {
		if n < 0 {
			c.invalid("WithLimit(%d): must not be negative", n)
		}
		c.limit = n
	})
}

// WithSource draws one number from s for each call of Enlist, for tests or for
// better random numbers. Only the upper 40 bits of a number count. s need not be
// safe for concurrent use, but must not be shared between recruiters. Unlike the
// default, all callers then wait for one lock.
//
// By default, goroutines use several generators with random seeds, without a lock. s
// must not be nil.
func WithSource(s rand.Source) Option {
	return optionFunc(func(c *config) {
		if s == nil {
			c.invalid("WithSource(nil): must be a source")
		}
		c.source = s
	})
}

// WithSeed is WithSource with a generator seeded with seed. The same seed gives the
// same draws, in the order of the calls of Enlist. Every value is valid. The default
// is that of WithSource.
func WithSeed(seed uint64) Option {
	// Create the generator in the option, so that recruiters do not share it.
	return optionFunc(func(c *config) { c.source = rand.NewPCG(seed, 0) })
}

// reserve returns how long before the end of the budget the job's context ends.
func (c *config) reserve() time.Duration { return min(c.budget/10, 5*time.Millisecond) }
