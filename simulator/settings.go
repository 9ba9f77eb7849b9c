package simulator

// Settings that a user can fix. The seed determines the others.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/communicatortest"
)

// Settings fixes values that a run otherwise draws from its seed. The zero value
// leaves everything to the seed.
type Settings struct {
	// Terms is the minimum number of terms before the faults end. 0 means 30.
	Terms int
	// Workers and Tasks are the initial numbers, at most 256 and 1,000. 0 means
	// drawn: 1 to 10 workers and 0 to 40 tasks, or in one run of 150 up to 200 and
	// 300.
	Workers, Tasks int

	// Membership determines how workers become members and cease to be.
	Membership Membership
	// Timeout is the value of orchestrator.WithCommunicatorTimeout, from one second
	// to one hour. It is rounded down to a multiple of about a third of a
	// millisecond. 0 means drawn.
	Timeout time.Duration
	// Grace is the value of orchestrator.WithGracePeriod, for Membership Grace only.
	// 0 means drawn, NoGrace none.
	Grace time.Duration
	// Handoff is the value of orchestrator.WithHandoff; tasks may still have their
	// own. HandoffDefault means drawn.
	Handoff orchestrator.Handoff
	// MaxMoves is the value of orchestrator.WithMaxMoves. 0 means drawn, Unlimited
	// no limit, NoMoves no moves.
	MaxMoves int
	// Concurrency is the value of orchestrator.WithConcurrency. 0 means drawn.
	Concurrency int
	// Rules determines whether workers have zones, labels, shares and limits, and tasks the
	// rules that refer to them.
	Rules Rules

	// Network determines the faults of single calls. Its seed and its latencies are
	// always drawn. Nil means drawn.
	Network *communicatortest.Schedule
	// Without lists the events that do not happen.
	Without []Event

	// Wrap inserts the user's layer between a leader and the simulated network. It
	// receives the Communicator that reaches the workers, and returns the one that
	// the leader calls. It is called once for each leader. If the result is an
	// io.Closer, it is closed at the end of the run, when no leader uses it. Nil
	// adds no layer.
	//
	// The package documentation says what a layer must pass on.
	Wrap func(workers orchestrator.Communicator[string, string]) orchestrator.Communicator[string, string]

	// Transcript receives everything that happened, one event a line, at the end of
	// the run. Nil means no transcript.
	Transcript io.Writer
}

// Values for fields whose zero value means "drawn".
const (
	NoGrace   = time.Duration(-1)
	Unlimited = -1
	NoMoves   = -2
)

// Membership determines how workers become members and cease to be.
type Membership uint8

const (
	// Drawn leaves the choice to the seed.
	Drawn Membership = iota
	// Leases: each worker holds a lease at a coordinator, and stops everything
	// before the lease can have ended. Leaders hold a silent worker's tasks until it
	// is removed (orchestrator.HoldUntilRemoved). Nothing runs twice, except for the
	// causes that the package documentation lists.
	Leases
	// Unfenced is Leases with workers that keep running when their lease has ended.
	Unfenced
	// Grace: workers have no leases, and are declared lost after a grace period.
	Grace
)

// Rules determines whether there are rules of placement.
type Rules uint8

const (
	// RulesDrawn leaves the choice to the seed: four runs in ten have rules.
	RulesDrawn Rules = iota
	// NoRules: all workers and tasks have the zero value of the settings.
	NoRules
	// WithRules: at least one kind of rule is used.
	WithRules
)

// check returns all errors in the settings.
func (s *Settings) check() error {
	var errs []error
	within := func(field string, value, least, most int) {
		if value < least || value > most {
			errs = append(errs, fmt.Errorf("%w: Settings.%s is %d, want %d to %d", orchestrator.ErrInvalid, field, value, least, most))
		}
	}
	within("Terms", s.Terms, 0, 1_000_000)
	within("Workers", s.Workers, 0, maxWorkers)
	within("Tasks", s.Tasks, 0, 1000)
	within("Membership", int(s.Membership), int(Drawn), int(Grace))
	within("Rules", int(s.Rules), int(RulesDrawn), int(WithRules))
	within("MaxMoves", s.MaxMoves, NoMoves, 1_000_000)
	within("Concurrency", s.Concurrency, 0, 1_000_000)
	if s.Timeout != 0 && (s.Timeout < time.Second || s.Timeout > time.Hour) {
		errs = append(errs, fmt.Errorf("%w: Settings.Timeout is %v, want 1s to 1h, or 0", orchestrator.ErrInvalid, s.Timeout))
	}
	if s.Grace < NoGrace || s.Grace > 0 && s.Membership != Grace {
		errs = append(errs, fmt.Errorf("%w: Settings.Grace is %v, want more than 0, and Membership Grace", orchestrator.ErrInvalid, s.Grace))
	}
	if s.Network != nil {
		_, err := communicatortest.Seeded[string, string](*s.Network)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// setup holds the settings and the drawn values of a run.
type setup struct {
	Settings
	seed       uint64
	hold       bool // workers have leases, and leaders hold silent ones until they are removed
	maxMoves   int  // negative: no limit
	maxLoss    float64
	applier    bool          // the workers' side implements Applier
	usesRun    bool          // leaders use Run
	every      time.Duration // the argument of Run
	tick       time.Duration // from one term to the next; 0: one right after the other
	eventEvery time.Duration // from one event to the next, on average
	eventLasts time.Duration // how long an event lasts, on average
	lease      time.Duration
	margin     time.Duration // by which a worker stops before its lease ends
	delay      time.Duration // until a change reaches a leader
	knowsTerms bool          // the coordinator knows the term's number
	weights    [events]float64
	lasting    []Event // the faults that do not end on their own
	network    communicatortest.Schedule
	slowStop   float64 // probability that a task is slow to stop
	slowLoad   float64 // probability that a task is slow to be ready
	overlaps   bool    // tasks may have StartThenStop
	truthful   bool    // no worker returns a false list
	callsPlan  bool    // leaders sometimes call Plan
	maxPause   time.Duration
	shuffle    uint64 // WithSeed
	// initialWait is within what time workers register with a new leader; 0: it knows all of them.
	initialWait time.Duration
	rules       ruleKinds
}

// String describes a setup in one line.
func (s *setup) String() string {
	return fmt.Sprintf("membership %d; timeout %v, grace %v, handoff %v, max moves %d, max loss %v, initial wait %v, concurrency %d, Applier %v, Run %v, a term every %v, rules %+v",
		s.Membership, s.Timeout, s.Grace, s.Handoff, s.maxMoves, s.maxLoss, s.initialWait, s.Concurrency, s.applier, s.usesRun, s.tick, s.rules)
}

// draw returns a setup with every open setting drawn.
func draw(seed uint64, s Settings) setup {
	rnd := newRandom(seed, "setup")
	p := setup{Settings: s, seed: seed}
	p.Terms = cmp.Or(s.Terms, 30)
	p.Workers = cmp.Or(s.Workers, rnd.oneTo(10))
	p.Tasks = cmp.Or(s.Tasks, choose(&rnd, 0, rnd.oneTo(8), rnd.oneTo(20), rnd.oneTo(40), rnd.oneTo(40)))
	p.Concurrency = cmp.Or(s.Concurrency, choose(&rnd, 1, 2, 5, 128, 128, 128, 128))
	p.Timeout = roundDown(cmp.Or(s.Timeout, choose(&rnd, time.Second, 2*time.Second, 10*time.Second)))
	p.Membership = cmp.Or(s.Membership, choose(&rnd, Leases, Leases, Leases, Leases, Unfenced, Grace, Grace, Grace, Grace))
	grace := choose(&rnd, NoGrace, rnd.between(p.Timeout/2, 8*p.Timeout), 3*p.Timeout, rnd.between(0, p.Timeout))
	p.Grace = max(cmp.Or(s.Grace, grace), 0)
	if p.hold = p.Membership != Grace; p.hold {
		p.Grace = orchestrator.HoldUntilRemoved
	}
	p.Handoff = cmp.Or(s.Handoff, choose(&rnd, orchestrator.StopThenStart, orchestrator.StopThenStart, orchestrator.StartThenStop))
	p.overlaps, p.truthful = rnd.chance(0.5), rnd.chance(0.6)
	p.MaxMoves = cmp.Or(s.MaxMoves, choose(&rnd, Unlimited, Unlimited, Unlimited, Unlimited, NoMoves, rnd.oneTo(5)))
	p.maxMoves = max(p.MaxMoves, Unlimited)
	if p.MaxMoves == NoMoves {
		p.maxMoves = 0
	}
	p.maxLoss = choose(&rnd, 0.5, 0.5, 1, 0, 0.3)
	p.applier, p.usesRun = rnd.chance(0.4), rnd.chance(0.3)
	p.drawDurations(&rnd)
	p.drawFaults(&rnd)
	p.drawFleet(&s)
	p.drawLasting()
	p.drawRules()
	rest := newRandom(seed, "peek") // drawn separately, so that other draws stay the same
	p.callsPlan = rest.chance(0.3)
	p.shuffle = rest.next() % 5
	p.maxPause = roundDown(choose(&rest, time.Minute, time.Minute, rest.between(p.Timeout/4, 30*p.Timeout)))
	p.every = max(p.tick, p.Timeout/20)
	if rest = newRandom(seed, "lull"); rest.chance(0.5) { // a term soon begins only after a change
		p.every = rest.between(5*p.Timeout, 15*p.Timeout)
	}
	if rest = newRandom(seed, "initial wait"); rest.chance(0.15) {
		p.initialWait = roundDown(rest.between(p.Timeout/10, 4*p.Timeout))
	}
	return p
}

// drawDurations draws the durations.
func (s *setup) drawDurations(rnd *random) {
	s.tick = choose(rnd, 0, rnd.between(s.Timeout/10, s.Timeout), rnd.between(s.Timeout/2, 3*s.Timeout))
	s.eventEvery = max(s.tick, s.Timeout/8)
	s.eventEvery = rnd.between(s.eventEvery/3, 2*s.eventEvery)
	s.eventLasts = rnd.between(s.eventEvery, 5*s.eventEvery) + s.Timeout/2
	s.margin = roundDown(rnd.between(s.Timeout/4, s.Timeout))
	s.lease = roundDown(s.margin + rnd.between(s.Timeout, 8*s.Timeout))
	s.delay = choose(rnd, 0, s.Timeout/20, s.Timeout)
	s.knowsTerms = rnd.chance(0.5)
}

// drawFaults draws the odds of each fault. Most kinds are left out of most runs, because
// frequent faults hide rare ones.
func (s *setup) drawFaults(rnd *random) {
	for kind := range firstRuleEvent {
		weight := kind.weight() * choose(rnd, 0.0, 0.3, 1, 1, 3)
		if slices.Contains(s.Without, kind) || !kind.possible(s) {
			weight = 0
		}
		s.weights[kind] = weight
	}
	calm := rnd.chance(0.1)
	rate := func(most float64) float64 { return rnd.unit() * most * choose(rnd, 0.0, 0.2, 1) }
	rates := func(most float64) communicatortest.Rates {
		if calm {
			most = 0
		}
		return communicatortest.Rates{
			Refusal: rate(most), Failure: rate(most), FalseFailure: rate(most), LostRequest: rate(most / 2),
			LostAnswer: rate(most / 2), LateAnswer: rate(most / 2), LateRequest: rate(most / 2), Stuck: rate(most / 4),
		}
	}
	drawn := communicatortest.Schedule{
		List: rates(0.05), Add: rates(0.12), Remove: rates(0.12),
		Partition: rate(0.04), OneWay: rate(0.03), Span: uint64(rnd.oneTo(4)),
	}
	s.slowStop, s.slowLoad = rate(0.2), rate(0.1)
	if s.Network != nil {
		drawn = *s.Network
	}
	drawn.Seed = s.seed
	drawn.MinLatency = 100 * time.Microsecond
	drawn.MaxLatency = rnd.between(drawn.MinLatency, s.Timeout/choose(rnd, time.Duration(1000), 100, 20, 4))
	drawn.MinLate, drawn.MaxLate = time.Millisecond, longestLate*s.Timeout
	s.network = drawn
}

// drawLasting draws the lasting faults.
func (s *setup) drawLasting() {
	rnd := newRandom(s.seed, "lasting")
	kinds := []Event{BrokenWorker, HangingWorker, SlowLists, PoisonTask, HangingTask, StuckTask}
	switch {
	case rnd.chance(0.1):
		s.lasting = []Event{Outage}
	case rnd.chance(0.4):
		s.lasting = slices.DeleteFunc(kinds, func(Event) bool { return !rnd.chance(0.35) })
	}
	s.lasting = slices.DeleteFunc(s.lasting, func(kind Event) bool {
		// A slow worker is silent if the grace period is equally short. Calls that
		// hang block all others if there are few slots.
		return slices.Contains(s.Without, kind) || kind == SlowLists && s.Grace < 2*s.Timeout || kind.hangs() && s.Concurrency < 5
	})
}

// drawFleet draws a big fleet in one run of 150, with fewer terms. Half of these fleets
// have few slots for calls.
func (s *setup) drawFleet(fixed *Settings) {
	rnd := newRandom(s.seed, "fleet")
	if fixed.Workers > 0 || fixed.Tasks > 0 || !rnd.chance(1.0/150) {
		return
	}
	s.Workers, s.Tasks, s.Terms = 60+rnd.oneTo(140), 50+rnd.oneTo(250), max(s.Terms/5, 1)
	s.Concurrency = cmp.Or(fixed.Concurrency, s.Workers/choose(&rnd, 1, 1, 1, 3, 5, 8))
}

// Durations of a fault's consequences, in timeouts.
const (
	longestLate = 3 // a late or stuck call
	longestStop = 2 // a task that is slow to stop or to be ready
)
