package memory

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/f8949c05/orchestrator/replica"
)

// Table is a replica.Backend in memory. It is confirmed from the start. Its methods may be
// called from any number of goroutines.
type Table struct {
	piecewise bool

	mu      sync.Mutex
	now     state
	changed chan struct{} // closed with the next change that others must read
	woke    uint64        // revision of the last one
	faults  func(replica.Update) Fault
}

// state is all that a table stores. Every change has a revision.
type state struct {
	Records
	server                  string
	confirmed, listed       bool
	leader, batch, revision uint64
	drains, holds, restarts map[string]replica.Ask
}

var errTorn = errors.New("the table was replaced during the call")

// New returns an empty table that writes a batch in one step (O4).
func New() *Table {
	t := &Table{changed: make(chan struct{}), now: empty()}
	t.now.confirmed = true
	return t
}

// NewPiecewise returns an empty table that writes and reads one record at a time (O5).
func NewPiecewise() *Table {
	t := New()
	t.piecewise = true
	return t
}

// Traits is that of replica.Describer.
func (t *Table) Traits() replica.Traits { return replica.Traits{Piecewise: t.piecewise} }

func empty() state {
	return state{
		Records: Records{Members: make(map[uint64]*Member), Tasks: make(map[string]replica.Task)},
		server:  rand.Text(), drains: make(map[string]replica.Ask), holds: make(map[string]replica.Ask), restarts: make(map[string]replica.Ask),
	}
}

// member returns the records of an ID.
func (s *state) member(id uint64) *Member {
	if s.Members[id] == nil {
		s.Members[id] = &Member{Orders: make(map[string]Order)}
	}
	return s.Members[id]
}

// sync is Sync without faults. The lock is held, but for between, which lets other calls
// pass between the steps of a piecewise table.
func (t *Table) sync(u *replica.Update, between func()) (replica.View, error) {
	s := &t.now
	switch self := s.member(u.Self); {
	case u.Server == s.server && self.removed > 0:
		return replica.View{}, fmt.Errorf("sync of %d: %w", u.Self, replica.ErrEvicted)
	case u.Server != s.server, self.Record.Heartbeat >= u.Member.Heartbeat:
		return t.view(u.Query, between)
	}
	s.revision++
	wakes := s.publish(u) || u.Batch != nil || u.Campaign > 0 || u.Confirm || len(u.Left) > 0
	if u.Batch != nil {
		t.write(u, between)
	}
	if wakes {
		t.wake()
	}
	failed := s.ask(u.Asks)
	v, err := t.view(u.Query, between)
	v.Failed = failed
	return v, err
}

// publish writes what a member says of itself, and reports whether its record has changed.
func (s *state) publish(u *replica.Update) (changed bool) {
	s.Lease = max(s.Lease, u.Member.Lease)
	for _, id := range u.Left {
		s.remove(id)
	}
	if m := s.member(u.Self); m.removed == 0 {
		m.Record.Heartbeat = u.Member.Heartbeat // alone it is no change
		if changed = !reflect.DeepEqual(m.Record, u.Member); changed {
			m.at = s.revision
		}
		m.Record, m.reading = u.Member, cmp.Or(m.reading, rand.Text())
		if u.Report != nil {
			m.Report, m.reportedAt, m.stored, m.reportOf = u.Report, s.revision, u.Member.Heartbeat, u.Reading
		}
	}
	s.confirmed = s.confirmed || u.Confirm
	if u.Campaign > s.Epoch && u.Epoch == s.Epoch && s.confirmed {
		s.Epoch, s.leader, s.batch = u.Campaign, u.Self, u.Campaign
	}
	return changed
}

// remove removes a member and its report. Its orders stay.
func (s *state) remove(id uint64) {
	m := s.member(id)
	m.Record, m.Report, m.removed = replica.Member{}, nil, s.revision
}

// write writes a batch: what is for no member, and then what is for each (O4). A piecewise
// table guards each order record by itself (O5).
func (t *Table) write(u *replica.Update, between func()) {
	s, b := &t.now, u.Batch
	leads := func() bool { return s.Epoch == b.Epoch && s.leader == u.Self }
	if between(); leads() && (t.piecewise || b.Version > s.batch) {
		s.revision++
		s.batch, s.listed = b.Version, s.listed || b.Listed
		for id, beat := range b.Evict {
			if s.member(id).Record.Heartbeat == beat {
				s.remove(id)
			}
		}
		for _, task := range b.Tasks {
			s.Tasks[task.Name] = task
		}
		for _, name := range b.Deleted {
			delete(s.Tasks, name)
		}
		for _, name := range b.Restarted {
			delete(s.restarts, name)
		}
	} else if !t.piecewise {
		return
	}
	orders := make(map[uint64][]replica.Order) // by member; with Version 0 to delete
	for i, o := range slices.Concat(b.Dropped, b.Orders) {
		if i < len(b.Dropped) {
			o.Version = 0
		}
		orders[o.Member] = append(orders[o.Member], o)
	}
	for _, id := range slices.Sorted(maps.Keys(orders)) {
		between()
		m := s.member(id)
		late := m.epoch > b.Epoch || m.epoch == b.Epoch && m.version > b.Version || m.epoch < b.Epoch && !leads()
		if t.piecewise && (late || s.server != u.Server) {
			return // the View says why
		}
		s.revision++
		m.reading, m.epoch, m.version = cmp.Or(m.reading, rand.Text()), b.Epoch, b.Version
		for _, o := range orders[id] {
			if m.Orders[o.Task] = (Order{o, s.revision}); o.Version == 0 {
				delete(m.Orders, o.Task)
			}
		}
	}
}

// ask carries out requests of operators, and returns one text for each that failed.
func (s *state) ask(asks []replica.Ask) []string {
	failed, ends := make([]string, len(asks)), map[string]map[string]replica.Ask{"undrain": s.drains, "release": s.holds}
	begins := map[string]map[string]replica.Ask{"drain": s.drains, "hold": s.holds, "restart": s.restarts}
	for i, a := range asks {
		if begun, ok := ends[a.Verb]; ok {
			delete(begun, a.Target)
		} else if begun, ok := begins[a.Verb]; ok {
			begun[a.Target] = a
		} else {
			failed[i] = fmt.Sprintf("the verb %q is unknown", a.Verb)
		}
	}
	return failed
}

// lose draws another Server, because acknowledged data may be lost (B7). With it the epoch
// ends.
func (t *Table) lose() {
	s := &t.now
	s.revision++
	s.server, s.confirmed, s.listed = rand.Text(), false, false
	s.Epoch, s.leader, s.Lease = 0, 0, min(max(s.Lease, 0), replica.MaxLease)
	t.wake()
}

// wake ends every Wait.
func (t *Table) wake() {
	t.woke = t.now.revision
	close(t.changed)
	t.changed = make(chan struct{})
}

// view returns what a query shows. Reports are read before orders, and orders before the
// table's own record.
func (t *Table) view(q replica.Query, between func()) (replica.View, error) {
	s := &t.now
	server, since, revision := s.server, sinceOf(q, s), s.revision
	v := replica.View{Full: since == 0, Beats: make(map[uint64]uint64), Reports: make(map[uint64]replica.Report)}
	madeFrom := make(map[uint64]string) // the order record of each report
	see := func(n, limit uint64) {
		if n < limit {
			v.Seen = max(v.Seen, n)
		}
	}
	for id, m := range s.Members {
		if m.removed > since && (!v.Full || len(m.Orders) > 0) {
			v.Gone = append(v.Gone, id)
		}
		if m.Record.Heartbeat > 0 {
			if v.Full || m.at > since {
				v.Members = append(v.Members, m.Record)
			}
			if q.Beats || id == s.leader || id == q.Self {
				v.Beats[id] = m.Record.Heartbeat
			}
			see(m.Record.Epoch, replica.MaxSeen)
		}
		if r := m.Report; r != nil {
			if id == q.Self && r.Applied < max(replica.MaxSeen, s.batch+1) { // otherwise it cannot be read
				v.Stored = m.stored
			}
			if q.Follow && (v.Full || m.reportedAt > since) {
				v.Reports[id], madeFrom[id] = *r, m.reportOf
			}
			see(r.Applied, replica.MaxSeen)
		}
	}
	between()
	for id, m := range s.Members {
		if t.piecewise && madeFrom[id] != m.reading { // O9, by the order record that is read now
			delete(v.Reports, id)
		}
		for _, o := range m.Orders {
			if (id == q.Self || q.Follow) && (v.Full || o.at > since) {
				v.Orders = append(v.Orders, o.Order)
			}
			see(o.Version, replica.MaxSeen)
		}
	}
	self := cmp.Or(s.Members[q.Self], &Member{})
	if v.OrderCount = self.count(); t.piecewise {
		v.Reading = self.reading
	}
	if q.Follow && v.Full {
		v.Tasks = slices.Collect(maps.Values(s.Tasks))
	}
	if between(); s.server != server {
		return replica.View{}, errTorn
	}
	see(max(s.Epoch, s.batch), replica.MaxEpoch)
	v.Server, v.Confirmed, v.Epoch, v.Leader, v.Lease, v.Listed = server, s.confirmed, s.Epoch, s.leader, s.Lease, s.listed
	v.Revision = fmt.Sprintf("%s %v %d", server, q.Follow, revision)
	v.Drains, v.Restarts = maps.Clone(s.drains), maps.Clone(s.restarts)
	if hold, ok := s.holds[""]; ok {
		v.Hold = &hold
	}
	return v, nil
}

// sinceOf returns the revision that a query names, or 0 if a full View is due.
func sinceOf(q replica.Query, s *state) (n uint64) {
	_, _ = fmt.Sscanf(q.Since, fmt.Sprintf("%s %v %%d", s.server, q.Follow), &n)
	return n
}

// read is Read without faults. The first Read of a leader claims the orders of a piecewise
// table (O6).
func (t *Table) read(u *replica.Update, between func()) (replica.View, error) {
	s, q := &t.now, u.Query
	if t.piecewise && q.Follow && q.Since == "" && q.Self == s.leader {
		for _, m := range s.Members {
			if m.Record.Heartbeat > 0 && m.epoch != s.Epoch {
				m.epoch, m.version = s.Epoch, s.Epoch
			}
		}
	}
	return t.view(q, between)
}

// Wait returns when something but a heartbeat or a report has changed.
func (t *Table) Wait(ctx context.Context, q replica.Query) error {
	t.mu.Lock()
	changed, missed := t.changed, sinceOf(q, &t.now) < t.woke || q.Server != t.now.server
	t.mu.Unlock()
	if missed {
		return nil
	}
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
