package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
)

// loop is the shell around the rules: it makes the calls of one replica, one at a time.
type loop struct {
	r     *Replica
	e     election
	d     *duties
	acts  acts
	lead  *leadership // nil: it does not lead
	leave leaving

	follows  *following // nil: nobody asks, or it leads
	followed *following // the last one that has ended
	reread   time.Time  // when everything was read last with Follow (O8)

	former chan struct{} // closed when the last orchestrator has ended

	life   uint64 // number of the lease
	joined bool   // the first View of this life was read
	tried  bool   // a Sync of this life may have been stored
	server string // in which the lease was acknowledged last
	record Member // as published last
	since  string // Revision of the last View; empty: everything is to be read

	published  *Report // nil: the table may have another one
	reading    string  // with which published was stored
	storedAt   uint64  // heartbeat of that Sync
	unanswered bool    // the last Sync failed
	counters   Counters
	failing    bool      // a warning has said that the backend fails
	failed     error     // of the last turn
	called     error     // of the last call
	mute       time.Time // since when the leader's Source is seen not to answer

	lastSync, lastRead time.Time
	hurry              time.Time  // until when to read often
	waits              chan error // of the Wait under way; nil: there is none
	hears              bool       // the last Wait has told of a change, or heard of none
	deaf               time.Time  // until when Wait is not used
}

func newLoop(r *Replica) *loop {
	l := &loop{r: r, d: newDuties(r.traits.Piecewise), former: make(chan struct{}), acts: acts{r: r, flying: make(map[start]bool), failed: make(map[start]string)}}
	l.e.self, l.e.observed.seen = r.s.self, make(map[uint64]*sighting)
	l.e.self.ID = r.worker.Incarnation()
	close(l.former)
	l.begin()
	return l
}

// begin begins another life.
func (l *loop) begin() {
	for task := range l.d.accepted {
		l.d.end(task)
	}
	former := l.d.former
	l.d = newDuties(l.r.traits.Piecewise)
	l.d.former = former
	l.life++
	l.joined, l.tried, l.server, l.published, l.record, l.since = false, false, "", nil, Member{}, ""
}

// run runs until stop ends and everything has moved. ctx does not end before.
func (l *loop) run(stop, ctx context.Context) error {
	l.leave.stop = stop.Done()
	for {
		if err := l.rejoin(ctx); err != nil {
			return err
		}
		_, changes := l.r.worker.Changes() // before the report is made
		l.failed = l.turn(ctx, time.Now())
		if errors.Is(l.failed, ErrForeign) || errors.Is(l.failed, ErrInvalid) {
			return l.failed
		}
		l.acts.do(l.d, l.life, l.e.self.ID, l.live(), l.e.head.Epoch)
		if err := l.follow(ctx); err != nil {
			return err
		}
		l.publish()
		l.answer(ctx, time.Now())
		l.closeTasks(ctx)
		if done, err := l.wait(ctx, changes); done {
			return err
		}
	}
}

// turn makes the next call, if one is due.
func (l *loop) turn(ctx context.Context, now time.Time) error {
	if !l.joined {
		if l.acts.isBusy() { // with orders of an earlier life: it would start none of the new ones (A11)
			return nil
		}
		return l.join(ctx)
	}
	switch sync, read := l.due(now); {
	case !now.Before(sync):
		return l.sync(ctx)
	case !now.Before(read):
		_, err := l.read(ctx, l.query(now))
		return err
	}
	return nil
}

// due returns when the next Sync and the next Read are due.
func (l *loop) due(now time.Time) (sync, read time.Time) {
	lease := l.e.self.Lease
	sync, read = l.lastSync.Add(lease/12), l.lastRead.Add(l.readEvery(now))
	if late := l.acts.late; !late.IsZero() && now.Sub(late) >= lease/3 { // A11
		l.r.warn("worker does not take orders, no heartbeat is sent")
		return now.Add(lease), read
	}
	if at, ok := l.e.due(); ok && at.Before(sync) {
		sync = at
	}
	if l.hasNews(now) {
		sync = now
	}
	return sync, read
}

// hasNews reports whether there is something to write before the next heartbeat.
func (l *loop) hasNews(now time.Time) bool {
	return !l.e.synced || l.published == nil || l.reading != l.d.reading || l.e.shouldCampaign(now) ||
		l.e.self.Draining != l.record.Draining || l.r.source.answered(now) != l.record.Answered ||
		l.next(now, false) != nil || !sameReport(l.d.report(l.acts.have()), *l.published)
}

// readEvery returns the time between two reads: short while moves are under way. A call that
// has been under way for more than a second waits for a slow stop.
func (l *loop) readEvery(now time.Time) time.Duration {
	n, most := time.Duration(len(l.e.observed.seen)), l.e.self.Lease/12
	waits, calls := l.hears, l.lead != nil && l.lead.c.calls.Load() > 0
	switch {
	case calls && now.Before(l.hurry):
		return min(max(4*time.Millisecond, n*500*time.Microsecond), 50*time.Millisecond)
	case now.Before(l.hurry) && (!waits || (l.lead != nil || l.follows != nil) && !l.r.traits.ReportsWake):
		return min(max(20*time.Millisecond, n*time.Millisecond), most)
	case waits && l.follows != nil:
		return most
	case waits && !calls:
		return 2 * most
	}
	return min(50*time.Millisecond+n*4*time.Millisecond, most)
}

// query returns what the next View is to show.
func (l *loop) query(now time.Time) Query {
	lease, observed := l.e.self.Lease, &l.e.observed
	q := Query{Self: l.e.self.ID, Server: l.e.head.Server, Follow: l.lead != nil || l.follows != nil, Since: l.since}
	due, ok := l.e.due()
	q.Beats = q.Follow || ok && !due.After(now) || l.e.watches && now.Sub(observed.looked) >= lease/4-lease/24
	switch {
	case l.lead != nil && now.Sub(l.reread) >= time.Minute: // O8
		q.Since, l.reread, l.lead.compared = "", now, 0
	case l.follows != nil && (now.Sub(l.reread) >= followTime || l.follows.missed && now.Sub(l.reread) >= time.Second):
		q.Since, l.reread = "", now
	}
	return q
}

// call makes a call of the backend, which has a quarter of the lease.
func (l *loop) call(ctx context.Context, what string, f func(context.Context) (View, error)) (View, error) {
	patience := l.e.self.Lease / 4
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %v", patience))
	defer cancel()
	v, err := f(ctx)
	if err == nil && ctx.Err() != nil { // it was given up (O1)
		err = context.Cause(ctx)
	}
	if l.called = nil; err != nil {
		l.called = fmt.Errorf("%s: %w", what, err)
		l.failing = l.r.warn("backend failed, call is repeated", "err", l.called) || l.failing
	} else if l.failing {
		l.failing = false
		l.r.log.Info("backend answers again")
	}
	return v, l.called
}

// join makes the first call of a life: a Read that names no Server (A1).
func (l *loop) join(ctx context.Context) error {
	v, err := l.read(ctx, Query{Self: l.e.self.ID, Beats: true})
	if err != nil {
		return err
	}
	if s := l.e.foreign(); s != nil { // it may be dead: watch its heartbeat
		return l.checkService(s)
	}
	for _, m := range v.Members {
		l.e.self.Joined = max(l.e.self.Joined, min(m.Joined, MaxSeen))
	}
	l.e.self.Joined++
	l.joined = true
	return l.sync(ctx)
}

// checkService returns an error if a member of another service lives.
func (l *loop) checkService(s *sighting) error {
	if !s.moved {
		return nil
	}
	return fmt.Errorf("%w: member %s is of service %q, this is %q: give the services tables of different names, or the same WithService",
		ErrForeign, s.member.Name, s.member.Service, l.e.self.Service)
}

// read reads the table.
func (l *loop) read(ctx context.Context, q Query) (View, error) {
	began := time.Now()
	l.lastRead = began
	v, err := l.call(ctx, "read the table", func(ctx context.Context) (View, error) { return l.r.backend.Read(ctx, q) })
	if err == nil {
		l.received(&v, q, began, time.Now())
	}
	return v, err
}

// sync publishes what the replica is and runs, and renews its lease.
func (l *loop) sync(ctx context.Context) error {
	acknowledged := l.r.worker.Sending() // before the report is put together (O2)
	began := time.Now()
	l.lastSync = began
	l.e.self.Answered = l.r.source.answered(began)
	u := l.e.update(began, rand.Uint32())
	u.Query = l.query(began)
	have, expected := l.acts.have(), l.storedAt
	report := l.d.report(have)
	if l.published == nil || l.reading != l.d.reading || !reflect.DeepEqual(report, *l.published) {
		u.Report, u.Reading, expected = &report, l.d.reading, u.Member.Heartbeat
	}
	u.Batch = l.next(began, true)
	v, err := l.call(ctx, "sync", func(ctx context.Context) (View, error) { return l.r.backend.Sync(ctx, u) })
	now := time.Now()
	l.counters.SyncTime += now.Sub(began)
	refused := errors.Is(err, orchestrator.ErrRejected)
	l.unanswered, l.tried = err != nil && !refused, l.tried || !refused
	if u.Report != nil {
		l.published = nil // the table may have it, or not
	}
	if u.Batch != nil {
		l.answered(&u, &v, err, now)
	}
	if err != nil {
		l.counters.FailedSyncs++
		if errors.Is(err, ErrEvicted) || !l.e.synced {
			l.r.worker.EndLease(err)
		}
		return err
	}
	l.counters.Syncs++
	switch {
	case v.Server != u.Server: // it did nothing but read (B7)
		err = errors.New("sync: the table is another one than the last View showed")
	case v.Beats[u.Self] != u.Member.Heartbeat:
		l.published, err = nil, fmt.Errorf("sync: the table shows heartbeat %d of this member, %d was written", v.Beats[u.Self], u.Member.Heartbeat)
	case v.Stored != expected:
		l.published = nil
	default:
		if !l.e.synced {
			l.r.log.Info("has joined", "id", u.Self, "members", len(l.e.observed.seen)+1)
		}
		if l.e.synced, l.e.left, l.record, l.server = true, nil, u.Member, v.Server; u.Report != nil {
			l.published, l.reading, l.storedAt = u.Report, u.Reading, u.Member.Heartbeat
			l.d.forget(u.Report, have)
		}
		if l.leave.closed == nil { // a task that does not stop keeps no lease (A6)
			acknowledged()
		}
	}
	l.received(&v, u.Query, began, now)
	if s := l.e.foreign(); err == nil && s != nil {
		return l.checkService(s)
	}
	return err
}

// received records a View.
func (l *loop) received(v *View, q Query, began, now time.Time) {
	l.lastRead, l.since = began, v.Revision
	if was := l.e.head.Server; v.Server != was {
		if l.published, l.lastSync = nil, (time.Time{}); was != "" {
			l.r.log.Warn("table has lost data or was replaced, no elections for one lease", "server", v.Server)
		} else if !v.Confirmed {
			l.r.log.Info("table is new, no elections for one lease", "server", v.Server)
		}
	}
	l.e.received(v, q.Beats, began, now)
	l.d.read(v, l.e.self.ID)
	if len(v.Orders) > 0 && !v.Full {
		l.hurry = now.Add(time.Second)
	}
	if l.d.incomplete && !v.Full { // orders are missing (O7)
		l.since, l.lastRead = "", time.Time{}
	}
	if l.lead != nil && l.e.deposed() == "" {
		l.lead.c.do(func(d *dispatch) {
			d.observe(v, now)
			l.e.saw(d.above)
		})
	}
	if l.follows != nil && q.Follow {
		l.see(v, now)
	}
}

// live reports whether orders of the last View may start tasks (O1, B7).
func (l *loop) live() bool {
	return l.e.synced && l.e.head.Confirmed && l.e.head.Server == l.server && l.r.worker.LeaseStats().Left > 0
}

// follow leads, stops leading, and runs the Source as the last View asks for.
func (l *loop) follow(ctx context.Context) error {
	now := time.Now()
	l.checkLeadership()
	if l.failed == nil && l.e.elected() && l.r.worker.LeaseStats().Left > 0 {
		if l.failed = l.beginLeading(ctx); errors.Is(l.failed, ErrInvalid) {
			return l.failed
		}
	}
	_, _, tried, bad := l.r.source.state()
	l.r.source.run(ctx, l.e.wantsSource(now) || !tried && l.e.self.Role.leads() && !l.e.self.Draining)
	if l.lead != nil {
		l.updateLeadership(now)
	}
	return bad
}

// errPaused is why a lease is lost though no call has failed.
var errPaused = errors.New("the process stood still")

// rejoin begins another life if the lease is lost (A5).
func (l *loop) rejoin(ctx context.Context) error {
	select {
	case <-l.r.worker.LeaseLost():
	default:
		return nil
	}
	if l.leave.closed != nil {
		return nil
	}
	why := cmp.Or(l.called, errPaused)
	l.stopLeading("the lease is lost")
	l.stopFollowing()
	if l.e.self.Draining {
		l.leave.tasks += len(l.d.accepted) // they have not moved
	}
	if l.e.synced {
		l.r.log.Warn("lease lost, all tasks stop and the replica joins again", "err", why)
	}
	if err := l.r.worker.Rejoin(ctx); err != nil {
		return fmt.Errorf("rejoin: %w", err)
	}
	l.e.rejoin(l.r.worker.Incarnation(), l.tried)
	l.counters.Rejoins++
	l.begin()
	return nil
}

// acts carries out duties on the worker.
type acts struct {
	r *Replica
	// late is since when the worker has not had all that follows from the orders (A11);
	// zero: it has it. A start that waits for code of the user was not begun.
	late time.Time
	// fence is the life, and how often applied, what its orders have reached, has changed.
	fence   orchestrator.Term
	applied uint64

	mu     sync.Mutex       // guards the fields below
	flying map[start]bool   // adds under way
	failed map[start]string // adds that the worker has refused, with why
}

// do hands to the worker what follows from the orders. It returns soon: it waits a few milliseconds
// for stops, so that one report tells of them all.
func (a *acts) do(d *duties, life, id uint64, live bool, epoch uint64) {
	have := a.have()
	a.mu.Lock()
	a.takeFailed(d)
	d.accept(have, epoch, live)
	add, update, remove := d.steps(have)
	mark(&a.late, len(add)+len(remove) > 0, time.Now())
	add = slices.DeleteFunc(add, func(s start) bool { return a.flying[s] })
	for _, s := range add {
		a.flying[s] = true
	}
	a.mu.Unlock()
	if a.fence.Epoch != life || a.applied != d.applied {
		a.fence, a.applied = orchestrator.Term{Epoch: life, Number: a.fence.Number + 1}, d.applied
	}
	a.r.worker.Fence(a.fence)
	ctx := worker.ContextWithIncarnation(orchestrator.ContextWithTerm(context.Background(), a.fence), id)
	for _, s := range update {
		_ = a.r.worker.Update(ctx, s.task, s.grant()) // if it fails, it is still to be done with the next turn
	}
	if len(add)+len(remove) > 0 {
		a.apply(ctx, add, remove)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.takeFailed(d) // before the next report, which the leader takes for its answer
	}
}

// takeFailed passes on the starts that the worker has refused. The caller holds mu.
func (a *acts) takeFailed(d *duties) {
	for s, why := range a.failed {
		d.fail(s, why)
	}
	clear(a.failed)
}

// have returns what the worker has.
func (a *acts) have() present {
	all := a.r.worker.Status()
	have := make(present, len(all))
	for _, s := range all {
		if s.Err != nil && s.State == worker.Running && time.Since(s.Since) >= time.Minute {
			s.Err = nil // its last run failed long ago
		}
		have[s.Task] = s
	}
	return have
}

// isBusy reports whether adds are under way.
func (a *acts) isBusy() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.flying) > 0
}

// grant returns what the worker is given for a start.
func (s start) grant() worker.Grant { return worker.Grant{Version: int64(s.version), Token: s.token} }

// apply hands starts and stops to the worker, each by itself: one may wait for code of the
// user, or for a task that does not stop.
func (a *acts) apply(ctx context.Context, add []start, remove []string) {
	var all sync.WaitGroup
	for _, s := range add {
		all.Go(func() {
			err := a.r.worker.AddWith(ctx, s.task, s.grant())
			a.mu.Lock()
			defer a.mu.Unlock()
			if delete(a.flying, s); errors.Is(err, orchestrator.ErrRejected) && !errors.Is(err, orchestrator.ErrStale) {
				a.failed[s] = err.Error()
			}
			a.r.wake()
		})
	}
	for _, task := range remove {
		all.Go(func() { _ = a.r.worker.Remove(ctx, task) })
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(a.r.patience):
	}
}
