package replica

import (
	"context"
	"fmt"
	"time"

	"github.com/f8949c05/orchestrator"
)

// Limits of records. A backend never stores what is beyond them, and a replica ignores it. A
// name of a task, a replica, a version or a service has at most 1024 bytes, attributes have 4 KiB.
const (
	// MinLease and MaxLease bound the lease of a member.
	MinLease = time.Second
	MaxLease = 2 * time.Minute
	// MaxEpoch bounds the epochs of elections. MaxSeen bounds what is believed of epochs,
	// order versions and Applied in other records, so that the next epochs have room. Both are
	// exclusive.
	MaxEpoch = 1 << 62
	MaxSeen  = 1 << 61
	// MaxBatch is the number of records that a Batch has at most.
	MaxBatch = 1000
	// MaxBatchBytes is the size of their texts together.
	MaxBatchBytes = 4 << 20

	maxText       = 1024 // of a name, a version or a service
	maxAttributes = 4 << 10
	maxListed     = 100 // texts in Report.Refused, and entries in Report.States
	maxReason     = 200 // bytes of each of these texts
	maxLeft       = 64
	epochStep     = 1 << 32 // between two epochs of one Server
)

// Role is what a member does.
type Role uint8

// The roles. A member with an unknown one, of a newer program, may run tasks and does not
// lead.
const (
	WorkerAndCandidate Role = iota
	WorkerOnly
	CandidateOnly
)

// works reports whether the member may run tasks.
func (r Role) works() bool { return r != CandidateOnly }

// leads reports whether the member may lead.
func (r Role) leads() bool { return r == WorkerAndCandidate || r == CandidateOnly }

// Member is the record of a member. Its own Sync writes it.
type Member struct {
	// ID is the worker's incarnation: each process has another one, and each lease of a
	// process.
	ID uint64 `json:"id,string"`
	// Heartbeat rises with every Sync of the ID.
	Heartbeat uint64 `json:"heartbeat,string"`
	// Epoch is the highest View.Epoch that the member has seen.
	Epoch uint64 `json:"epoch,string"`
	// Joined is 1 + the highest Joined in the member's first View. A member that came
	// later has a higher number.
	Joined uint64        `json:"joined"`
	Lease  time.Duration `json:"lease_ns"`
	// Name is for people, and need not be unique.
	Name string `json:"name"`
	// Version is that of the program.
	Version string `json:"version,omitempty"`
	// Service tells programs apart that use the same table by mistake; see [WithService].
	Service    string            `json:"service,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	// Settings are those with which a leader places tasks.
	Settings orchestrator.WorkerSettings `json:"settings"`
	Role     Role                        `json:"role,omitempty"`
	// Draining: the member is leaving.
	Draining bool `json:"draining,omitempty"`
	// Answered: the member's Source is running, has answered, and has not been failing
	// for two leases since.
	Answered bool `json:"answered,omitempty"`
}

// lease returns the lease that others wait for. One outside of its range counts as the
// longest.
func (m *Member) lease() time.Duration {
	if m.Lease < MinLease || m.Lease > MaxLease {
		return MaxLease
	}
	return m.Lease
}

// TaskState is the state of a task that is not simply running, or whose last run failed and that
// runs again for less than a minute.
type TaskState struct {
	Task string `json:"task"`
	// State is the text of a worker.State.
	State    string `json:"state"`
	Restarts int    `json:"restarts,omitempty"`
	// Attempts counts the runs that failed in a row; 0 in the records of earlier versions.
	Attempts int `json:"attempts,omitempty"`
	// Since is when the task entered the state, and Failing when the first of the Attempts failed,
	// by the member's clock.
	Since   time.Time `json:"since"`
	Failing time.Time `json:"failing,omitzero"`
	// Err is the error of the last run.
	Err string `json:"err,omitempty"`
}

// Task is a task of the list in force. The leader writes it.
type Task struct {
	Name string `json:"name"`
	// Instances is the number of replicas that run the task at the same time. 0 means 1,
	// and -1 that the task is not wanted.
	Instances int `json:"instances,omitempty"`
	// Handoff, Requires, MaxPerZone and Weight are as in orchestrator.Task.
	Handoff    orchestrator.Handoff `json:"handoff,omitempty"`
	Requires   []string             `json:"requires,omitempty"`
	MaxPerZone int                  `json:"max_per_zone,omitempty"`
	Weight     int64                `json:"weight,omitempty"`
	// Input is a number of the task's input, such as a version or a hash. A Source gives it.
	// When it changes, a run that has called worker.Updated is told to read its input again.
	// Any other run is stopped and begun anew. The task does not see the number.
	Input int64 `json:"input,omitempty"`
	// Generation begins a new run of the task when it rises. The leader counts it; that of
	// a Source is ignored.
	Generation uint64 `json:"generation,omitempty"`
}

// wanted returns how many members may run the task at once (O3).
func (t *Task) wanted() int {
	n := max(t.Instances, 1)
	if t.Handoff == orchestrator.StartThenStop {
		return 2 * n
	}
	return n
}

// Order is the order for one task on one member. The leader writes it.
type Order struct {
	Member uint64 `json:"member,string"`
	Task   string `json:"task"`
	// Version is that of the batch that wrote the order.
	Version uint64 `json:"version,string"`
	// Epoch is that of the same batch; only where the backend is [Traits].Piecewise.
	Epoch uint64 `json:"epoch,string,omitempty"`
	// Stop: the task is to stop.
	Stop bool `json:"stop,omitempty"`
	// Input and Generation are the task's.
	Input      int64  `json:"input,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
}

// Report says what a member runs, relative to its orders. The member's Sync writes it when
// it has changed.
type Report struct {
	// Applied: every order of the member up to this version was read, and is acted on.
	Applied uint64 `json:"applied,string"`
	// Also has the tasks that the member may run, or will start, though no accepted order
	// to run names them.
	Also []string `json:"also,omitempty"`
	// Starting has the tasks with an order to run that run and are not ready yet.
	Starting []string `json:"starting,omitempty"`
	// Refused has the tasks with an order to run, at most Applied, that the member does
	// not run and will not start from this order, with the reason. Texts after the first
	// 100 are empty.
	Refused map[string]string `json:"refused,omitempty"`
	// States has the first 100 tasks, by name, that are not simply running. More is the
	// number of those left out.
	States []TaskState `json:"states,omitempty"`
	More   int         `json:"more,omitempty"`
}

// View is what a backend shows of the table.
type View struct {
	// Server is the identity of the table and of its last loss. Confirmed: a Confirm of it
	// has taken effect (B7).
	Server    string
	Confirmed bool
	// Epoch is that of the last election, and Leader the ID that won it.
	Epoch, Leader uint64
	// Seen is the highest epoch, order version and Applied in any record, except for
	// values outside of their range. It is for the choice of the next epoch (B3).
	Seen uint64
	// Lease is the longest lease that any member ever had in this table.
	Lease time.Duration
	// Listed: an answer of a Source was written whole in this Server.
	Listed bool
	// Revision names this View for Query.Since. Only the backend compares revisions, which
	// belong to one Server and one kind of Query.
	Revision string
	// Full: the View has everything, not only what has changed since Query.Since.
	Full bool
	// Members has the changed members. Gone has the removed IDs; in a full View every one
	// that orders still name.
	Members []Member
	Gone    []uint64
	// Beats has the heartbeats of the leader and of the caller, or of all members if
	// asked. They have at least what was acknowledged to the caller.
	Beats map[uint64]uint64
	// Orders has the orders of the caller, or all with Query.Follow, that were written
	// since Query.Since. Only a full View shows that an order was deleted: by its absence.
	// OrderCount is the number of orders to run that the caller has in all.
	Orders     []Order
	OrderCount int
	// Reading is the identity of the order record from which Orders was read; only where
	// the backend is [Traits].Piecewise (O9).
	Reading string
	// Stored is the heartbeat of the Sync that stored the caller's report.
	Stored uint64
	// Reports has the changed reports, with Query.Follow.
	Reports map[uint64]Report
	// Tasks has the list in force, in a full View with Query.Follow.
	Tasks []Task
	// Drains, Hold and Restarts have the requests of operators, whole in every View: by
	// member, one, by task.
	Drains   map[string]Ask
	Hold     *Ask
	Restarts map[string]Ask
	// Failed has one text for each of Update.Asks, empty if it was carried out.
	Failed []string
}

// Query says what a View is to show.
type Query struct {
	// Self is the ID of the caller.
	Self uint64
	// Server is that of the caller's last View, and Since its Revision. An empty Since
	// asks for a full View.
	Server, Since string
	// Beats asks for all heartbeats, Follow for all orders, reports and tasks.
	Beats, Follow bool
}

// Update is what a Sync writes.
type Update struct {
	Query
	Member Member
	// Report is nil if it has not changed. Reading is View.Reading of the View from which
	// it was made.
	Report  *Report
	Reading string
	// Left has the former IDs of the caller of which everything has stopped, and its own ID
	// when it leaves. The backend removes them.
	Left []uint64
	// Asks has requests of operators.
	Asks []Ask
	// Campaign is the epoch in which the caller wants to lead; 0: none. It succeeds only
	// if Epoch is still the table's.
	Campaign, Epoch uint64
	// Confirm: Query.Server has been seen for the longest lease (B7).
	Confirm bool
	// Batch is what a leader writes; otherwise nil.
	Batch *Batch
}

// Batch is what a leader writes at once, at most [MaxBatch] records. What it has for one
// member becomes visible at once.
type Batch struct {
	// Epoch is that of the writer's leadership, and Version that of this batch: the epoch
	// plus the number of batches written in it.
	Epoch, Version uint64
	// Orders has the orders to write, Dropped those to delete.
	Orders, Dropped []Order
	// Tasks and Deleted change the list in force. Listed comes with the last batch of an
	// answer of a Source.
	Tasks   []Task
	Deleted []string
	Listed  bool
	// Evict has the members to remove, each if its heartbeat has not moved since; 0 is for
	// an ID without a record (B6).
	Evict map[uint64]uint64
	// Restarted has the requests of View.Restarts that the batch carries out.
	Restarted []string
}

// Len returns the number of records that the batch changes.
func (b *Batch) Len() int {
	return len(b.Orders) + len(b.Dropped) + len(b.Tasks) + len(b.Deleted) + len(b.Evict) + len(b.Restarted)
}

// Ask is a request of an operator.
type Ask struct {
	// Verb is drain, undrain, hold, release or restart. Target is a member or a task, and
	// empty for hold and release.
	Verb   string    `json:"verb"`
	Target string    `json:"target,omitempty"`
	By     string    `json:"by"`
	Why    string    `json:"why"`
	At     time.Time `json:"at"`
}

// Backend is a table that all replicas of a service share. The contract is the clauses B1
// to B7 of the package documentation; package backendtest checks them.
//
// # Concurrency
//
// A replica makes one call at a time. Replicas make calls at the same time.
//
// # Ownership
//
// Neither side changes an Update, a Query or a View, or what they hold, once it has passed it
// on. So a table in memory may keep them.
//
// # Blocking
//
// A call returns when its context is done. A call that is stopped at any point, such as by
// SIGSTOP, holds up others for at most two seconds.
//
// # Errors
//
// An error that wraps [ErrEvicted] means that the table has removed Query.Self. One that
// wraps orchestrator.ErrRejected means that nothing was written, and never will be: the replica
// leaves out the record that is to blame. After any other error the Update may have been
// written, or may be written later.
//
// What takes no effect is no error, because the View shows why: a Sync that names another
// Server or an old heartbeat, a campaign that is lost, a batch of a leader that leads no longer
// or is older than the last one. The rest of such an Update is written. A Sync that has its own
// ID in Left returns a View, too. Confirm comes before Campaign.
//
// # Closing
//
// If the backend is an io.Closer, Run closes it last. So replicas share a Backend only if it is
// none.
type Backend interface {
	// Sync writes u and returns a View that was read after that. If u.Server is not the
	// table's, it only reads.
	Sync(ctx context.Context, u Update) (View, error)
	// Read returns a View that shows every Sync that returned before the call. It writes
	// nothing.
	Read(ctx context.Context, q Query) (View, error)
}

// Waiter is an optional interface of a [Backend]. Wait returns nil when something that
// concerns q.Self may have changed since q.Since, and an error when it cannot tell, or ctx
// ends. It runs beside the calls of the same replica. Without it replicas read at
// intervals.
type Waiter interface {
	Wait(ctx context.Context, q Query) error
}

// Traits describe a [Backend] that differs from the usual.
type Traits struct {
	// Piecewise: the store changes one record at a time, and O5 and O9 hold instead of O4.
	Piecewise bool
	// ReportsWake: with Query.Follow, Wait returns for reports too.
	ReportsWake bool
	// Lease and Stop are other defaults of [WithLease], and Least is the shortest lease; 0:
	// as usual.
	Lease, Stop, Least time.Duration
}

// Describer is an optional interface of a [Backend] that has [Traits].
type Describer interface {
	Traits() Traits
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{orchestrator.ErrInvalid}, args...)...)
}
