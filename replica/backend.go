package replica

// What a backend stores, and its contract.

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/f8949c05/orchestrator"
)

var (
	// ErrRetired reports that the table refuses the caller's record, because no leader
	// could call it. The replica stops its tasks, and joins again under another ID after a
	// pause.
	ErrRetired = errors.New("retired: the leader cannot call this replica")

	// ErrForeign reports that the table exists, and belongs to something else. The
	// text names it.
	ErrForeign = errors.New("not a table of replicas")
)

// Role is what a replica does.
type Role uint8

const (
	// WorkerAndCandidate runs tasks, and leads when it is elected.
	WorkerAndCandidate Role = iota
	// WorkerOnly runs tasks, and never leads.
	WorkerOnly
	// CandidateOnly leads when it is elected, and runs no tasks.
	CandidateOnly
)

// String returns the name of the role.
func (r Role) String() string {
	switch r {
	case WorkerAndCandidate:
		return "worker and candidate"
	case WorkerOnly:
		return "worker only"
	case CandidateOnly:
		return "candidate only"
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// Works reports whether a replica of the role runs tasks. One of an unknown role may: it
// is of a newer program.
func (r Role) Works() bool { return r != CandidateOnly }

// Leads reports whether a replica of the role may lead. One of an unknown role may not, so
// that no other candidate waits for it.
func (r Role) Leads() bool { return r == WorkerAndCandidate || r == CandidateOnly }

// Member is the record of one replica in the table.
type Member struct {
	// ID is that of the replica's worker (worker.Worker.Incarnation): another one for
	// each process, and for each lease of a process. It is from 1 to 2⁶³-1.
	ID uint64 `json:"id,string"`
	// Heartbeat rises with each Sync of the ID. The first is 1.
	Heartbeat uint64 `json:"heartbeat"`
	// Epoch is the highest epoch that the replica has seen.
	Epoch uint64 `json:"epoch,string"`
	// Lease is how long after its last Sync the replica may run tasks.
	Lease time.Duration `json:"lease"`
	// Name is for people, and need not be unique.
	Name string `json:"name"`
	// Address is where the leader calls the replica, as host:port.
	Address    string            `json:"address"`
	Attributes map[string]string `json:"attributes,omitempty"`
	// Settings decide which tasks the replica may run, and how many; see WithSettings.
	Settings orchestrator.WorkerSettings `json:"settings,omitzero"`
	Role     Role                        `json:"role,omitempty"`
	// Draining reports that the replica takes no more tasks and is about to leave.
	Draining bool `json:"draining,omitempty"`
	// Passive reports that the replica could not lead, and leads again only if no other
	// candidate can.
	Passive bool `json:"passive,omitempty"`
}

// Update is what a Sync publishes and asks for.
type Update struct {
	// Self is the caller's record.
	Self Member
	// Left has former IDs of the caller of which everything has stopped. They are
	// removed. With Self.ID in it, the caller leaves.
	Left []uint64
	// Evict has members that were found dead, each with its heartbeat. A member is
	// removed only if its heartbeat is still the same.
	Evict map[uint64]uint64
	// Retire has members whose Syncs are refused from now on. Their records stay.
	Retire []uint64
	// Campaign makes the caller the leader in this epoch, if Epoch is still that of the
	// table. It is above Epoch. 0: none.
	Campaign uint64
	// Epoch is that of the caller's last View; 0 if it has none.
	Epoch uint64
	// Confirm is a Server that the caller has seen for long enough: every replica that
	// lives has published its record there since. Empty: none.
	Confirm string
}

// View is what a Sync returns.
type View struct {
	// Epoch is that of the last election; 0 if there was none.
	Epoch uint64
	// Leader is the ID of the member that won it.
	Leader uint64
	// Members has every member that neither left nor was evicted, in any order.
	Members []Member
	// Lease is the longest lease of any member that the table has had.
	Lease time.Duration
	// Server identifies the store and the creation of the table. It changes whenever
	// acknowledged data may have been lost.
	Server string
	// Confirmed reports that an update has confirmed Server. Until then no campaign and
	// no eviction takes effect.
	Confirmed bool
}

// Backend is a table of replicas: PostgreSQL, Kubernetes, etcd or memory. Package
// replicatest checks an implementation on the real store.
//
// # Meaning
//
// Sync publishes u.Self, carries out the rest of u, and returns the table. It has no
// clock and grants no lease: replicas measure by their own clocks how long another's
// heartbeat has not risen.
//
// (B1) A member is in every View of a Sync that began after the Sync that published it
// had returned, as it was last published, until it is in Left or evicted. Attributes
// and Settings keep every byte. A Sync whose heartbeat is not above the recorded one publishes
// nothing. Otherwise a late duplicate would lower the heartbeat, and an observer would
// begin to count too early.
//
// (B2) Evict removes a member only if its heartbeat is the given one, in one step. A
// Sync of a retired member fails with [ErrRetired] and changes nothing. A Sync of an ID
// that the table does not know publishes it, so that the loss of a table does not stop
// every task. Removals need not be remembered: a member was removed because it has
// stopped, and does not run again under that ID. If a late Sync brings its record back,
// it is evicted again.
//
// (B3) Of the campaigns with the same Epoch at most one succeeds.
//
// (B4) Write first, then read. Of a Sync that campaigns and a Sync that publishes a new
// member, either the first returns the member or the second returns the new epoch. All
// steps of a Sync see the same Server, or it fails.
//
// (B7) Server is another one after every loss of acknowledged data, and in every new
// table. Where the backend can tell, a record that was deleted by hand is such a loss.
// Until an update has named Server in Confirm, no campaign and no Evict takes effect.
//
// # Concurrency
//
// A replica has one Sync under way at a time. Sync is safe for use by several replicas
// of one process.
//
// # Blocking
//
// (B5) Sync returns when ctx ends; what it asked for may then take effect later. A
// process that is stopped at any point of a Sync holds up the Syncs of others for at
// most two seconds.
//
// # Errors
//
// [ErrRetired] and [ErrForeign] end the attempts under this ID, or all. So does
// orchestrator.ErrInvalid before the first success. After any other error the replica
// tries again.
type Backend interface {
	Sync(ctx context.Context, u Update) (View, error)
}

// Waiter is an optional interface of a Backend. Wait returns when a View may show
// something new: a member that joined, left, drained or was removed, or another leader.
// It may return earlier, but not always at once: if it cannot tell, it waits for ctx. After
// an error the replica pauses before it calls Wait again, and logs the error unless ctx has
// ended. Wait then returns as soon as it can tell again, since a change may have been missed.
type Waiter interface {
	Wait(ctx context.Context) error
}

// Check returns an error that wraps orchestrator.ErrInvalid if no replica could have
// sent u. A backend calls it before it changes anything.
func (u *Update) Check() error {
	var errs []error
	invalid := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{orchestrator.ErrInvalid}, args...)...))
	}
	switch s := &u.Self; {
	case s.ID == 0 || s.ID > 1<<63-1:
		invalid("ID is %d: must be from 1 to 2⁶³-1", s.ID)
	case s.Heartbeat == 0 || s.Heartbeat > 1<<63-1:
		invalid("heartbeat is %d: must be from 1 to 2⁶³-1", s.Heartbeat)
	case s.Epoch > maxEpoch:
		invalid("epoch is %d: must be at most 2⁶²", s.Epoch)
	case s.Lease < minLease || s.Lease > MaxLease:
		invalid("lease is %v: must be from %v to %v", s.Lease, minLease, MaxLease)
	case s.Role > CandidateOnly:
		invalid("role is %d: unknown", uint8(s.Role))
	case len(s.Name) > maxText || len(s.Address) > maxText:
		invalid("name has %d bytes and address %d: at most %d each", len(s.Name), len(s.Address), maxText)
	}
	if u.Campaign != 0 && (u.Campaign <= u.Epoch || u.Campaign > 1<<63-1) {
		invalid("campaign for epoch %d, after %d: must be above it and at most 2⁶³-1", u.Campaign, u.Epoch)
	}
	size := 0
	valid := utf8.ValidString(u.Self.Name) && utf8.ValidString(u.Self.Address)
	for k, v := range u.Self.Attributes {
		size += len(k) + len(v)
		valid = valid && utf8.ValidString(k) && utf8.ValidString(v)
	}
	if !valid {
		invalid("name, address or attributes are not UTF-8")
	}
	if size > maxAttributes {
		invalid("attributes have %d bytes: at most %d", size, maxAttributes)
	}
	if err := u.Self.Settings.Check(); err != nil {
		errs = append(errs, fmt.Errorf("settings: %w", err))
	}
	return errors.Join(errs...)
}

const (
	// MaxLease is the longest lease that a replica may have.
	MaxLease = 2 * time.Minute

	// minLease bounds how often others Sync because of a member.
	minLease = time.Second

	// maxEpoch leaves room for elections above every epoch that a member has seen. A clock
	// reaches it in the year 148,108.
	maxEpoch = 1 << 62
	// maxSeen is the highest epoch that a replica publishes because it was called with it.
	// It leaves room for 2²⁸ elections.
	maxSeen       = 1 << 61
	maxText       = 1024
	maxAttributes = 4096
)
