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

	heard   time.Time // when the latest change reaches it, or has reached it
	deposed time.Time // when its successor was elected; zero: not yet
	retired bool      // it is about to stop, or has stopped

	// w.mu guards the fields below.

	ended    time.Time // when its context ended
	cause    error
	gone     bool // it has stopped for good
	paused   bool // it has stopped, and its terms are run by hand
	crashed  bool // its calls reach no worker
	isolated bool // its calls reach no worker, for a while
	serial   uint64
	sessions map[string]int // the membership of each worker that it knows
	views    []view
	flights  map[string]*flight
	calls    []*call
	under    uint64 // the latest term that has called a worker
	since    time.Time
	seen     view // what that term expects
	reviewed uint64
	belief   belief
	hidden   map[writeKey]spans   // what workers have left out of List
	invented map[writeKey]bool    // what workers have added to List
	lost     map[string]spans     // workers declared lost
	orphans  map[string]bool      // tasks that lost or removed workers may have run
	bereft   map[string]time.Time // by task, when it last learned that a worker had left that may have run the task
	starts   map[startKey]start
	pauses   map[pauseKey]pause  // of the last plan, except those that have ended since
	named    map[pauseKey]uint64 // all pauses of the last plan, with the term in which each ends
	stranded failure             // the last task that could not be given back; zero if a start has succeeded since
	planning bool                // a Plan is under way
	foreseen *foresight          // what the next term should do
	latest   span                // the latest term, from its beginning to its end
}

// start is the intent of a leader when it started a task on a worker.
type start struct {
	want  int // instances
	moved int // if it moves one of these, how many copies there were before
	from  string
	first bool // the start comes before the stop
	// asked is when the List call that the plan is based on was sent to from. sent
	// is when the start was sent.
	asked, sent time.Time
	bereft      time.Time // see leader.bereft; not for moves
}

// lane returns the leader's number for its lanes, or 0 for nil.
func (l *leader) lane() int {
	if l == nil {
		return 0
	}
	return l.number
}

// must fails the run if a call that must succeed returns an error.
func (l *leader) must(err error) {
	if err != nil {
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		l.w.fail(l, orchestrator.Term{}, Ended, "the orchestrator refused a valid change: %v", err)
	}
}

// elect makes a new leader with all expectations loaded.
func (w *world) elect() *leader {
	w.mu.Lock()
	w.epoch += 1 + throw(w.seed, "epoch", w.epoch).state%3
	w.mu.Unlock()
	l := &leader{
		w: w, number: len(w.leaders) + 1, epoch: w.epoch,
		done:  make(chan struct{}),
		heard: time.Now(), flights: make(map[string]*flight),
		hidden: make(map[writeKey]spans), invented: make(map[writeKey]bool), lost: make(map[string]spans),
		orphans: make(map[string]bool), bereft: make(map[string]time.Time),
		starts: make(map[startKey]start), sessions: make(map[string]int),
	}
	l.belief.workers = make(map[string]*workerBelief)
	l.comm = newBound(l, w.faulty.Communicator())
	if w.Wrap != nil {
		l.comm = w.Wrap(l.comm)
	}
	o, err := orchestrator.New(newNear(l, l.comm), append(w.options(), orchestrator.WithEpoch(l.epoch), orchestrator.WithStats(l.review))...)
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.fail(l, orchestrator.Term{}, Ended, "New refused valid options: %v", err)
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
		v.workers = append(v.workers, place{name, l.serial, draining})
		workers = append(workers, orchestrator.Worker[string]{Name: name})
	}
	l.views = []view{v}
	w.note(worldLane, "leader %d is elected, epoch %d; members %v", l.number, l.epoch, w.members)
	w.mu.Unlock()

	l.must(o.UpdateWorkers(workers))
	for _, p := range v.workers {
		if p.draining {
			l.must(o.DrainWorker(p.name))
		}
	}
	var tasks []orchestrator.Task[string]
	for _, name := range slices.Sorted(maps.Keys(v.tasks)) {
		tasks = append(tasks, v.tasks[name])
	}
	l.must(o.UpdateTasks(tasks))
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
		orchestrator.WithSeed(w.order),
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
		defer l.caught()
		if w.run {
			l.runs(ctx)
		} else {
			l.loop(ctx)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		l.gone = !l.paused
		if ctx.Err() == nil && l == w.leader() {
			w.fail(l, orchestrator.Term{}, Deposed, "a worker reported a higher epoch than %d, and there is none", l.epoch)
		}
		w.judgeOverlaps()
		w.note(loopLane(l.number), "leader %d stops", l.number)
	}()
}

// caught turns a panic of the leader into a violation, which names the seed. It must
// be deferred.
func (l *leader) caught() {
	v := recover()
	if v == nil {
		return
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.gone = true
	l.w.fail(l, orchestrator.Term{Epoch: l.epoch, Number: l.under}, Ended, "panic: %v\n%s", v, debug.Stack())
}

// loop runs one term after another.
func (l *leader) loop(ctx context.Context) {
	l.rehearse(ctx)
	for {
		timer := time.NewTimer(loopLane(l.number).after(l.w.tick + time.Millisecond))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		l.foresee()
		err := l.o.NextTerm(ctx)
		if ctx.Err() != nil || errors.Is(err, orchestrator.ErrDeposed) {
			return
		}
	}
}

// end stops a leader for good, with the cause given.
func (l *leader) end(cause error) {
	l.retired = true
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
	workers []place
	tasks   map[string]orchestrator.Task[string]
	// different reports whether the change altered the expectations.
	different bool
}

// place returns a worker's place, or nil if it is not a member.
func (v *view) place(name string) *place {
	for i := range v.workers {
		if v.workers[i].name == name {
			return &v.workers[i]
		}
	}
	return nil
}

// place is a worker's membership as a leader knows it.
type place struct {
	name     string
	serial   uint64
	draining bool
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

// parted returns when a worker that was a member in the last term was removed.
func (l *leader) parted(s *workerBelief) time.Time {
	for _, v := range l.views {
		if p := v.place(s.name); p == nil || p.serial != s.serial {
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
	drains, undrains   bool
	task               orchestrator.Task[string]
	defines, undefines bool
}

// publish sends a change to all leaders. It arrives after the lag, in order.
func (w *world) publish(c change) {
	for _, l := range w.leaders {
		if l.retired {
			continue
		}
		d := throw(w.seed, "lag", uint64(l.number), uint64(time.Since(w.began)))
		at := time.Now().Add(d.between(0, w.lag))
		if at.Before(l.heard) {
			at = l.heard
		}
		l.heard = at
		w.schedule.in(time.Until(at), func() { l.apply(c) })
	}
}

// apply records a change and passes it on to the orchestrator.
func (l *leader) apply(c change) {
	w := l.w
	w.mu.Lock()
	if l.gone {
		w.mu.Unlock()
		return
	}
	v := view{at: time.Now(), different: true}
	if last := l.views[len(l.views)-1]; true {
		v.workers, v.tasks = slices.Clone(last.workers), maps.Clone(last.tasks)
	}
	at := slices.IndexFunc(v.workers, func(p place) bool { return p.name == c.worker })
	switch {
	case c.joins && at < 0:
		l.serial++
		v.workers = append(v.workers, place{name: c.worker, serial: l.serial})
		l.sessions[c.worker] = c.session
	case c.leaves && at >= 0:
		was := v.workers[at]
		v.workers = slices.Delete(v.workers, at, at+1)
		if w.workers[c.worker].alive {
			l.lost[c.worker] = append(l.lost[c.worker], span{since: v.at, serial: was.serial})
		}
	case (c.drains || c.undrains) && at >= 0:
		v.different = v.workers[at].draining != c.drains
		v.workers[at].draining = c.drains
	case c.defines:
		v.different = v.tasks[c.task.Name] != c.task
		v.tasks[c.task.Name] = c.task
	case c.undefines:
		_, v.different = v.tasks[c.task.Name]
		delete(v.tasks, c.task.Name)
	default:
		v.different = false
	}
	l.views = append(l.views, v)
	w.note(worldLane, "leader %d hears: %s", l.number, c)
	w.mu.Unlock()
	l.hear(c)
}

// hear passes a change on to the orchestrator.
func (l *leader) hear(c change) {
	switch {
	case c.joins:
		l.must(l.o.AddWorker(c.worker))
	case c.leaves:
		l.o.RemoveWorker(c.worker)
	case c.drains:
		_ = l.o.DrainWorker(c.worker) // it may have left
	case c.undrains:
		_ = l.o.UndrainWorker(c.worker)
	case c.defines:
		l.must(l.o.AddTask(c.task.Name, orchestrator.WithTaskInstances(c.task.Instances), orchestrator.WithHandoff(c.task.Handoff)))
	case c.undefines:
		l.o.RemoveTask(c.task.Name)
	}
}

// String returns the change in words.
func (c change) String() string {
	switch {
	case c.joins:
		return c.worker + " joins"
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
