package memory

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/f8949c05/orchestrator/internal/backoff"
	"github.com/f8949c05/orchestrator/replica"
)

// ErrInjected is for faults: the call is lost.
var ErrInjected = errors.New("injected fault")

// Fault is what happens to a call. With the zero Fault the call takes no time and succeeds.
type Fault struct {
	// Before is how long the call takes to reach the table, and After how long its answer
	// takes. Between two steps of a piecewise table other calls may pass for so long.
	Before, Between, After time.Duration
	// Err: the call fails with it, and does not reach the table.
	Err error
	// Again: the call reaches the table this long after it would have, also if it has not
	// failed.
	Again time.Duration
}

// SetFaults sets the function that chooses the fault of each call; nil: none. Of a Read it
// is given the Query. It is called from many goroutines.
func (t *Table) SetFaults(f func(replica.Update) Fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults = f
}

// Sync is that of replica.Backend, with faults.
func (t *Table) Sync(ctx context.Context, u replica.Update) (replica.View, error) {
	u.Member.Settings = u.Member.Settings.Normalized()
	return t.call(ctx, &u, t.sync)
}

// Read is that of replica.Backend, with faults.
func (t *Table) Read(ctx context.Context, q replica.Query) (replica.View, error) {
	return t.call(ctx, &replica.Update{Query: q}, t.read)
}

func (t *Table) call(ctx context.Context, u *replica.Update, do func(*replica.Update, func()) (replica.View, error)) (replica.View, error) {
	t.mu.Lock()
	choose, f := t.faults, Fault{}
	t.mu.Unlock()
	if choose != nil {
		f = choose(*u)
	}
	reach := func() (replica.View, error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		return do(u, func() {
			if t.piecewise {
				t.mu.Unlock()
				backoff.Sleep(context.Background(), f.Between)
				t.mu.Lock()
			}
		})
	}
	if f.Again > 0 {
		time.AfterFunc(f.Before+f.Again, func() { _, _ = reach() })
	}
	v, err := replica.View{}, f.Err
	if backoff.Sleep(ctx, f.Before) && err == nil {
		v, err = reach()
	}
	if !backoff.Sleep(ctx, f.After) {
		return replica.View{}, context.Cause(ctx)
	}
	return v, err
}

// Records are what a table stores, as far as [Table.Edit] may change it.
type Records struct {
	Epoch   uint64
	Lease   time.Duration
	Members map[uint64]*Member // by ID, also those that have only orders
	Tasks   map[string]replica.Task
}

// Member has all records of one ID.
type Member struct {
	Record replica.Member  // zero: none
	Report *replica.Report // nil: none
	Orders map[string]Order

	at, removed uint64 // revisions of Record and of its removal; 0: none
	reportedAt  uint64 // revision of Report
	stored      uint64 // heartbeat of the Sync that stored Report
	reportOf    string // reading from which Report was made
	// The order record of a piecewise table has an identity, and the epoch and the version
	// of its last writer. One that was edited by hand is another one.
	reading        string
	epoch, version uint64
}

// Order is an order with the revision that wrote it.
type Order struct {
	replica.Order
	at uint64
}

// count returns how many orders to run a member has.
func (m *Member) count() (n int) {
	for _, o := range m.Orders {
		if !o.Stop {
			n++
		}
	}
	return n
}

// Saved is a copy of a table.
type Saved struct{ s state }

// Save returns a copy of all that the table stores.
func (t *Table) Save() Saved {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Saved{t.now.clone()}
}

// clone returns a copy that shares nothing that changes.
func (s state) clone() state {
	s.Tasks, s.Members = maps.Clone(s.Tasks), maps.Clone(s.Members)
	s.drains, s.holds, s.restarts = maps.Clone(s.drains), maps.Clone(s.holds), maps.Clone(s.restarts)
	for id, m := range s.Members {
		copied := *m
		copied.Orders = maps.Clone(m.Orders)
		s.Members[id] = &copied
	}
	return s
}

// Restore sets the table back to a copy, as a failover or a restored backup does. It is
// then another Server (B7).
func (t *Table) Restore(s Saved) {
	t.mu.Lock()
	defer t.mu.Unlock()
	revision := t.now.revision
	t.now = s.s.clone()
	t.now.revision = max(revision, s.s.revision)
	t.lose()
}

// Truncate makes the table empty. It is then another Server, and not confirmed.
func (t *Table) Truncate() { t.Restore(Saved{empty()}) }

// Edit changes records by hand: it replaces them by garbage, by records from the future, or
// deletes them. If it leaves a sign that acknowledged data is lost, the table is then
// another Server (B7): an epoch or a lease out of range, a heartbeat that fell, and unless
// the table is piecewise another number of orders, also of those to stop.
func (t *Table) Edit(f func(*Records)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, before := &t.now, t.now.clone()
	s.revision++
	f(&s.Records)
	lost := s.Epoch < before.Epoch || s.Epoch >= replica.MaxEpoch || s.Lease < 0 || s.Lease > replica.MaxLease
	for id, m := range s.Members {
		m.at, m.reportedAt = s.revision, s.revision
		for task, o := range m.Orders {
			m.Orders[task] = Order{o.Order, s.revision}
		}
		was := before.member(id)
		if len(m.Orders) != len(was.Orders) {
			m.reading, m.epoch, m.version = "", 0, 0
		}
		lost = lost || m.Record.Heartbeat < was.Record.Heartbeat || !t.piecewise && len(m.Orders) != len(was.Orders)
	}
	if lost {
		t.lose()
	}
	t.wake()
}
