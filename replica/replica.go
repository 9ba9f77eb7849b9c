package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/loglimit"
	"github.com/f8949c05/orchestrator/worker"
)

var (
	// ErrInvalid reports an option or an argument that is out of range. The text names it.
	// It is orchestrator.ErrInvalid.
	ErrInvalid = orchestrator.ErrInvalid

	// ErrEvicted reports that the table has removed the ID of the caller. A replica then
	// stops its tasks and joins again with another ID.
	ErrEvicted = errors.New("evicted from the table")

	// ErrForeign reports that the table belongs to another service; see [WithService].
	ErrForeign = errors.New("the table belongs to another service")

	// ErrUndrained reports that a replica has left before all of its tasks had moved.
	ErrUndrained = errors.New("left before all tasks had moved")
)

// Replica is one of several equal processes that share tasks. Make it with [New]. Its
// methods may be called from any number of goroutines.
type Replica struct {
	s        *settings
	backend  Backend
	waiter   Waiter // nil: none
	traits   Traits
	patience time.Duration // for stops, before a report
	source   *sourceRunner
	worker   *worker.Worker[string]
	log      *slog.Logger
	limiters sync.Map // of warnings, by text
	woken    chan struct{}
	led      atomic.Uint64 // the epoch that was led last
	killed   chan struct{} // for tests: the process is killed
	parts    sync.WaitGroup

	fleet fleet

	mu     sync.Mutex // guards what the loop last knew
	status Status
	o      *orchestrator.Orchestrator[WorkerID, string] // whose terms are shown; nil: there are none
	all    *communicator                                // of the leader or of who follows; nil: neither
	turn   time.Time                                    // of the loop's last round
}

// Run makes a Replica and runs it until ctx ends. Then its tasks move to other replicas, for at most
// the time of [WithDrain]; see [New] and [Replica.Run].
func Run(ctx context.Context, b Backend, tasks Source, work func(ctx context.Context, task string) error, opts ...Option) error {
	r, err := New(b, tasks, work, opts...)
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// New returns a replica that shares the tasks of the Source with the other replicas of the
// table. It calls work in a separate goroutine for each task that it is to run. work must
// return soon after its ctx has ended. If it returns earlier, also with nil, that is a
// failure, and it is called again.
//
// The error wraps [ErrInvalid] and names every bad argument and option.
func New(b Backend, tasks Source, work func(ctx context.Context, task string) error, opts ...Option) (*Replica, error) {
	r := &Replica{backend: b, woken: make(chan struct{}, 1), killed: make(chan struct{}), fleet: newFleet()}
	if d, ok := b.(Describer); ok {
		r.traits = d.Traits()
	}
	s := newSettings(opts, r.traits)
	s.refuse(b == nil, "the backend is nil")
	s.refuse(tasks == nil, "the source is nil, as Poll returns if every is not above 0 or its function is nil")
	var err error
	if r.worker, err = worker.New(work, s.worker...); err != nil {
		s.problems = append(s.problems, fmt.Errorf("the work function, WithLease or WithWorker: %w", err))
	}
	if len(s.problems) > 0 {
		return nil, errors.Join(s.problems...)
	}
	r.s, r.log, r.patience = s, s.log, 25*time.Millisecond
	if r.waiter, _ = b.(Waiter); r.waiter != nil {
		r.patience = 5 * time.Millisecond
	}
	r.source = &sourceRunner{r: r, source: tasks, lease: s.self.Lease}
	return r, nil
}

// wake makes the loop look again.
func (r *Replica) wake() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// warn logs a warning, at most once a minute for each text, which must be constant. It reports
// whether it did.
func (r *Replica) warn(text string, args ...any) bool {
	value, _ := r.limiters.LoadOrStore(text, new(loglimit.Limiter))
	limiter, _ := value.(*loglimit.Limiter)
	omitted, ok := limiter.Take(time.Now(), "")
	if ok {
		r.log.Warn(text, append(args, loglimit.Omitted(omitted))...)
	}
	return ok
}

// Run joins the table and runs tasks until ctx ends. Then its tasks move to other replicas, for at
// most the time of [WithDrain], those that are left are stopped, and it returns nil. It must be called
// once. Tasks that ignore their context are named in the log when their time is over, and again when
// the process ends for them, with its code ([WithLastResort]).
//
// Errors: one that wraps [ErrUndrained] if tasks were stopped because they had not moved in
// time, [ErrForeign] if the table belongs to another service, or [ErrInvalid] if the Source
// says so. Failures of the backend are retried. If the backend is an io.Closer, Run closes it.
func (r *Replica) Run(ctx context.Context) error {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := newLoop(r)
	r.fleet.run(true)
	err := l.run(ctx, running)
	r.fleet.run(false)
	l.stopLeading("the replica ends")
	l.stopFollowing()
	r.source.run(running, false)
	closeErr := r.worker.Close(running)
	if err != nil && l.leave.closed == nil && closeErr == nil { // it ends for another reason than ctx
		l.remove(running)
	}
	cancel()
	r.parts.Wait()
	if c, ok := r.backend.(io.Closer); ok {
		closeErr = errors.Join(closeErr, c.Close())
	}
	return cmp.Or(err, closeErr)
}

// Status describes a replica, for people and for monitoring.
type Status struct {
	Name string `json:"name"`
	ID   uint64 `json:"id,string"`
	// Leading: the replica leads. Epoch is that of the last election that it has seen, and
	// Leader and LeaderID are of the leader; zero without one.
	Leading  bool   `json:"leading"`
	Epoch    uint64 `json:"epoch,string"`
	Leader   string `json:"leader,omitempty"`
	LeaderID uint64 `json:"leader_id,string,omitempty"`
	// Members has the members of the last View, in the order in which they joined.
	Members []MemberStatus `json:"members"`
	// Synced is when the last Sync succeeded, and Err the error of the last call.
	Synced time.Time `json:"synced"`
	Err    string    `json:"err,omitempty"`
	// Lease is how long the replica runs its tasks without another Sync.
	Lease time.Duration `json:"lease_ns"`
	// Tasks has the tasks of this replica.
	Tasks []TaskStatus `json:"tasks"`
	// Counters count since Run began.
	Counters
	// Source is what is wrong with the Source.
	Source SourceStatus `json:"source,omitzero"`
	// BadRows has the rows of the Source's last answer that do not count, with the reason,
	// and Plan the last plan. Only a leader has them.
	BadRows map[string]string                    `json:"bad_rows,omitempty"`
	Plan    *orchestrator.Plan[WorkerID, string] `json:"plan,omitempty"`
}

// Counters count what a replica does.
type Counters struct {
	// Syncs counts those that succeeded, and FailedSyncs the others. SyncTime is what all took.
	Syncs       uint64        `json:"syncs"`
	FailedSyncs uint64        `json:"failed_syncs"`
	SyncTime    time.Duration `json:"sync_time_ns"`
	// Elections counts those that the replica has won, and Rejoins its further leases.
	Elections uint64 `json:"elections"`
	Rejoins   uint64 `json:"rejoins"`
	// FailedRuns counts the runs of tasks in this process that have failed.
	FailedRuns uint64 `json:"failed_runs"`
}

// SourceStatus is what is wrong with the Source. It is zero if nothing is.
type SourceStatus struct {
	// Failing is since when the Source has not answered, and Err why. In a replica that does not
	// lead, that may also be the leader's.
	Failing time.Time `json:"failing,omitzero"`
	Err     string    `json:"err,omitempty"`
	// Kept counts the tasks that stay although the last answer lacks them, because it lacks more
	// than half of all, and Braked is when the first of them was lacked. BadSince is since when
	// every answer has had bad rows. Only a leader has these.
	Kept     int       `json:"kept,omitempty"`
	Braked   time.Time `json:"braked,omitzero"`
	BadSince time.Time `json:"bad_since,omitzero"`
}

// MemberStatus is a member as a replica sees it.
type MemberStatus struct {
	Member
	// Dead: the member's heartbeat has not risen for a lease.
	Dead bool `json:"dead,omitempty"`
}

// TaskStatus is a task of a replica.
type TaskStatus struct {
	TaskState
	// Token is that of the run; see worker.Token.
	Token uint64 `json:"token,string"`
	// Version is that of the order, and Stop whether it is one to stop.
	Version uint64 `json:"version,string,omitempty"`
	Stop    bool   `json:"stop,omitempty"`
}

// publish publishes what the loop knows.
func (l *loop) publish() {
	e := &l.e
	s := Status{Name: e.self.Name, ID: e.self.ID, Leading: l.lead != nil, Epoch: e.head.Epoch, Counters: l.counters}
	if l.called != nil {
		s.Err = l.called.Error()
	}
	s.Source = l.r.source.status()
	leader, led := e.observed.alive(e.head.Leader)
	if led {
		s.Leader, s.LeaderID = leader.member.Name, leader.member.ID
	}
	if !led || l.lead != nil || leader.member.Answered {
		l.mute = time.Time{}
	} else if l.mute.IsZero() {
		l.mute = time.Now()
	}
	if !l.mute.IsZero() {
		s.Source = SourceStatus{Failing: l.mute, Err: fmt.Sprintf("the Source of %s, which leads, does not answer", s.Leader)}
	}
	for _, m := range e.observed.members() {
		s.Members = append(s.Members, MemberStatus{Member: m.member, Dead: m.dead})
	}
	for _, t := range l.r.worker.Status() {
		order := l.d.orders[t.Task]
		s.Tasks = append(s.Tasks, TaskStatus{TaskState: stateOf(t), Token: t.Token, Version: order.Version, Stop: order.Stop})
	}
	var all *communicator
	if l.lead != nil {
		all, s.BadRows = l.lead.c, maps.Clone(l.lead.list.bad)
		l.lead.list.status(&s.Source)
	} else if l.follows != nil && l.follows.known {
		all = l.follows.c
	}
	r := l.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.Synced = r.status.Synced; l.e.synced && !l.unanswered {
		s.Synced = l.lastSync
	}
	r.status, r.turn, r.all = s, time.Now(), all
}

// Status returns the status as of the last round of the replica's loop, which each change of
// its tasks begins. The maps and slices are shared and must not be changed.
func (r *Replica) Status() Status {
	r.mu.Lock()
	s, o := r.status, r.o
	r.mu.Unlock()
	s.Lease, s.FailedRuns = r.worker.LeaseStats().Left, r.worker.FailedRuns()
	if o != nil && s.Leading {
		plan := o.LastPlan()
		s.Plan = &plan
	}
	return s
}

// Alive returns an error if the replica's loop has not run for two leases. Then the process
// should be restarted. A backend that is away is no reason to: use Alive for Kubernetes'
// livenessProbe. Before Run it returns nil.
func (r *Replica) Alive() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if since := time.Since(r.turn); !r.turn.IsZero() && since > 2*r.s.self.Lease {
		return fmt.Errorf("replica %s: its loop has not run for %v", r.s.self.Name, since.Round(time.Second))
	}
	return nil
}

// Ready returns an error if the replica holds no lease, so that it may run no tasks. The
// text has the error of the last call. Use Ready for Kubernetes' readinessProbe.
func (r *Replica) Ready() error {
	if r.worker.LeaseStats().Left > 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Errorf("replica %s: no lease: %s", r.s.self.Name, cmp.Or(r.status.Err, "it has not joined yet, or has left"))
}
