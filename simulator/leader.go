package simulator

// Leaders: their election, their knowledge, what they have sent and heard, and their end.

import (
	"context"
	"errors"
	"maps"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator"
)

// leader is one period of leadership.
type leader struct {
	w      *world
	number int // counts from 1
	epoch  uint64
	o      *orchestrator.Orchestrator[string, string]
	comm   orchestrator.Communicator[string, string] // the result of Wrap
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the leader has stopped

	elected  time.Time
	delivery time.Time // when the latest change reaches it, or has reached it
	retiring bool      // it is about to stop, or has stopped

	// w.mu guards the fields below.

	deposed time.Time // when its successor was elected; zero: not yet
	cause   error
	stopped bool        // it has stopped for good
	paused  bool        // it has stopped, and its terms are run by hand
	crashed atomic.Bool // its calls reach no worker

	sessions map[string]int // the membership of each worker that it knows
	view     view           // what it expects now
	departed time.Time      // when it last learned that a worker had left, or declared one lost

	listings   []time.Time // when its terms had listed
	isPlanning bool        // a Plan is under way
	predicted  *prediction // what the next term should do

	journal
}

// lane returns the leader's number for its lanes, or 0 for nil.
func (l *leader) lane() int {
	if l == nil {
		return 0
	}
	return l.number
}

// require fails the run if a call that must succeed returns an error.
func (l *leader) require(err error) {
	if err != nil {
		l.w.fail(l, orchestrator.Term{}, Terminated, "the orchestrator refused a valid change: %v", err)
	}
}

// elect makes a new leader with all expectations loaded.
func (w *world) elect() *leader {
	w.epoch += 1 + newRandom(w.seed, "epoch", w.epoch).state%3
	now := time.Now()
	l := &leader{
		w: w, number: len(w.leaders) + 1, epoch: w.epoch, done: make(chan struct{}), elected: now, delivery: now,
		sessions: make(map[string]int), view: view{at: now, tasks: make(map[string]orchestrator.Task[string])},
	}
	l.requests, l.orders, l.contacts = make(map[string][]*call), make(map[orderKey]*order), make(map[string]*contact)
	l.comm = l.bind(w.faulty.Communicator())
	if w.Wrap != nil {
		w.unlocked(func() { l.comm = w.Wrap(l.comm) })
	}
	o, err := orchestrator.New(l.connect(l.comm), append(w.options(), orchestrator.WithEpoch(l.epoch), orchestrator.WithStats(l.checkTerm))...)
	l.require(err) // Settings.check has accepted the options
	l.o = o

	w.number = 0
	w.byEpoch[l.epoch] = l
	if n := len(w.leaders); n > 0 {
		w.leaders[n-1].deposed = time.Now()
	}
	w.leaders = append(w.leaders, l)
	w.report.Leaders++
	w.note(worldLane, "leader %d is elected, epoch %d; members %v", l.number, l.epoch, w.members)
	l.require(o.UpdateTasks(nil))
	rnd := newRandom(w.seed, "registrations", l.epoch)
	for i, name := range w.members {
		c := change{worker: w.workers[name].expectedWorker, joins: true}
		if w.initialWait == 0 {
			l.apply(c)
			continue
		}
		n := time.Duration(len(w.members)) // one after the other, within the wait
		l.delivery = now.Add(rnd.between(w.initialWait*time.Duration(i)/n, w.initialWait*time.Duration(i+1)/n))
		w.schedule.in(time.Until(l.delivery), func() { l.apply(c) })
	}
	for _, name := range w.taskNames() {
		l.apply(change{task: w.tasks[name]})
	}
	return l
}

// options returns the options of every leader.
func (w *world) options() []orchestrator.Option {
	opts := []orchestrator.Option{
		orchestrator.WithCommunicatorTimeout(w.Timeout),
		orchestrator.WithGracePeriod(w.Grace),
		orchestrator.WithHandoff(w.Handoff),
		orchestrator.WithConcurrency(w.Concurrency),
		orchestrator.WithMaxLoss(w.maxLoss),
		orchestrator.WithSettle(settle),
		orchestrator.WithMaxPause(w.maxPause),
		orchestrator.WithSeed(w.shuffle),
		orchestrator.WithInitialWait(w.initialWait),
	}
	if w.maxMoves >= 0 {
		opts = append(opts, orchestrator.WithMaxMoves(w.maxMoves))
	}
	return opts
}

// settle is the value of WithSettle. It is off the world's lane, so that no term
// begins at the instant of a change.
const settle = 100*period + time.Duration(loopLanes)

// lead makes a leader run terms in its own goroutine.
func (w *world) lead(l *leader) {
	ctx, cancel := context.WithCancelCause(context.Background())
	l.cancel = cancel
	go func() {
		defer close(l.done)
		defer l.recoverPanic()
		if w.usesRun {
			l.runTicker(ctx)
		} else {
			l.runLoop(ctx)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		l.stopped = !l.paused
		w.note(loopLane(l.number), "leader %d stops", l.number)
	}()
}

// recoverPanic turns a panic of the leader into a violation, which names the seed. It must
// be deferred.
func (l *leader) recoverPanic() {
	if v := recover(); v != nil {
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		l.stopped = true
		l.w.fail(l, orchestrator.Term{Epoch: l.epoch, Number: l.term}, Terminated, "panic: %v\n%s", v, debug.Stack())
	}
}

// runTicker makes a leader use Run, and checks the result of Run.
func (l *leader) runTicker(ctx context.Context) {
	<-time.After(loopLane(l.number).after(0))
	err := l.o.Run(ctx, roundDown(l.w.every))
	if want := context.Cause(ctx); want != nil && !errors.Is(err, want) || want == nil && !errors.Is(err, orchestrator.ErrDeposed) {
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		l.w.fail(l, orchestrator.Term{}, Terminated, "Run returned %v, and its context ended with %v", err, want)
	}
}

// runLoop runs one term after another.
func (l *leader) runLoop(ctx context.Context) {
	l.dryRun(ctx)
	for {
		timer := time.NewTimer(loopLane(l.number).after(l.w.tick + time.Millisecond))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		l.predict()
		err := l.o.NextTerm(ctx)
		if ctx.Err() != nil || errors.Is(err, orchestrator.ErrDeposed) {
			return
		}
	}
}

// end stops a leader for good, with the cause given, or pauses its own terms.
func (l *leader) end(cause error) {
	if l.paused = l.paused || errors.Is(cause, errPaused); !l.paused {
		l.retiring = true
	}
	if l.cause == nil {
		l.cause = cause
	}
	l.cancel(cause)
}

var errPaused = errors.New("from now on the simulator runs the terms")

// view is what a leader expects, from a moment on.
type view struct {
	at      time.Time
	workers []expectedWorker
	tasks   map[string]orchestrator.Task[string]
}

// worker returns a worker's membership, or nil if it is not a member.
func (v *view) worker(name string) *expectedWorker {
	for i := range v.workers {
		if v.workers[i].name == name {
			return &v.workers[i]
		}
	}
	return nil
}

// expectedWorker is a worker's membership as a leader knows it.
type expectedWorker struct {
	name     string
	session  int // counts the memberships of the worker
	draining bool
	settings orchestrator.WorkerSettings
}

// change is a change of what leaders expect: of a worker if it has a name, or else of a task.
type change struct {
	worker expectedWorker
	task   orchestrator.Task[string]
	joins  bool // the worker is new
	gone   bool // the worker is no longer a member, or the task no longer expected
}

// publish sends a change to all leaders. The changes reach a leader after a delay, in order.
func (w *world) publish(c change) {
	for _, l := range w.leaders {
		if l.retiring {
			continue
		}
		rnd := newRandom(w.seed, "lag", uint64(l.number), uint64(time.Since(w.began)))
		at := time.Now().Add(rnd.between(0, w.delay))
		if at.Before(l.delivery) {
			at = l.delivery
		}
		l.delivery = at
		w.schedule.in(time.Until(at), func() { l.apply(c) })
	}
}

// publishWorker tells the leaders what a member is from now on.
func (w *world) publishWorker(m *member, joins bool) {
	w.publish(change{worker: m.expectedWorker, joins: joins})
}

// apply records a change and passes it on to the orchestrator.
func (l *leader) apply(c change) {
	w := l.w
	if l.stopped {
		return
	}
	v := view{at: time.Now(), workers: slices.Clone(l.view.workers), tasks: maps.Clone(l.view.tasks)}
	w.note(worldLane, "leader %d learns: %+v", l.number, c)
	switch p, name := v.worker(c.worker.name), c.worker.name; {
	case name == "" && c.gone:
		delete(v.tasks, c.task.Name)
		l.o.RemoveTask(c.task.Name)
	case name == "":
		v.tasks[c.task.Name] = c.task
		l.require(l.o.AddTask(c.task.Name, orchestrator.WithTaskSettings(c.task.Settings())))
	case p == nil && !c.joins:
		return // it has left
	case c.gone:
		w.forget(name, "", UnfencedLost)
		v.workers = slices.DeleteFunc(v.workers, func(p expectedWorker) bool { return p.name == name })
		l.departed = v.at
		l.o.RemoveWorker(name)
	case p == nil:
		v.workers = append(v.workers, c.worker)
		l.sessions[name] = c.worker.session
		l.defineWorker(&c.worker)
	default:
		*p = c.worker
		l.defineWorker(p)
	}
	l.view = v
}

// defineWorker passes the settings of a worker on to the orchestrator.
func (l *leader) defineWorker(p *expectedWorker) {
	l.require(l.o.AddWorker(p.name, orchestrator.WithWorkerSettings(p.settings)))
	drain := l.o.UndrainWorker
	if p.draining {
		drain = l.o.DrainWorker
	}
	l.require(drain(p.name))
}

// call is a call as its leader sees it. Each write of an Apply is a separate call.
type call struct {
	term     orchestrator.Term
	op       orchestrator.Op
	worker   string
	task     string // of a write
	session  int    // the membership that it is meant for
	sent     time.Time
	deadline time.Time // when its term stops waiting for it
	returned time.Time // zero: not yet
	tasks    []string  // the answer to a List
	err      error
}

// answered reports whether the call had returned by then, and before its deadline.
func (c *call) answered(by time.Time) bool {
	return !c.returned.IsZero() && !c.returned.After(by) && !c.returned.After(c.deadline)
}

// refused reports whether the call has certainly had no effect. If its error has several
// meanings, the first in the order of the contract counts.
func (c *call) refused() bool {
	return c.answered(c.deadline) && (errors.Is(c.err, orchestrator.ErrStale) || errors.Is(c.err, orchestrator.ErrRejected) &&
		!errors.Is(c.err, orchestrator.ErrStopping) && !errors.Is(c.err, orchestrator.ErrDeposed))
}

// orderKey is a start of a task on a worker in one of a leader's terms.
type orderKey struct {
	term         uint64
	task, worker string
}

// order is a start that a leader has sent.
type order struct {
	leader *leader
	orderKey
	view view // what the term expects
	sent time.Time
	// change is the change that the start belongs to, once the term has ended. back: the
	// start gives back a task that a move has stopped.
	change *orchestrator.Change[string, string]
	back   bool
}

// at returns the term that ordered the start.
func (o *order) at() orchestrator.Term {
	return orchestrator.Term{Epoch: o.leader.epoch, Number: o.term}
}

// isMove reports whether the start is a part of a move.
func (o *order) isMove() bool {
	return o != nil && o.change != nil && o.change.Kind.Op == orchestrator.Move
}

// contact is what a leader has heard of a worker in one membership.
type contact struct {
	session  int
	since    time.Time // its last answer, or the beginning of the first term that knew it
	asked    time.Time // when the call of that answer was sent
	tasks    []string  // that answer
	answered uint64    // the last term that could use an answer
	inTime   bool      // it answered a call of that term
	lost     bool      // it was declared lost, and has not answered since
}

// journal is what a leader has sent and heard.
type journal struct {
	requests map[string][]*call // the calls under way, by worker
	calls    []*call            // of the term under way, and earlier ones that it may use
	orders   map[orderKey]*order
	contacts map[string]*contact
	term     uint64 // the latest term that has called a worker
	expected view   // what that term expects

	first     time.Time // when its first term began
	reviewed  uint64    // the latest term that has ended
	wasWhole  bool      // it has made a plan
	massSince time.Time // when the present mass loss began
}

// hear updates what the leader has heard by the end of a term's listing.
func (r *review) hear() {
	l, now := r.l, r.stats.Term.Number
	for _, p := range r.view.workers {
		if c := l.contacts[p.name]; c == nil || c.session != p.session {
			l.contacts[p.name] = &contact{session: p.session, since: r.began}
		}
	}
	for _, c := range l.calls {
		if known := l.contacts[c.worker]; c.op == orchestrator.OpList && c.err == nil && r.knows(c) &&
			known != nil && known.session == c.session && !c.sent.Before(known.asked) {
			again := c.sent.Equal(known.asked) // it is not back from a loss
			*known = contact{c.session, c.returned, c.sent, c.tasks, now, c.term.Number == now, known.lost && again}
		}
	}
}

// knows reports whether the term could use what a List call returned: a call of an earlier term
// must have returned before the term began.
func (r *review) knows(c *call) bool {
	by := r.began
	if c.term.Number == r.stats.Term.Number {
		by = r.listed
	}
	return !c.returned.IsZero() && !c.returned.After(by)
}
