package wire

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
)

// Status describes a replica, for people and for monitoring.
type Status struct {
	Name string `json:"name"`
	ID   uint64 `json:"id,string"`
	// Leading: the replica leads. Epoch is that of the last election that it has seen, and
	// Leader the name of the leader; empty without one.
	Leading bool   `json:"leading"`
	Epoch   uint64 `json:"epoch,string"`
	Leader  string `json:"leader,omitempty"`
	// Members has the members of the last View, in the order in which they joined.
	Members []MemberStatus `json:"members"`
	// Synced is when the last Sync succeeded, and Err the error of the last call.
	Synced time.Time `json:"synced"`
	Err    string    `json:"err,omitempty"`
	// Lease is how long the replica runs its tasks without another Sync.
	Lease time.Duration `json:"lease_ns"`
	// Tasks has the tasks of this replica.
	Tasks []TaskStatus `json:"tasks"`
	// BadRows has the rows of the Source's last answer that do not count, with the reason,
	// and Plan the last plan. Only a leader has them.
	BadRows map[string]string                    `json:"bad_rows,omitempty"`
	Plan    *orchestrator.Plan[WorkerID, string] `json:"plan,omitempty"`
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

// published is what the loop last knew, for Status, Alive and Ready.
type published struct {
	mu     sync.Mutex
	status Status
	o      *orchestrator.Orchestrator[WorkerID, string] // nil: it does not lead
	turn   time.Time                                    // of the loop's last round
}

// publish publishes what the loop knows.
func (l *loop) publish() {
	e := &l.e
	s := Status{Name: e.self.Name, ID: e.self.ID, Leading: l.lead != nil, Epoch: e.head.Epoch}
	if l.failed != nil {
		s.Err = l.failed.Error()
	}
	if leader, ok := e.observed.alive(e.head.Leader); ok {
		s.Leader = leader.member.Name
	}
	for _, m := range e.observed.members() {
		s.Members = append(s.Members, MemberStatus{Member: m.member, Dead: m.dead})
	}
	for _, t := range l.r.worker.Status() {
		order := l.d.orders[t.Task]
		s.Tasks = append(s.Tasks, TaskStatus{TaskState: stateOf(t), Token: t.Token, Version: order.Version, Stop: order.Stop})
	}
	var o *orchestrator.Orchestrator[WorkerID, string]
	if l.lead != nil {
		o, s.BadRows = l.lead.o, maps.Clone(l.lead.list.bad)
	}
	p := &l.r.public
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.Synced = p.status.Synced; l.e.synced && !l.unanswered {
		s.Synced = l.lastSync
	}
	p.status, p.turn, p.o = s, time.Now(), o
}

// Status returns the status as of the last round of the replica's loop, which each change of
// its tasks begins. The maps and slices are shared and must not be changed.
func (r *Replica) Status() Status {
	r.public.mu.Lock()
	s, o := r.public.status, r.public.o
	r.public.mu.Unlock()
	s.Lease = r.worker.LeaseStats().Left
	if o != nil {
		if last := o.Last(); last != nil {
			plan := last.Plan()
			s.Plan = &plan
		}
	}
	return s
}

// Alive returns an error if the replica's loop has not run for two leases. Then the process
// should be restarted. A backend that is away is no reason to: use Alive for Kubernetes'
// livenessProbe. Before Run it returns nil.
func (r *Replica) Alive() error {
	r.public.mu.Lock()
	turn := r.public.turn
	r.public.mu.Unlock()
	if since := time.Since(turn); !turn.IsZero() && since > 2*r.s.self.Lease {
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
	r.public.mu.Lock()
	defer r.public.mu.Unlock()
	return fmt.Errorf("replica %s: no lease: %s", r.s.self.Name, r.public.status.Err)
}
