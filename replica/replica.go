package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/backoff"
	"github.com/f8949c05/orchestrator/internal/loglimit"
	"github.com/f8949c05/orchestrator/worker"
)

// ErrUndrained reports that the replica left before all its tasks had moved. The text has
// their number. They stopped, and the leader starts them elsewhere.
var ErrUndrained = errors.New("left before all tasks had moved")

// Replica is one of several equal processes that share tasks. Its methods are safe for
// concurrent use.
type Replica struct {
	s       *settings
	backend Backend
	source  Source
	worker  *worker.Worker[string]
	network network
	log     *slog.Logger

	started atomic.Bool
	woken   chan struct{} // has an element: the loop should look again
	parts   sync.WaitGroup
	// announcing holds a token from the call of WithLeading's function until its stop returns.
	announcing chan struct{}

	// The loop's own.
	p        protocol
	lead     *leadership      // nil: does not lead
	failing  loglimit.Limiter // of failed Syncs
	retired  bool             // the last Sync failed with ErrRetired
	retreats backoff.Backoff  // before a retired replica joins again
	joined   time.Time

	public published
}

// Run runs a [Replica] until ctx ends. Then the replica's tasks move to others, and Run
// returns nil. It is New and [Replica.Run].
func Run(ctx context.Context, b Backend, tasks Source, work func(ctx context.Context, task string) error, opts ...Option) error {
	r, err := New(b, tasks, work, opts...)
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// New returns a replica that has not begun. b is the table that it shares with the other
// replicas, tasks provides the tasks where the replica leads, and work runs a task until
// its context ends, as described at worker.New.
//
// The error names every invalid option, and wraps orchestrator.ErrInvalid.
func New(b Backend, tasks Source, work func(ctx context.Context, task string) error, opts ...Option) (*Replica, error) {
	s, err := newSettings(opts)
	if b == nil {
		err = errors.Join(err, fmt.Errorf("%w: the backend is nil", orchestrator.ErrInvalid))
	}
	if tasks == nil {
		err = errors.Join(err, fmt.Errorf("%w: the source is nil", orchestrator.ErrInvalid))
	}
	if s.network == nil {
		var netErr error
		s.network, netErr = newNetwork(s)
		err = errors.Join(err, netErr)
	}
	w, workerErr := worker.New(work, s.worker...)
	if err = errors.Join(err, workerErr, orchestrator.CheckOptions(s.orchestrator...)); err != nil {
		return nil, fmt.Errorf("new replica: %w", err)
	}
	r := &Replica{
		s: s, backend: b, source: tasks, worker: w, network: s.network, log: s.log,
		woken: make(chan struct{}, 1), announcing: make(chan struct{}, 1),
		failing: loglimit.Limiter{Every: 10 * time.Second}, retreats: backoff.Backoff{First: 2 * time.Second, Longest: longestRetreat},
	}
	r.public.status.Name = s.name
	return r, nil
}

// Run joins the table, runs the tasks that the leader assigns, and leads when elected,
// until ctx ends. Then it drains: its tasks move, for at most the time of [WithDrain],
// and it leaves the table. Run returns nil, or an error that wraps [ErrUndrained] if
// tasks were stopped before they had moved.
//
// A failure of the backend ends nothing: the replica stops its tasks when its lease ends,
// and joins again as soon as the backend is back. Run returns other errors only if the
// replica cannot be called at its address, if the table is foreign ([ErrForeign]), or if
// the first Syncs fail with orchestrator.ErrInvalid, as those of a backend do that was made
// with invalid arguments.
//
// Run may be called once.
func (r *Replica) Run(ctx context.Context) error {
	if r.started.Swap(true) {
		return fmt.Errorf("run replica: %w: Run was called before", orchestrator.ErrInvalid)
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx)) // longer than ctx: it drains
	address, served, err := r.network.Serve(serving, r.worker)
	if err != nil {
		cancel()
		return fmt.Errorf("run replica: %w", err)
	}
	if onLoopback(address) {
		r.log.Warn("replicas on other machines cannot call this one: for several machines, give WithCredentials or WithPlaintext, or WithListen and WithAdvertise",
			"address", address)
	}
	r.p.self = Member{
		ID: r.worker.Incarnation(), Lease: r.s.lease, Name: r.s.name, Address: address,
		Attributes: r.s.attributes, Settings: r.s.placement, Role: r.s.role,
	}
	if w, ok := r.backend.(Waiter); ok {
		r.parts.Go(func() { r.watch(serving, w) })
	}
	r.public.pause(false)
	err = r.loop(ctx, serving, served)
	r.stopLeading(nil, "the replica ends")
	cancel()
	if late := <-served; late != nil {
		r.log.Warn("the server of the replica's calls failed while it ended", "err", late)
	}
	r.parts.Wait()
	if err != nil {
		return fmt.Errorf("run replica: %w", err)
	}
	return nil
}

// watch wakes the loop when others have changed something, until ctx ends.
func (r *Replica) watch(ctx context.Context, w Waiter) {
	var failing loglimit.Limiter
	retry := backoff.Backoff{First: time.Second, Longest: 30 * time.Second}
	for {
		err := w.Wait(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			retry.Reset()
			r.wake()
			continue
		}
		if omitted, ok := failing.Take(time.Now(), ""); ok {
			r.log.Warn("cannot wait for changes: they are seen with the next heartbeat", "err", err, loglimit.Omitted(omitted))
		}
		retry.Wait(ctx)
	}
}

// wake makes the loop look again at once.
func (r *Replica) wake() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// loop Syncs until the replica has left. ctx outlives stop.
func (r *Replica) loop(stop, ctx context.Context, served <-chan error) error {
	stopped, deadline := stop.Done(), (<-chan time.Time)(nil)
	expired := false
	var closed chan error
	tasks := 0 // that are stopped before they have moved
	for {
		if err := r.rejoinIfFenced(stop, ctx); err != nil {
			return err
		}
		changes := r.changes() // taken before the tasks are counted, so that no change is missed
		asked, err := r.sync(ctx)
		if errors.Is(err, ErrForeign) || r.joined.IsZero() && errors.Is(err, orchestrator.ErrInvalid) {
			return errors.Join(err, r.worker.Close(ctx))
		}
		if errors.Is(err, errUncallable) {
			r.stopLeading(nil, "other replicas cannot call it")
			return errors.Join(err, r.left(ctx, r.worker.Close(ctx), false, 0))
		}
		r.publish(err)
		if closed == nil && r.p.self.Draining {
			if tasks = len(r.worker.Status()); tasks == 0 || expired || r.p.synced && r.p.alone() {
				closed = make(chan error, 1)
				r.parts.Go(func() { closed <- r.worker.Close(ctx); r.wake() })
			}
		}
		last := time.Now()
		timer := time.NewTimer(r.pause(asked, err))
		woken, lost := r.woken, r.worker.LeaseLost()
		if err != nil { // otherwise a backend that fails at once would be called without a pause
			woken, lost = nil, nil
		}
		select {
		case <-stopped:
			stopped = nil
			r.p.self.Draining = true
			r.stopLeading(nil, "the replica drains")
			deadline = time.After(r.s.drain)
			r.log.Info("draining", "tasks", len(r.worker.Status()))
		case <-deadline:
			expired = true
		case err := <-closed:
			timer.Stop()
			return r.left(ctx, err, expired, tasks)
		case err := <-served:
			r.stopLeading(nil, "its server has ended")
			return errors.Join(fmt.Errorf("%w: %w", errUncallable, err), r.left(ctx, r.worker.Close(ctx), false, 0))
		case <-woken:
			backoff.Sleep(ctx, time.Until(last.Add(r.quiet())))
		case <-lost:
		case <-changes:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// changes returns a channel that is closed when the replica drains and its tasks change;
// otherwise nil.
func (r *Replica) changes() <-chan struct{} {
	if !r.p.self.Draining {
		return nil
	}
	_, next := r.worker.Changes()
	return next
}

// sync does one Sync, and what follows from its View.
func (r *Replica) sync(ctx context.Context) (asked Update, err error) {
	h := r.health()
	now := time.Now()
	u := r.p.update(now, r.worker.Seen().Epoch, rand.Uint32(), h)
	patience := r.s.lease / 4
	if !r.p.synced { // there is no lease to lose
		patience = r.s.lease / 2
	}
	calling, cancel := within(ctx, patience)
	defer cancel()
	acknowledged := r.worker.Sending()
	began := time.Now()
	v, err := r.backend.Sync(calling, u)
	now = time.Now()
	if err == nil && !shows(v, u.Self) {
		err = errNotShown
	}
	r.public.count(func(s *Stats) {
		s.SyncTime += now.Sub(began)
		if err == nil {
			s.Syncs++
		} else {
			s.FailedSyncs++
		}
	})
	if err != nil {
		r.failed(ctx, err)
		return u, err
	}
	// A1: the fence comes first, so that no call of an earlier leader is carried out under
	// the lease that this Sync grants.
	r.worker.Fence(orchestrator.Term{Epoch: v.Epoch})
	acknowledged()
	first, server, seen := !r.p.synced, r.p.observed.server, r.p.observed.seen
	r.p.received(v, began, now)
	for id := range u.Evict {
		if _, ok := r.p.observed.seen[id]; !ok {
			r.log.Warn("a replica is dead: its tasks start elsewhere", "name", seen[id].member.Name, "address", seen[id].member.Address)
		}
	}
	if r.failing.Reset() {
		r.log.Info("sync succeeds again")
	}
	if first {
		r.joined = now
		r.log.Info("joined", "id", r.p.self.ID, "address", r.p.self.Address, "members", len(v.Members))
	}
	if !v.Confirmed && v.Server != server {
		level := slog.LevelInfo
		if server != "" {
			level = slog.LevelWarn
		}
		r.log.Log(ctx, level, "the table is new, or may have lost data: for one lease no task starts or moves", "lease", max(v.Lease, r.s.lease))
	}
	r.follow(ctx, now, h, u.Retire)
	return u, r.reachable()
}

// within returns the context of a Sync that may take d.
func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("no answer within %v", d))
}

// shows reports whether a View has a member as it was just published (B1).
func shows(v View, self Member) bool {
	for _, m := range v.Members {
		if m.ID == self.ID {
			return m.Heartbeat == self.Heartbeat
		}
	}
	return false
}

// follow leads, or stops leading, as the last View asks for. retired has the members that
// the last Sync has retired.
func (r *Replica) follow(ctx context.Context, now time.Time, h health, retired []uint64) {
	if r.lead != nil && r.lead.ended() {
		r.stopLeading(nil, "its orchestrator ended: "+fmt.Sprint(r.lead.err))
	}
	if r.lead != nil {
		r.logRetired(retired)
	}
	if reason := r.p.mustStop(); reason != "" {
		r.stopLeading(orchestrator.ErrDeposed, reason)
	}
	if reason := r.p.unfit(now, h); reason != "" {
		r.log.Warn("leads no longer, another replica may do better", "reason", reason)
		r.p.pass(now)
		r.stopLeading(orchestrator.ErrDeposed, reason)
	}
	members := r.p.observed.members()
	if r.lead != nil {
		if err := r.lead.update(members); err != nil {
			r.stopLeading(err, "the members cannot be passed on: "+err.Error())
		}
		return
	}
	if !r.p.elected() || r.worker.LeaseStats().Left <= 0 { // the View may have come late
		return
	}
	l, err := r.newLeadership(r.p.view.Epoch, members)
	r.p.lead(now)
	if err != nil {
		r.p.leads = nil
		r.p.pass(now)
		r.log.Error("elected, but cannot lead: another replica should", "err", err)
		return
	}
	r.lead = l
	r.public.count(func(s *Stats) { s.Elections++ })
	r.log.Info("leads", "epoch", l.epoch, "members", len(members))
	l.begin(ctx, r)
}

// logRetired logs which members were retired, and why.
func (r *Replica) logRetired(retired []uint64) {
	for _, id := range retired {
		if s, ok := r.p.observed.seen[id]; ok && !r.lead.retired[id] {
			r.lead.retired[id] = true
			r.public.count(func(s *Stats) { s.Retirements++ })
			r.log.Warn("a replica cannot be called and is retired: check its address, the firewall and the certificates",
				"name", s.member.Name, "address", s.member.Address, "err", r.lead.calls.failure(id))
		}
	}
}

// stopLeading ends the leadership, if there is one. Calls that are under way may end later.
func (r *Replica) stopLeading(cause error, reason string) {
	r.p.leads = nil
	if r.lead == nil {
		return
	}
	l := r.lead
	r.lead = nil
	l.cancel(cause)
	r.parts.Go(func() { <-l.done; _ = l.calls.others.Close() }) // Close returns nil
	r.log.Info("leads no longer", "epoch", l.epoch, "reason", reason)
}

// health returns what the leadership knows of the Source and of the members.
func (r *Replica) health() health {
	if r.lead == nil {
		return health{}
	}
	return r.lead.calls.health(r.p.observed.members())
}

// longestRetreat bounds the pause before a retired replica joins again.
const longestRetreat = 10 * time.Minute

var (
	errNotShown = errors.New("the backend does not show what was published")
	// errUncallable is wrapped if other replicas certainly cannot call this one.
	errUncallable = errors.New("other replicas cannot call this one")
)

// failed handles the error of a Sync.
func (r *Replica) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if omitted, ok := r.failing.Take(time.Now(), ""); ok {
		r.log.Warn("sync failed, retrying", "err", err, loglimit.Omitted(omitted))
	}
	r.retired = errors.Is(err, ErrRetired)
	if r.retired || !r.p.synced { // A10; A1: the next attempt uses another ID
		r.worker.EndLease(err)
	}
}

// rejoinIfFenced starts over under another ID when the lease is lost. It waits until
// every task has stopped. ctx outlives stop.
func (r *Replica) rejoinIfFenced(stop, ctx context.Context) error {
	select {
	case <-r.worker.LeaseLost():
	default:
		return nil
	}
	r.stopLeading(orchestrator.ErrDeposed, "the lease is lost") // A9
	if r.p.synced {
		r.log.Warn("the lease is lost, the tasks stop")
	}
	if err := r.worker.Rejoin(ctx); err != nil {
		if errors.Is(err, worker.ErrClosed) {
			return nil // it is leaving
		}
		return err
	}
	former := r.p.self.ID
	r.p.rejoin(r.worker.Incarnation())
	if r.retired {
		r.retired = false // a later loss of the lease has another cause
		r.retreat(stop, ctx, former)
	}
	return nil
}

// retreat removes the record of a retired replica, so that no leader waits until it is
// found dead, and pauses, because the fault may last (A10). ctx outlives stop.
func (r *Replica) retreat(stop, ctx context.Context, former uint64) {
	r.log.Warn("no leader can call this replica: check its address, the firewall and the certificates. It pauses before it joins again",
		"address", r.p.self.Address)
	r.public.count(func(s *Stats) { s.Retired++ })
	// The ID is for this Sync only: a late repetition must not remove another record.
	u := Update{Self: r.p.self, Epoch: r.p.view.Epoch}
	u.Self.ID, u.Self.Heartbeat, u.Self.Draining = rand.Uint64()>>2|1, 1, true
	u.Left = []uint64{former, u.Self.ID}
	limited, cancel := within(ctx, r.s.lease/4)
	defer cancel()
	_, _ = r.backend.Sync(limited, u) // otherwise the record is removed when it is found dead
	if time.Since(r.joined) > longestRetreat {
		r.retreats.Reset()
	}
	r.public.pause(true)
	r.retreats.Wait(stop)
	r.public.pause(false)
	// A candidate that others can call may do better. Without this, two that cannot call
	// each other would take turns.
	r.p.pass(time.Now())
}

// left removes the record of a replica whose tasks have all stopped, or reports that they
// have not.
func (r *Replica) left(ctx context.Context, err error, expired bool, tasks int) error {
	if err != nil {
		return err
	}
	u := r.p.update(time.Now(), r.worker.Seen().Epoch, 0, health{})
	u.Campaign, u.Left = 0, append(u.Left, u.Self.ID)
	limited, cancel := within(ctx, r.s.lease/4)
	defer cancel()
	switch _, err := r.backend.Sync(limited, u); {
	case err == nil:
		r.log.Info("left")
	case !r.joined.IsZero():
		r.log.Warn("left, but the record stays until it is found dead", "err", err)
	}
	if expired && tasks > 0 && !r.p.alone() {
		return fmt.Errorf("%w: %d tasks", ErrUndrained, tasks)
	}
	return nil
}

// reachable returns an error if the replica is on loopback, and another one lives that is
// not: neither can call the other. The record of a process that has ended is not enough,
// which only a leader removes.
func (r *Replica) reachable() error {
	if !onLoopback(r.p.self.Address) {
		return nil
	}
	for _, s := range r.p.observed.members() {
		risen := s.since.After(s.first)
		if m := s.member; risen && !s.dead && m.Address != "" && !onLoopback(m.Address) {
			return fmt.Errorf("%w: %w: its address is %s, and %s is at %s: give WithCredentials or WithPlaintext, or WithListen and WithAdvertise",
				orchestrator.ErrInvalid, errUncallable, r.p.self.Address, m.Name, m.Address)
		}
	}
	return nil
}

func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// quiet returns how soon after a Sync a change of the table may cause another one. After
// each change every member Syncs: together they do so at most 500 times a second.
func (r *Replica) quiet() time.Duration {
	return min(r.s.lease/12, time.Duration(len(r.p.view.Members))*2*time.Millisecond)
}

// pause returns how long to wait before the next Sync.
func (r *Replica) pause(asked Update, err error) time.Duration {
	beat := r.s.lease / 12
	if err != nil {
		return min(beat, 500*time.Millisecond)
	}
	now := time.Now()
	if r.p.pending(now, r.health(), asked) {
		return 0
	}
	if at, ok := r.p.observed.next(r.s.lease, r.p.view.Confirmed); ok {
		return min(beat, max(at.Sub(now), time.Millisecond))
	}
	return beat
}
