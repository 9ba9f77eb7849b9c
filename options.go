package orchestrator

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"time"
)

// What New and AddTask take, and the values that apply where an option is not
// given.

// HoldUntilRemoved as a grace period means that a silent worker is never lost:
// it holds what it had until it answers or is removed. It is the setting
// where membership has leases, so that only the end of a lease frees tasks.
const HoldUntilRemoved time.Duration = math.MaxInt64

const (
	defaultTimeout     = 10 * time.Second
	defaultConcurrency = 1024
	defaultMaxLoss     = 0.5
	defaultSettle      = 200 * time.Millisecond
	defaultGrace       = 3 // timeouts, or ticks of Run
	defaultMaxPause    = time.Minute
	unlimitedMoves     = -1

	// settleAtMost bounds, in settle times, how long Run waits for quiet.
	settleAtMost = 25
	// massLossHold is how long a mass loss may keep workers from being lost.
	massLossHold = 5 * time.Minute
)

// Option is a setting of an [Orchestrator], made by one of the functions that
// return one. Where an option is given twice, the later one counts.
type Option interface {
	apply(*config) error
}

// TaskOption is a setting of one task.
type TaskOption interface {
	applyTask(*taskConfig) error
}

// WorkerOption is a setting of one worker.
type WorkerOption interface {
	applyWorker(*workerConfig) error
}

type config struct {
	logger      *slog.Logger
	timeout     time.Duration
	stats       []func(TermStats)
	concurrency int
	grace       time.Duration // negative: not given
	handoff     Handoff
	maxMoves    int
	maxLoss     float64
	settle      time.Duration
	epoch       uint64 // 0: not given
	maxPause    time.Duration
	seed        uint64
	dryRun      bool
}

func newConfig(opts []Option) (config, error) {
	c := config{
		logger:      slog.New(slog.DiscardHandler),
		timeout:     defaultTimeout,
		concurrency: defaultConcurrency,
		grace:       -1,
		handoff:     StopThenStart,
		maxMoves:    unlimitedMoves,
		maxLoss:     defaultMaxLoss,
		settle:      defaultSettle,
		maxPause:    defaultMaxPause,
		seed:        rand.Uint64(),
	}
	var errs []error
	for _, opt := range opts {
		if opt == nil {
			errs = append(errs, invalid("an Option is nil"))
			continue
		}
		errs = append(errs, opt.apply(&c))
	}
	if c.epoch == 0 {
		c.epoch = uint64(time.Now().UnixMilli())
	}
	return c, errors.Join(errs...)
}

type option func(*config) error

func (f option) apply(c *config) error { return f(c) }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// WithLogger sets where the orchestrator logs. The default, and nil, discard
// everything. A term in which nothing happens logs nothing above Debug. A term that
// changes something logs a line at Info, and at Debug one for each change, with its
// reason and outcome.
func WithLogger(l *slog.Logger) Option {
	return option(func(c *config) error {
		if l == nil {
			l = slog.New(slog.DiscardHandler)
		}
		c.logger = l
		return nil
	})
}

// WithCommunicatorTimeout sets how long a call to a worker may take. The
// default is 10 s; it has to be positive, and at most an hour. A call's
// context ends a ten-thousandth of it earlier, so that a call that honours its
// context has returned by then.
//
// The longest term lasts five times as long: listing takes one, changes begin
// within one more, and what has begun takes at most three.
func WithCommunicatorTimeout(d time.Duration) Option {
	return option(func(c *config) error {
		if d <= 0 || d > time.Hour {
			return invalid("WithCommunicatorTimeout(%v): must be above 0 and at most 1h", d)
		}
		c.timeout = d
		return nil
	})
}

// WithStats sets a function that is called at the end of each term of
// NextTerm, in its goroutine and before it returns. It may be given more than
// once; every function is called, in the order given. The default is none; nil
// is an error. f must not call NextTerm or Plan.
func WithStats(f func(TermStats)) Option {
	return option(func(c *config) error {
		if f == nil {
			return invalid("WithStats(nil): must be a function")
		}
		c.stats = append(c.stats, f)
		return nil
	})
}

// WithConcurrency sets how many calls a term has in flight at most. Calls of List
// for which the term does not wait have as many places again. The default is 1,024.
// It must be at least 1.
func WithConcurrency(n int) Option {
	return option(func(c *config) error {
		if n < 1 {
			return invalid("WithConcurrency(%d): must be at least 1", n)
		}
		c.concurrency = n
		return nil
	})
}

// WithGracePeriod sets how long a worker may be silent, counted from its last
// answer, before it is declared lost and its tasks start elsewhere. What declares it
// lost is a call that fails after that time, or had its whole timeout by then: if there
// was no term for long, the next one asks first. It should be longer than two terms are
// apart, because otherwise a single missed answer is enough; Run logs a warning if it is
// not. The default is three communicator timeouts, and under Run at least three ticks. 0
// declares a silent worker lost in the same term. [HoldUntilRemoved] never does. It must
// not be negative.
func WithGracePeriod(d time.Duration) Option {
	return option(func(c *config) error {
		if d < 0 {
			return invalid("WithGracePeriod(%v): must not be negative", d)
		}
		c.grace = d
		return nil
	})
}

// HandoffOption is both an [Option] and a [TaskOption]; see [WithHandoff].
type HandoffOption interface {
	Option
	TaskOption
}

type handoffOption Handoff

// WithHandoff sets the order of the two halves of a move: given to New, for
// all tasks that do not say otherwise, given to AddTask, for that task. The
// default is [StopThenStart]; [HandoffDefault] means the default.
func WithHandoff(h Handoff) HandoffOption { return handoffOption(h) }

func (h handoffOption) apply(c *config) error {
	if err := Handoff(h).check(); err != nil {
		return fmt.Errorf("WithHandoff: %w", err)
	}
	c.handoff = Handoff(h)
	if c.handoff == HandoffDefault {
		c.handoff = StopThenStart
	}
	return nil
}

func (h handoffOption) applyTask(c *taskConfig) error {
	if err := Handoff(h).check(); err != nil {
		return fmt.Errorf("WithHandoff: %w", err)
	}
	c.handoff = Handoff(h)
	return nil
}

// WithMaxMoves limits how many healthy running instances a term moves, those
// on draining workers first. Starting what is missing and stopping what is
// surplus is never limited. The default is no limit; 0 means that nothing
// healthy is moved, and draining workers keep what they have. It must not be
// negative.
func WithMaxMoves(n int) Option {
	return option(func(c *config) error {
		if n < 0 {
			return invalid("WithMaxMoves(%d): must not be negative", n)
		}
		c.maxMoves = n
		return nil
	})
}

// WithMaxLoss sets the part of the workers beyond which silence is taken for a
// failure of the leader's own network: while more than this fraction of three
// or more workers not yet lost are silent, and for a timeout after that, none
// becomes lost, for five minutes at most. The default is 0.5. 0 means that a single
// silent worker counts, and 1 turns it off. It has to be between 0 and 1. With
// [HoldUntilRemoved] none becomes lost anyway: then it only says when so many are
// silent that this leader may be cut off.
func WithMaxLoss(fraction float64) Option {
	return option(func(c *config) error {
		if !(fraction >= 0 && fraction <= 1) {
			return invalid("WithMaxLoss(%v): must be between 0 and 1", fraction)
		}
		c.maxLoss = fraction
		return nil
	})
}

// WithSettle sets for how long it has to be quiet after a change of the
// expectations before [Orchestrator.Run] starts a term for it; it waits for 25
// times that at most. The default is 200 ms; 0 means at once. It must not be
// negative, and is at most an hour.
func WithSettle(d time.Duration) Option {
	return option(func(c *config) error {
		if d < 0 || d > time.Hour {
			return invalid("WithSettle(%v): must be between 0 and 1h", d)
		}
		c.settle = d
		return nil
	})
}

// WithEpoch sets the epoch that the terms carry. It has to be higher than that
// of every leader before: an election provides one, such as the revision of
// its key. The default, and 0, is the wall clock in milliseconds when New was
// called, so that of two leaders the one started last wins. Such an epoch is far
// above a revision: workers that have seen one have to be restarted before they
// follow a leader that takes its epochs from an election.
func WithEpoch(e uint64) Option {
	return option(func(c *config) error {
		c.epoch = e
		return nil
	})
}

// WithMaxPause bounds the pauses after failed starts and stops, which are counted in
// terms, in time, so that a slow ticker does not make them last for hours. The
// default is a minute. It must be above 0 and at most 24 h.
func WithMaxPause(d time.Duration) Option {
	return option(func(c *config) error {
		if d <= 0 || d > 24*time.Hour {
			return invalid("WithMaxPause(%v): must be above 0 and at most 24h", d)
		}
		c.maxPause = d
		return nil
	})
}

// WithSeed sets which worker gets what could as well go to another one. Give it in
// tests that compare plans. The default is drawn by New, so that many small groups
// over the same workers do not all sit on those added first. 0 means the workers
// added first.
func WithSeed(n uint64) Option {
	return option(func(c *config) error {
		c.seed = n
		return nil
	})
}

// WithDryRun makes each term list and plan, and write nothing: its changes have the
// outcome [OutcomeDry]. Its calls carry no identity, so they fence no worker. Use it
// to look before going live, or beside the leader that it is to replace. The default
// is to write.
func WithDryRun() Option {
	return option(func(c *config) error {
		c.dryRun = true
		return nil
	})
}

type taskConfig struct {
	instances int
	handoff   Handoff
}

type taskOption func(*taskConfig) error

func (f taskOption) applyTask(c *taskConfig) error { return f(c) }

// WithTaskInstances sets on how many workers the task is to run, each on a
// worker of its own. The default is 1, which is also the least.
func WithTaskInstances(n int) TaskOption {
	return taskOption(func(c *taskConfig) error {
		if n < 1 || n > math.MaxInt32 {
			return invalid("WithTaskInstances(%d): must be at least 1 and at most %d; to run no instance, use RemoveTask", n, math.MaxInt32)
		}
		c.instances = n
		return nil
	})
}

type workerConfig struct {
	draining bool
}

type workerOption func(*workerConfig) error

func (f workerOption) applyWorker(c *workerConfig) error { return f(c) }

// WithWorkerDraining adds the worker as one that is to end empty, like
// [Worker].Draining. The default is a worker open to tasks.
func WithWorkerDraining() WorkerOption {
	return workerOption(func(c *workerConfig) error {
		c.draining = true
		return nil
	})
}
