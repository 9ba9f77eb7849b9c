package simulator

// What a user can fix, and what is drawn where he does not.

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/communicatortest"
)

// Settings fix what a run is otherwise free to draw from its seed. The zero
// value leaves everything to the seed.
type Settings struct {
	// Terms is how many terms there are before the faults stop, at least. 0
	// means 30.
	Terms int
	// Workers and Tasks are how many there are at the beginning, at most 256 and
	// 1,000. 0 means drawn: 1 to 10, and 0 to 40; now and then hundreds of both.
	Workers, Tasks int

	// Membership is how workers come to be members, and cease to be.
	Membership Membership
	// Timeout is that of orchestrator.WithCommunicatorTimeout: 0 means drawn;
	// at least a second, and rounded to a few microseconds.
	Timeout time.Duration
	// Grace is that of orchestrator.WithGracePeriod where Membership is Grace:
	// 0 means drawn, NoGrace none.
	Grace time.Duration
	// Handoff is that of orchestrator.WithHandoff; tasks may still have their
	// own. HandoffDefault means drawn.
	Handoff orchestrator.Handoff
	// MaxMoves is that of orchestrator.WithMaxMoves: 0 means drawn, Unlimited
	// without limit, NoMoves none.
	MaxMoves int
	// Concurrency is that of orchestrator.WithConcurrency; 0 means drawn.
	Concurrency int

	// Network says what happens to single calls. Its seed and its latencies are
	// drawn all the same. Nil means drawn.
	Network *communicatortest.Schedule
	// Without lists the troubles that do not happen.
	Without []Trouble

	// Wrap puts a layer of the user's between a leader and the simulated
	// network: it gets what stands for the workers, and returns what the leader
	// gets. It is called once for each leader. Where the result is an io.Closer
	// it is closed at the end of the run, when no leader uses it. Nil
	// adds nothing.
	//
	// What a layer is to hand on is in the documentation of the package.
	Wrap func(workers orchestrator.Communicator[string, string]) orchestrator.Communicator[string, string]

	// Transcript gets everything that happened, a line each, when the run is
	// over. Nil means none.
	Transcript io.Writer

	// census counts the goroutines of all leaders, if it is not nil.
	census func() int
}

// The values of settings that would otherwise mean "drawn".
const (
	NoGrace   = time.Duration(-1)
	Unlimited = -1
	NoMoves   = -2
)

// Membership is how workers come to be members, and cease to be.
type Membership uint8

const (
	// Drawn leaves it to the seed.
	Drawn Membership = iota
	// Leases: workers have a lease each at a coordinator, and stop everything
	// before it can have ended. Leaders hold what is silent until it is removed,
	// as orchestrator.HoldUntilRemoved says. Here nothing runs twice, but for
	// the causes that the documentation of the package names.
	Leases
	// Unfenced is Leases with workers that go on when their lease has ended.
	Unfenced
	// Grace: no worker has a lease, and workers are lost after a grace period.
	Grace
)

// String returns the name of the constant.
func (m Membership) String() string {
	names := []string{"Drawn", "Leases", "Unfenced", "Grace"}
	if int(m) < len(names) {
		return names[m]
	}
	return fmt.Sprintf("Membership(%d)", uint8(m))
}

// check returns everything that is wrong with the settings.
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

// setup is what a run goes by: the settings, and what was drawn.
type setup struct {
	Settings
	seed     uint64
	terms    int
	hold     bool // HoldUntilRemoved
	maxMoves int  // negative: no limit
	maxLoss  float64
	batch    bool          // the workers' side is an Applier
	run      bool          // leaders use Run
	every    time.Duration // what Run is given
	tick     time.Duration // from one term to the next; 0: one after the other
	pace     time.Duration // from one trouble to the next, on average
	span     time.Duration // how long a trouble lasts, on average
	lease    time.Duration
	margin   time.Duration // by which a worker stops before its lease ends
	lag      time.Duration // until a leader hears of a change
	knowing  bool          // the coordinator knows the term's number
	odds     [troubles]float64
	lasting  []Trouble     // those that do not end by themselves
	slow     time.Duration // how long every List of a slow fleet takes; 0: it is none
	network  communicatortest.Schedule
	slowStop float64 // how often a task takes its time to stop
	slowLoad float64 // how often one takes its time to be ready
	overlaps bool    // tasks may have StartThenStop
	honest   bool    // nobody lies
	plans    bool    // leaders call Plan now and then
	maxPause time.Duration
	order    uint64 // WithSeed
}

// String describes a setup in a line.
func (p *setup) String() string {
	return fmt.Sprintf("%v; timeout %v, grace %v, handoff %v, max moves %d, max loss %v, concurrency %d, Applier %v, Run %v, a term every %v",
		p.Membership, p.Timeout, p.Grace, p.Handoff, p.maxMoves, p.maxLoss, p.Concurrency, p.batch, p.run, p.tick)
}

// draw fills in what the settings leave open.
func draw(seed uint64, s Settings) setup {
	d := throw(seed, "setup")
	p := setup{Settings: s, seed: seed, terms: s.Terms}
	if p.terms == 0 {
		p.terms = 30
	}
	fill(&p.Workers, d.oneTo(10))
	fill(&p.Tasks, among(&d, 0, d.oneTo(8), d.oneTo(20), d.oneTo(40), d.oneTo(40)))
	fill(&p.Concurrency, among(&d, 1, 2, 5, 128, 128, 128, 128))
	p.Timeout = whole(orDrawn(s.Timeout, among(&d, time.Second, 2*time.Second, 10*time.Second)))
	membership := among(&d, Leases, Leases, Leases, Leases, Unfenced, Grace, Grace, Grace, Grace)
	if p.Membership == Drawn {
		p.Membership = membership
	}
	p.hold = p.Membership != Grace
	grace := among(&d, NoGrace, d.between(p.Timeout/2, 8*p.Timeout), 3*p.Timeout, d.between(0, p.Timeout))
	p.Grace = max(orDrawn(s.Grace, grace), 0)
	if p.hold {
		p.Grace = orchestrator.HoldUntilRemoved
	}
	handoff := among(&d, orchestrator.StopThenStart, orchestrator.StopThenStart, orchestrator.StartThenStop)
	if p.Handoff == orchestrator.HandoffDefault {
		p.Handoff = handoff
	}
	p.overlaps, p.honest = d.chance(0.5), d.chance(0.6)
	fill(&p.MaxMoves, among(&d, Unlimited, Unlimited, Unlimited, Unlimited, NoMoves, d.oneTo(5)))
	p.maxMoves = max(p.MaxMoves, Unlimited)
	if p.MaxMoves == NoMoves {
		p.maxMoves = 0
	}
	p.maxLoss = among(&d, 0.5, 0.5, 1, 0, 0.3)
	p.batch, p.run = d.chance(0.4), d.chance(0.3)
	p.time(&d)
	p.faults(&d)
	p.grow(&s)
	p.endless()
	rest := throw(seed, "peek") // on its own: it changes nothing in runs without
	p.plans = rest.chance(0.3)
	p.order = rest.next() % 5
	p.maxPause = whole(among(&rest, time.Minute, time.Minute, rest.between(p.Timeout/4, 30*p.Timeout)))
	p.every = max(p.tick, p.Timeout/20)
	if rest = throw(seed, "lull"); rest.chance(0.5) { // only changes lead to a term soon
		p.every = rest.between(5*p.Timeout, 15*p.Timeout)
	}
	return p
}

func fill(field *int, value int) {
	if *field == 0 {
		*field = value
	}
}

func orDrawn(fixed, drawn time.Duration) time.Duration {
	if fixed != 0 {
		return fixed
	}
	return drawn
}

// time draws how fast everything goes.
func (p *setup) time(d *dice) {
	p.tick = among(d, 0, d.between(p.Timeout/10, p.Timeout), d.between(p.Timeout/2, 3*p.Timeout))
	p.pace = max(p.tick, p.Timeout/8)
	p.pace = d.between(p.pace/3, 2*p.pace)
	p.span = d.between(p.pace, 5*p.pace) + p.Timeout/2
	p.margin = whole(d.between(p.Timeout/4, p.Timeout))
	p.lease = whole(p.margin + d.between(p.Timeout, 8*p.Timeout))
	p.lag = among(d, 0, p.Timeout/20, p.Timeout)
	p.knowing = d.chance(0.5)
}

// faults draws what goes wrong how often. Most kinds are left out of most
// runs: what happens all the time hides what happens rarely.
func (p *setup) faults(d *dice) {
	for i := range p.odds {
		kind := Trouble(i)
		weight := kind.weight() * among(d, 0.0, 0.3, 1, 1, 3)
		if slices.Contains(p.Without, kind) || !kind.possible(p) {
			weight = 0
		}
		p.odds[i] = weight
	}
	calm := d.chance(0.1)
	rate := func(most float64) float64 { return d.unit() * most * among(d, 0.0, 0.2, 1) }
	rates := func(most float64) communicatortest.Rates {
		if calm {
			most = 0
		}
		return communicatortest.Rates{
			Refusal: rate(most), Failure: rate(most), FalseFailure: rate(most), LostRequest: rate(most / 2),
			LostAnswer: rate(most / 2), LateAnswer: rate(most / 2), LateLanding: rate(most / 2), Stuck: rate(most / 4),
		}
	}
	drawn := communicatortest.Schedule{
		List: rates(0.05), Add: rates(0.12), Remove: rates(0.12),
		Partition: rate(0.04), OneWay: rate(0.03), Span: uint64(d.oneTo(4)),
	}
	p.slowStop, p.slowLoad = rate(0.2), rate(0.1)
	if p.Network != nil {
		drawn = *p.Network
	}
	drawn.Seed = p.seed
	drawn.MinLatency = 100 * time.Microsecond
	drawn.MaxLatency = d.between(drawn.MinLatency, p.Timeout/among(d, time.Duration(1000), 100, 20, 4))
	drawn.MinLate, drawn.MaxLate = time.Millisecond, longestLate*p.Timeout
	p.network = drawn
}

// endless draws which faults do not end by themselves.
func (p *setup) endless() {
	d := throw(p.seed, "lasting")
	kinds := []Trouble{BrokenWorker, HangingWorker, SlowLists, PoisonTask, HangingTask, StuckTask}
	switch {
	case p.slow > 0:
		p.lasting = []Trouble{SlowLists}
	case d.chance(0.1):
		p.lasting = []Trouble{Outage}
	case d.chance(0.4):
		p.lasting = slices.DeleteFunc(kinds, func(Trouble) bool { return !d.chance(0.35) })
	}
	p.lasting = slices.DeleteFunc(p.lasting, func(kind Trouble) bool {
		// A worker that is slow is silent if the grace period is as short, and calls
		// that hang are in the way of all others if there are few slots.
		hangs := kind == HangingWorker || kind == HangingTask || kind == StuckTask
		return slices.Contains(p.Without, kind) || kind == SlowLists && p.Grace < 2*p.Timeout || hangs && p.Concurrency < 5
	})
}

// grow rarely draws a big fleet, with fewer terms, and half of these with few slots
// for calls of List that take long, so that no term can ask all workers.
func (p *setup) grow(s *Settings) {
	d := throw(p.seed, "fleet")
	if s.Workers > 0 || s.Tasks > 0 || !d.chance(1.0/150) {
		return
	}
	p.Workers, p.Tasks, p.terms = 60+d.oneTo(140), 50+d.oneTo(250), max(p.terms/5, 1)
	if p.Concurrency = p.Workers; s.Concurrency > 0 {
		p.Concurrency = s.Concurrency
	} else if d.chance(0.5) && (p.hold || p.Grace >= 2*p.Timeout) {
		p.slow = d.between(p.Timeout/10, p.Timeout/4)
		p.Concurrency = p.Workers / among(&d, 3, 5, 8)
	}
}

// How long the consequences of a fault last, in timeouts.
const (
	longestLate = 3 // a call that is late or stuck
	longestStop = 2 // a task that takes its time to stop, or to be ready
)
