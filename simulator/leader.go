package simulator

// Leaders: their election, their knowledge, and their end.

import (
	"context"
	"errors"
	"io"
	"maps"
	"runtime/debug"
	"slices"
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

	delivery time.Time // when the latest change reaches it, or has reached it
	deposed  time.Time // when its successor was elected; zero: not yet
	retiring bool      // it is about to stop, or has stopped

	// w.mu guards the fields below.

	ended       time.Time // when its context ended
	cause       error
	stopped     bool // it has stopped for good
	paused      bool // it has stopped, and its terms are run by hand
	crashed     bool // its calls reach no worker
	isolated    bool // its calls reach no worker, for a while
	serial      uint64
	sessions    map[string]int // the membership of each worker that it knows
	views       []view
	requests    map[string]*request
	calls       []*call
	term        uint64 // the latest term that has called a worker
	termBegan   time.Time
	expected    view // what that term expects
	reviewed    uint64
	belief      belief
	omitted     map[writeKey]spans   // what workers have left out of List
	added       map[writeKey]bool    // what workers have added to List
	lost        map[string]spans     // workers declared lost
	lostTasks   map[writeKey]bool    // tasks that lost or removed workers may have run
	departures  map[string]time.Time // by task, when it last learned that a worker had left that may have run the task
	intents     map[startKey]intent
	pauses      map[pauseKey]pause  // of the last plan, except those that have ended since
	namedPauses map[pauseKey]uint64 // all pauses of the last plan, with the term in which each ends
	lostInMove  failure             // the last task that could not be given back; zero if a start has succeeded since
	isPlanning  bool                // a Plan is under way
	predicted   *prediction         // what the next term should do
	lastTerm    span                // the latest term, from its beginning to its end

	storm        time.Time // since when labels would evict too much; zero: they do not
	stormChecked time.Time // the latest term that was checked for that
}

// intent is the intent of a leader when it started a task on a worker.
type intent struct {
	want  int // instances
	moved int // if it moves one of these, how many copies there were before
	from  string
	first bool // the start comes before the stop
	// asked is when the List call that the plan is based on was sent to from. sent
	// is when the start was sent.
	asked, sent time.Time
	departed    time.Time // see leader.departures; not for moves
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
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		l.w.fail(l, orchestrator.Term{}, Terminated, "the orchestrator refused a valid change: %v", err)
	}
}

// elect makes a new leader with all expectations loaded.
func (w *world) elect() *leader {
	w.mu.Lock()
	w.epoch += 1 + newRandom(w.seed, "epoch", w.epoch).state%3
	w.mu.Unlock()
	l := &leader{
		w: w, number: len(w.leaders) + 1, epoch: w.epoch,
		done:     make(chan struct{}),
		delivery: time.Now(), requests: make(map[string]*request),
		omitted: make(map[writeKey]spans), added: make(map[writeKey]bool), lost: make(map[string]spans),
		lostTasks: make(map[writeKey]bool), departures: make(map[string]time.Time),
		intents: make(map[startKey]intent), sessions: make(map[string]int),
	}
	l.belief.workers = make(map[string]*workerBelief)
	l.comm = newBound(l, w.faulty.Communicator())
	if w.Wrap != nil {
		l.comm = w.Wrap(l.comm)
	}
	o, err := orchestrator.New(newLeaderNet(l, l.comm), append(w.options(), orchestrator.WithEpoch(l.epoch), orchestrator.WithStats(l.checkTerm))...)
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.fail(l, orchestrator.Term{}, Terminated, "New refused valid options: %v", err)
		return nil
	}
	l.o = o

	w.mu.Lock()
	w.number = 0
	w.byEpoch[l.epoch] = l
	if n := len(w.leaders); n > 0 {
		w.leaders[n-1].deposed = time.Now()
	}
	w.leaders = append(w.leaders, l)
	w.report.Leaders++
	v := view{at: time.Now(), tasks: maps.Clone(w.tasks)}
	var workers []orchestrator.Worker[string]
	for _, name := range w.members {
		l.serial++
		draining := w.workers[name].draining
		l.sessions[name] = w.workers[name].session
		settings := w.workers[name].settings
		v.workers = append(v.workers, expectedWorker{name, l.serial, draining, settings})
		workers = append(workers, orchestrator.NewWorker(name, false, settings))
	}
	l.views = []view{v}
	w.note(worldLane, "leader %d is elected, epoch %d; members %v", l.number, l.epoch, w.members)
	w.mu.Unlock()

	l.require(o.UpdateWorkers(workers))
	for _, p := range v.workers {
		if p.draining {
			l.require(o.DrainWorker(p.name))
		}
	}
	var tasks []orchestrator.Task[string]
	for _, name := range slices.Sorted(maps.Keys(v.tasks)) {
		tasks = append(tasks, v.tasks[name])
	}
	l.require(o.UpdateTasks(tasks))
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
		if ctx.Err() == nil && l == w.leader() {
			w.fail(l, orchestrator.Term{}, Deposed, "a worker reported a higher epoch than %d, and there is none", l.epoch)
		}
		w.explainOverlaps()
		w.note(loopLane(l.number), "leader %d stops", l.number)
	}()
}

// recoverPanic turns a panic of the leader into a violation, which names the seed. It must
// be deferred.
func (l *leader) recoverPanic() {
	v := recover()
	if v == nil {
		return
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.stopped = true
	l.w.fail(l, orchestrator.Term{Epoch: l.epoch, Number: l.term}, Terminated, "panic: %v\n%s", v, debug.Stack())
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

// end stops a leader for good, with the cause given.
func (l *leader) end(cause error) {
	l.retiring = true
	l.stop(cause)
}

// pause stops the leader's own terms.
func (l *leader) pause() {
	l.w.mu.Lock()
	l.paused = true
	l.w.mu.Unlock()
	l.stop(errPaused)
}

// stop ends the leader's context.
func (l *leader) stop(cause error) {
	l.w.mu.Lock()
	if l.cause == nil {
		l.ended, l.cause = time.Now(), cause
	}
	l.w.mu.Unlock()
	l.cancel(cause)
}

var errPaused = errors.New("from now on the simulator runs the terms")

// close closes the layer that Wrap returned.
func (l *leader) close() {
	if closer, ok := l.comm.(io.Closer); ok {
		_ = closer.Close()
	}
}

// view is what a leader expects, from a moment on.
type view struct {
	at      time.Time
	workers []expectedWorker
	tasks   map[string]orchestrator.Task[string]
	changed bool // it differs from the view before
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
	serial   uint64
	draining bool
	settings orchestrator.WorkerSettings
}

// viewAt returns what the leader expected at a moment.
func (l *leader) viewAt(at time.Time) view {
	v := l.views[0]
	for _, other := range l.views {
		if !other.at.After(at) {
			v = other
		}
	}
	return v
}

// removedAt returns when a worker that was a member in the last term was removed.
func (l *leader) removedAt(wb *workerBelief) time.Time {
	for _, v := range l.views {
		if p := v.worker(wb.name); p == nil || p.serial != wb.serial {
			return v.at
		}
	}
	return time.Time{}
}

// change is a change of the expectations.
type change struct {
	worker             string
	session            int // with joins
	joins, leaves      bool
	redefines          bool                        // it registers again
	settings           orchestrator.WorkerSettings // with joins and redefines
	drains, undrains   bool
	task               orchestrator.Task[string]
	defines, undefines bool
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

// apply records a change and passes it on to the orchestrator.
func (l *leader) apply(c change) {
	w := l.w
	w.mu.Lock()
	if l.stopped {
		w.mu.Unlock()
		return
	}
	last := l.views[len(l.views)-1]
	v := view{at: time.Now(), workers: slices.Clone(last.workers), tasks: maps.Clone(last.tasks), changed: true}
	at := slices.IndexFunc(v.workers, func(p expectedWorker) bool { return p.name == c.worker })
	switch {
	case c.joins && at < 0:
		l.serial++
		v.workers = append(v.workers, expectedWorker{name: c.worker, serial: l.serial, settings: c.settings})
		l.sessions[c.worker] = c.session
	case c.leaves && at >= 0:
		was := v.workers[at]
		v.workers = slices.Delete(v.workers, at, at+1)
		if w.workers[c.worker].alive {
			l.lost[c.worker] = append(l.lost[c.worker], span{since: v.at, serial: was.serial})
		}
	case c.redefines && at >= 0:
		v.changed = !v.workers[at].settings.Equal(c.settings)
		v.workers[at].settings = c.settings
	case (c.drains || c.undrains) && at >= 0:
		v.changed = v.workers[at].draining != c.drains
		v.workers[at].draining = c.drains
	case c.defines:
		before, known := v.tasks[c.task.Name]
		v.changed = !known || !before.Settings().Equal(c.task.Settings())
		v.tasks[c.task.Name] = c.task
	case c.undefines:
		_, v.changed = v.tasks[c.task.Name]
		delete(v.tasks, c.task.Name)
	default:
		v.changed = false
	}
	l.views = append(l.views, v)
	w.note(worldLane, "leader %d learns: %s", l.number, c)
	w.mu.Unlock()
	l.forward(c, at >= 0)
}

// forward passes a change on to the orchestrator. known: its worker is a member.
func (l *leader) forward(c change, known bool) {
	switch {
	case c.joins:
		l.require(l.o.AddWorker(c.worker, orchestrator.WithWorkerSettings(c.settings)))
	case c.redefines:
		if known { // otherwise it has left
			l.require(l.o.AddWorker(c.worker, orchestrator.WithWorkerSettings(c.settings)))
		}
	case c.leaves:
		l.o.RemoveWorker(c.worker)
	case c.drains:
		_ = l.o.DrainWorker(c.worker) // it may have left
	case c.undrains:
		_ = l.o.UndrainWorker(c.worker)
	case c.defines:
		l.require(l.o.AddTask(c.task.Name, orchestrator.WithTaskSettings(c.task.Settings())))
	case c.undefines:
		l.o.RemoveTask(c.task.Name)
	}
}

// String returns the change in words.
func (c change) String() string {
	switch {
	case c.joins:
		return c.worker + " joins" + describeSettings(c.settings)
	case c.redefines:
		return c.worker + " registers again" + describeSettings(c.settings)
	case c.leaves:
		return c.worker + " leaves"
	case c.drains:
		return c.worker + " drains"
	case c.undrains:
		return c.worker + " no longer drains"
	case c.defines:
		return describe(c.task)
	}
	return c.task.Name + " is no longer expected"
}
