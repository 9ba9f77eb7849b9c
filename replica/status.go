package replica

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/worker"
)

// Status describes a replica, for people and for monitoring. Its JSON reads back into a
// Status.
type Status struct {
	Name    string `json:"name"`
	ID      uint64 `json:"id,string"`
	Address string `json:"address"`
	// Leading reports that the replica leads, and Epoch is that of the last election that
	// it has seen.
	Leading bool   `json:"leading"`
	Epoch   uint64 `json:"epoch,string"`
	// Leader is the name and the address of the leader; empty without a leader.
	Leader        string `json:"leader,omitempty"`
	LeaderAddress string `json:"leader_address,omitempty"`
	// Members has the members of the last View, in the order of their names.
	Members []MemberStatus `json:"members"`
	// Synced is when the last Sync succeeded; Err is the error of the last one.
	Synced time.Time `json:"synced"`
	Err    string    `json:"err,omitempty"`
	// Tasks has the tasks of this replica.
	Tasks []TaskStatus `json:"tasks"`
	// Lease is how long the replica runs its tasks without another Sync.
	Lease time.Duration `json:"lease"`
	// Plan is the last plan of a replica that leads; nil for others and before the first
	// term.
	Plan *orchestrator.Plan[grpc.WorkerID, string] `json:"plan,omitempty"`
}

// TaskStatus is a task that a replica runs; see worker.TaskStatus.
type TaskStatus struct {
	Name string `json:"name"`
	// State is the text of a worker.State, such as "running".
	State    string    `json:"state"`
	Since    time.Time `json:"since"` // of State
	Restarts int       `json:"restarts,omitempty"`
	// Err is the text of the last run's error; empty if there was none. Attempts counts the
	// runs that failed in a row.
	Err      string `json:"err,omitempty"`
	Attempts int    `json:"attempts,omitempty"`
	// Version is that of the content, and Token that of the start; see worker.Token.
	Version int64  `json:"version,omitempty"`
	Token   uint64 `json:"token,string,omitempty"`
}

func taskStatus(t worker.TaskStatus[string]) TaskStatus {
	s := TaskStatus{
		Name: t.Task, State: t.State.String(), Since: t.Since, Restarts: t.Restarts,
		Attempts: t.Attempts, Version: t.Version, Token: t.Token,
	}
	if t.Err != nil {
		s.Err = t.Err.Error()
	}
	return s
}

// MemberStatus is a member as a replica sees it.
type MemberStatus struct {
	Member
	// Dead reports that the member's heartbeat has not risen for a lease.
	Dead bool `json:"dead,omitempty"`
}

// published is what the loop last knew, for Status, Alive and Ready.
type published struct {
	mu     sync.Mutex
	status Status
	o      *orchestrator.Orchestrator[grpc.WorkerID, string] // nil: does not lead
	turn   time.Time                                         // of the loop's last round
	stats  Stats                                             // the counters of the loop
	// pausing reports that the loop waits before it joins again.
	pausing bool
}

// pause records that the loop begins or ends a pause.
func (p *published) pause(begins bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pausing, p.turn = begins, time.Now()
}

// publish publishes what the loop knows.
func (r *Replica) publish(err error) {
	s := Status{
		Name: r.s.name, ID: r.p.self.ID, Address: r.p.self.Address, Leading: r.lead != nil, Epoch: r.p.view.Epoch,
	}
	if err != nil {
		s.Err = err.Error()
	}
	if leader, ok := r.p.observed.alive(r.p.view.Leader); ok {
		s.Leader, s.LeaderAddress = leader.Name, leader.Address
	}
	for _, m := range r.p.observed.members() {
		s.Members = append(s.Members, MemberStatus{Member: m.member, Dead: m.dead})
	}
	slices.SortStableFunc(s.Members, func(a, b MemberStatus) int { return strings.Compare(a.Name, b.Name) })
	r.public.mu.Lock()
	defer r.public.mu.Unlock()
	s.Synced = r.public.status.Synced
	if err == nil {
		s.Synced = time.Now()
	}
	r.public.status, r.public.turn, r.public.o = s, time.Now(), nil
	if r.lead != nil {
		r.public.o = r.lead.o
	}
}

// Status returns the present status. The caller owns it.
func (r *Replica) Status() Status {
	r.public.mu.Lock()
	s, o := r.public.status, r.public.o
	r.public.mu.Unlock()
	s.Members = slices.Clone(s.Members)
	for i := range s.Members {
		s.Members[i].Attributes = maps.Clone(s.Members[i].Attributes)
		s.Members[i].Settings.Labels = slices.Clone(s.Members[i].Settings.Labels)
	}
	s.Lease = r.worker.LeaseStats().Left
	for _, t := range r.worker.Status() {
		s.Tasks = append(s.Tasks, taskStatus(t))
	}
	if o != nil {
		if last := o.Last(); last != nil {
			plan := last.Plan()
			s.Plan = &plan
		}
	}
	return s
}

// Alive returns an error if the replica does not work: it has not tried a Sync for two
// leases. Then restart the process. A backend that is away is no reason to. Use Alive for
// Kubernetes' livenessProbe. Before Run it returns nil.
func (r *Replica) Alive() error {
	r.public.mu.Lock()
	turn, pausing := r.public.turn, r.public.pausing
	r.public.mu.Unlock()
	if since := time.Since(turn); !turn.IsZero() && since > 2*r.s.lease && !pausing {
		return fmt.Errorf("replica %s: its loop has not run for %v", r.s.name, since.Round(time.Second))
	}
	return nil
}

// Ready returns an error if the replica may run no tasks, because it holds no lease. The
// text has the error of the last Sync. Use Ready for Kubernetes' readinessProbe.
func (r *Replica) Ready() error {
	if r.worker.LeaseStats().Left > 0 {
		return nil
	}
	r.public.mu.Lock()
	defer r.public.mu.Unlock()
	if r.public.status.Err != "" {
		return fmt.Errorf("replica %s: no lease: %s", r.s.name, r.public.status.Err)
	}
	return fmt.Errorf("replica %s: no lease", r.s.name)
}
