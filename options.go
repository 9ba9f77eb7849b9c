package orchestrator

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/internal/term"
)

// HoldUntilRemoved is a grace period that never ends: a silent worker keeps its tasks
// until it answers or is removed. Use it if membership has leases, so that only the end
// of a lease frees tasks.
const HoldUntilRemoved time.Duration = term.HoldUntilRemoved

const (
	defaultTimeout     = 10 * time.Second
	defaultConcurrency = 1024
	defaultMaxLoss     = 0.5
	defaultSettle      = 200 * time.Millisecond
	defaultGrace       = 3 // timeouts, or ticks of Run
	defaultMaxPause    = time.Minute
	unlimitedMoves     = -1
	defaultBand        = 0.05

	// settleAtMost bounds how long Run waits for changes to end, in settle times.
	settleAtMost = 25
)

// Option is a setting of an [Orchestrator]. If an option is given twice, the later one
// counts.
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

// config is a Config in which a negative GracePeriod and an Epoch of 0 are not given.
type config struct {
	Config

	logger *slog.Logger
	stats  []func(TermStats)
}

func newConfig(opts []Option) (config, error) {
	c := config{logger: slog.New(slog.DiscardHandler), Config: Config{
		CommunicatorTimeout: defaultTimeout, Concurrency: defaultConcurrency, GracePeriod: -1, Handoff: StopThenStart,
		MaxMoves: unlimitedMoves, FirstMoves: 1, MaxLoss: defaultMaxLoss, Settle: defaultSettle, MaxPause: defaultMaxPause,
		Seed: rand.Uint64(), Band: defaultBand,
	}}
	var errs []error
	for _, opt := range opts {
		if opt == nil {
			errs = append(errs, invalid("an Option is nil"))
			continue
		}
		errs = append(errs, opt.apply(&c))
	}
	if c.Epoch == 0 {
		c.Epoch = uint64(time.Now().UnixMilli())
	}
	return c, errors.Join(errs...)
}

// Config holds the options in force, with the defaults resolved.
type Config struct {
	CommunicatorTimeout time.Duration `json:"communicator_timeout_ns"`
	Concurrency         int           `json:"concurrency"`
	// GracePeriod is [HoldUntilRemoved] if silent workers are never declared lost. The
	// default depends on Every.
	GracePeriod time.Duration `json:"grace_period_ns"`
	Handoff     Handoff       `json:"handoff"`
	// MaxMoves is -1 without a limit.
	MaxMoves   int           `json:"max_moves"`
	FirstMoves int           `json:"first_moves"`
	MaxLoss    float64       `json:"max_loss"`
	Settle     time.Duration `json:"settle_ns"`
	Epoch      uint64        `json:"epoch"`
	MaxPause   time.Duration `json:"max_pause_ns"`
	Seed       uint64        `json:"seed"`
	DryRun     bool          `json:"dry_run"`
	// InitialWait is that of [WithInitialWait].
	InitialWait time.Duration `json:"initial_wait_ns"`
	// Band is that of [WithBand], and ReportedWeights whether [WithReportedWeights] was given.
	Band            float64 `json:"band"`
	ReportedWeights bool    `json:"reported_weights"`
	// Every is the interval of [Orchestrator.Run], and 0 while Run does not run.
	Every time.Duration `json:"every_ns"`
}

// Config returns the options in force. It never blocks.
func (o *Orchestrator[W, T]) Config() Config {
	c := o.cfg.Config
	c.GracePeriod, c.Every, c.Epoch = o.grace(), time.Duration(o.tick.Load()), o.epoch.Load()
	return c
}

// CheckOptions returns the error that [New] would return for opts: all problems with them,
// joined. Use it to check options early if New is called later, such as after an election.
func CheckOptions(opts ...Option) error {
	_, err := newConfig(opts)
	return err
}

// term returns the settings for decisions.
func (c *config) term() term.Config {
	return term.Config{
		Timeout: c.CommunicatorTimeout, MaxPause: c.MaxPause, MaxLoss: c.MaxLoss, MaxMoves: c.MaxMoves, Seed: c.Seed, Band: int32(math.Round(c.Band * 1e6)),
		FirstMoves: c.FirstMoves, InitialWait: c.InitialWait,
	}
}

type option func(*config) error

func (f option) apply(c *config) error { return f(c) }

// set returns an option that has no invalid value.
func set(f func(*config)) Option { return option(func(c *config) error { f(c); return nil }) }

// checked returns an option that is invalid unless ok.
func checked(f func(*config), ok bool, format string, args ...any) Option {
	if ok {
		return set(f)
	}
	return option(func(*config) error { return invalid(format, args...) })
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// WithLogger sets the logger. The default, and nil, discard everything. A term without
// changes or failures logs nothing above Debug. A term with changes logs one line at
// Info, and at Debug one for each change with its reason and outcome.
func WithLogger(l *slog.Logger) Option {
	return set(func(c *config) { c.logger = cmp.Or(l, slog.New(slog.DiscardHandler)) })
}

// WithCommunicatorTimeout sets how long a call to a worker may take. A call's context
// ends a ten-thousandth earlier, so that a call that honours its context has returned
// by then. The default is 10 s; it must be positive and at most an hour.
//
// The longest term takes five timeouts: one for listing, one within which changes
// begin, and three for the changes that have begun.
func WithCommunicatorTimeout(d time.Duration) Option {
	return checked(func(c *config) { c.CommunicatorTimeout = d }, d > 0 && d <= time.Hour, "WithCommunicatorTimeout(%v): must be above 0 and at most 1h", d)
}

// WithStats sets a function that NextTerm calls at the end of each term, in its
// goroutine and before it returns. If WithStats is given more than once, every function
// is called, in the order given. f must not call NextTerm. By default no function is
// called. f must not be nil.
func WithStats(f func(TermStats)) Option {
	return checked(func(c *config) { c.stats = append(c.stats, f) }, f != nil, "WithStats(nil): must be a function")
}

// WithConcurrency sets how many calls a term may have in flight. The calls of List for
// which the term does not wait have a separate limit, which is also n. The default is
// 1,024; n must be at least 1.
func WithConcurrency(n int) Option {
	return checked(func(c *config) { c.Concurrency = n }, n >= 1, "WithConcurrency(%d): must be at least 1", n)
}

// WithGracePeriod sets how long after its last answer a silent worker is declared lost
// and its tasks start elsewhere. The worker is lost only when a call fails, or uses up its
// timeout, after the grace period: after a long break between terms, the next term lists
// it first. The grace period should be at least two intervals between terms. Otherwise one
// missed answer loses a worker, and Run logs a warning.
//
// The default is three communicator timeouts, and under Run at least three ticks. 0
// declares a silent worker lost in the same term, and [HoldUntilRemoved] never. It must
// not be negative.
func WithGracePeriod(d time.Duration) Option {
	return checked(func(c *config) { c.GracePeriod = d }, d >= 0, "WithGracePeriod(%v): must not be negative", d)
}

// HandoffOption is both an [Option] and a [TaskOption]; see [WithHandoff].
type HandoffOption interface {
	Option
	TaskOption
}

type handoffOption Handoff

// WithHandoff sets the order of the two halves of a move: as an option of New for all
// tasks without a handoff of their own, as an option of AddTask for that task. The
// default, and [HandoffDefault], is [StopThenStart] for New and New's value for AddTask.
func WithHandoff(h Handoff) HandoffOption { return handoffOption(h) }

func (h handoffOption) apply(c *config) error {
	if err := Handoff(h).check(); err != nil {
		return fmt.Errorf("WithHandoff: %w", err)
	}
	c.Handoff = cmp.Or(Handoff(h), StopThenStart)
	return nil
}

func (h handoffOption) applyTask(c *taskConfig) error {
	if err := Handoff(h).check(); err != nil {
		return fmt.Errorf("WithHandoff: %w", err)
	}
	c.Handoff = Handoff(h)
	return nil
}

// WithMaxMoves limits how many healthy running instances a term moves, those on
// draining workers first. Starts of missing instances and stops of surplus ones are not
// limited. Moves that help only together are made together, even if they are more than n. The
// default is no limit. 0 moves no healthy instance, so draining workers
// keep their tasks. It must not be negative.
func WithMaxMoves(n int) Option {
	return checked(func(c *config) { c.MaxMoves = n }, n >= 0, "WithMaxMoves(%d): must not be negative", n)
}

// WithFirstMoves sets how many moves to a worker may be under way before the worker has
// acknowledged a start in the term. Each start that it acknowledges lets one more be under
// way. A larger number speeds up moves if a call takes several
// hops, and risks as many healthy tasks on a worker that starts nothing. After a failed
// move it is 1 for the rest of the term. The default is 1. It must be between 1 and 1,024.
func WithFirstMoves(n int) Option {
	return checked(func(c *config) { c.FirstMoves = n }, n >= 1 && n <= 1024, "WithFirstMoves(%d): must be between 1 and 1024", n)
}

// WithMaxLoss sets the fraction of silent workers above which the leader's own network
// is presumed to have failed. While more than this fraction of three or more workers
// not yet lost are silent, and for one timeout after, none is declared lost, for at
// most five minutes. The default is 0.5; 0 means any silent worker, and 1 disables the
// check. It must be between 0 and 1. With [HoldUntilRemoved] it only reports that this
// leader may be cut off.
//
// It also guards against changed labels. If these would evict more than this fraction of the
// running instances, none is evicted for five minutes, and [TermStats] counts them.
func WithMaxLoss(fraction float64) Option {
	return checked(func(c *config) { c.MaxLoss = fraction }, fraction >= 0 && fraction <= 1, "WithMaxLoss(%v): must be between 0 and 1", fraction)
}

// WithSettle sets how long [Orchestrator.Run] waits after the last change of the
// expectations before it starts a term for it. Run waits for at most 25 times as long
// if changes keep coming. The default is 200 ms; 0 starts the term at once. It must be
// between 0 and an hour.
func WithSettle(d time.Duration) Option {
	return checked(func(c *config) { c.Settle = d }, d >= 0 && d <= time.Hour, "WithSettle(%v): must be between 0 and 1h", d)
}

// WithInitialWait makes a new leader wait for workers that register themselves. For d after its
// first term began, it starts no instance that no worker reports, because a worker that has not
// registered yet may run it. Give the workers time to register: a few times the interval at which
// they try. A worker that registers meanwhile and does not answer keeps these instances waiting
// until it answers, is removed or is declared lost, like those present in the first term (T4). They
// wait with [ReasonInitialWait], those of removed and lost workers too. What workers report stops,
// moves and drains as usual.
//
// The default, and 0, is no wait. Then all workers that may run tasks must be added before the first
// term; otherwise their tasks run twice. Packages replica and manager add all of theirs, so they
// need no wait. It must be between 0 and an hour.
func WithInitialWait(d time.Duration) Option {
	return checked(func(c *config) { c.InitialWait = d }, d >= 0 && d <= time.Hour, "WithInitialWait(%v): must be between 0 and 1h", d)
}

// WithEpoch sets the epoch that the terms carry. It must be higher than that of every
// earlier leader. An election provides one, such as the revision of its key. The
// default, and 0, is the wall clock in milliseconds at the call of New, so that of two
// leaders the one started last wins. Such an epoch is far above a revision: workers
// that have seen one must be restarted before they follow a leader that takes its
// epochs from an election. The reverse is true as well, because a worker refuses an epoch
// that is not [Term.Credible]: far above the highest that it has seen. It must be at most
// [MaxEpoch].
func WithEpoch(e uint64) Option {
	return checked(func(c *config) { c.Epoch = e }, e <= MaxEpoch, "WithEpoch(%d): must be at most 2⁶²", e)
}

// RaiseEpoch gives the terms that begin from now on the epoch e, if it is higher than
// theirs. It must be a valid epoch for [WithEpoch]. A leader raises its epoch when a
// worker has seen a term of the present one that the leader has not begun: someone has
// made it up, and the worker would refuse the leader as [ErrStale].
func (o *Orchestrator[W, T]) RaiseEpoch(e uint64) {
	for {
		if known := o.epoch.Load(); e <= known || o.epoch.CompareAndSwap(known, e) {
			return
		}
	}
}

// WithMaxPause bounds the pauses after failed starts and stops, and after falls ([PauseFallen]).
// The former are counted in terms; without a bound in time they would last for hours under a slow
// ticker. The default is a minute. It must be above 0 and at most 24 h. No pause after falls
// outlasts ten minutes.
func WithMaxPause(d time.Duration) Option {
	return checked(func(c *config) { c.MaxPause = d }, d > 0 && d <= 24*time.Hour, "WithMaxPause(%v): must be above 0 and at most 24h", d)
}

// WithSeed sets the order in which equally suitable workers receive tasks. Set it in
// tests that compare plans. 0 prefers the workers added first. The default is a random
// number drawn by New, so that many small orchestrators over the same workers do not all
// use the workers added first.
func WithSeed(n uint64) Option {
	return set(func(c *config) { c.Seed = n })
}

// WithDryRun makes each term list and plan without writing: its changes have the outcome
// [OutcomeDry]. Its calls carry no term, so they raise no worker's fence. Use it before
// going live, or beside the leader that it will replace. The default is to write.
func WithDryRun() Option {
	return set(func(c *config) { c.DryRun = true })
}

// WithBand sets how far from its level the load of a worker may be without a move, as a
// fraction of the level, if the weights of tasks differ. Within the band nothing moves,
// whatever the weights do; a worker beyond it is brought to half of it. The default is 0.05,
// which is 5 %; it must be between 0 and 1.
func WithBand(fraction float64) Option {
	return checked(func(c *config) { c.Band = fraction }, fraction >= 0 && fraction <= 1, "WithBand(%v): must be between 0 and 1", fraction)
}

// WithReportedWeights makes a new leader move nothing for an even spread before one call of
// [Orchestrator.UpdateWeights] has named half of the tasks. Otherwise it would even the
// numbers of tasks, and move them back when it learns the weights. Starts, drains and what
// the rules demand do not wait. By default a leader does not wait for weights.
func WithReportedWeights() Option {
	return set(func(c *config) { c.ReportedWeights = true })
}

type taskConfig struct{ TaskSettings }

type taskOption func(*taskConfig) error

func (f taskOption) applyTask(c *taskConfig) error { return f(c) }

// WithTaskInstances sets how many instances of the task run, each on a different
// worker. The default is 1. 0, like -1, means that the task is not wanted, as after
// [Orchestrator.RemoveTask].
func WithTaskInstances(n int) TaskOption {
	return taskOption(func(c *taskConfig) error {
		if n < -1 || n > math.MaxInt32 {
			return invalid("WithTaskInstances(%d): must be between 1 and %d, or 0 for none, as after RemoveTask", n, math.MaxInt32)
		}
		c.Instances = cmp.Or(n, -1)
		return nil
	})
}

// WithTaskRequires sets the labels that a worker must have to run the task, or must not have if
// a "!" is before them, like [Task].Requires. By default any worker may run it. The limits are
// those of [MaxLabels] and [MaxLabelBytes].
func WithTaskRequires(labels ...string) TaskOption {
	return taskOption(func(c *taskConfig) error {
		c.Requires = slices.Clone(labels)
		return optionError("WithTaskRequires", checkLabels("Requires", labels, true))
	})
}

// WithTaskMaxPerZone sets the most instances of the task in one zone, like
// [Task].MaxPerZone. The default, and 0, is an even spread over the zones.
func WithTaskMaxPerZone(n int) TaskOption {
	return taskOption(func(c *taskConfig) error {
		c.MaxPerZone = n
		return optionError("WithTaskMaxPerZone", TaskSettings{MaxPerZone: n}.Check())
	})
}

// WithTaskWeight sets what one instance of the task takes, like [Task].Weight. The default,
// and 0, is the mean of the weights given.
func WithTaskWeight(weight int64) TaskOption {
	return taskOption(func(c *taskConfig) error {
		c.Weight = weight
		return optionError("WithTaskWeight", checkWeight(weight))
	})
}

type workerConfig struct {
	WorkerSettings

	draining bool
}

type workerOption func(*workerConfig) error

func (f workerOption) applyWorker(c *workerConfig) error { return f(c) }

// WithWorkerDraining adds the worker as draining, like [Worker].Draining. By default a
// worker is open to tasks.
func WithWorkerDraining() WorkerOption {
	return workerOption(func(c *workerConfig) error {
		c.draining = true
		return nil
	})
}

// WithWorkerZone sets the zone of the worker, like [Worker].Zone. The default is the zone
// with the empty name.
func WithWorkerZone(zone string) WorkerOption {
	return workerOption(func(c *workerConfig) error {
		c.Zone = zone
		return optionError("WithWorkerZone", checkText("Zone", zone))
	})
}

// WithWorkerLabels sets the labels of the worker, like [Worker].Labels. By default it has
// none.
func WithWorkerLabels(labels ...string) WorkerOption {
	return workerOption(func(c *workerConfig) error {
		c.Labels = slices.Clone(labels)
		return optionError("WithWorkerLabels", checkLabels("Labels", labels, false))
	})
}

// WithWorkerShare sets the worker's part of the whole relative to the others, like
// [Worker].Share. The default, and 0, is 1.
func WithWorkerShare(share int) WorkerOption {
	return workerOption(func(c *workerConfig) error {
		c.Share = share
		return optionError("WithWorkerShare", WorkerSettings{Share: share}.Check())
	})
}

// WithWorkerMaxTasks sets the most tasks that the worker runs, like [Worker].MaxTasks. The
// default, and 0, is no limit.
func WithWorkerMaxTasks(n int) WorkerOption {
	return workerOption(func(c *workerConfig) error {
		c.MaxTasks = n
		return optionError("WithWorkerMaxTasks", WorkerSettings{MaxTasks: n}.Check())
	})
}

// optionError adds the name of an option to its error, if there is one.
func optionError(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}
