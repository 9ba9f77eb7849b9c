package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/wire"
)

// Table is a wire.Backend in memory. It is confirmed from the start. Its methods may be
// called from any number of goroutines.
type Table struct {
	piecewise bool

	mu      sync.Mutex
	now     state
	acked   map[uint64]acked // what was acknowledged to each ID in this process (B7)
	changed chan struct{}    // closed with the next change that others must read
	woke    uint64           // revision of the last one
	other   bool             // its origin is another than that of its Server (B7)
	faults  func(wire.Update) Fault
}

// acked is what a table must not fall below for one ID.
type acked struct {
	server                     string
	heartbeat, epoch, revision uint64
}

// Records are what a table stores, as far as [Table.Edit] may change it.
type Records struct {
	Epoch   uint64
	Lease   time.Duration
	Members map[uint64]*Member // by ID, also those that have only orders
	Tasks   map[string]wire.Task
}

// Member has all records of one ID.
type Member struct {
	Record wire.Member  // zero: none
	Report *wire.Report // nil: none
	Orders map[string]Order

	at, removed uint64 // revisions of Record and of its removal; 0: none
	reportedAt  uint64 // revision of Report
	stored      uint64 // heartbeat of the Sync that stored Report
	reportOf    string // reading from which Report was made
	toRun       int    // number of orders to run, to find that some were lost
	// The order record of a piecewise table has an identity, and the epoch and the version
	// of its last writer. One that was edited by hand is another one.
	reading        string
	epoch, version uint64
}

// Order is an order with the revision that wrote it.
type Order struct {
	wire.Order
	at uint64
}

// state is all that a table stores. Every change has a revision.
type state struct {
	Records
	server                  string
	confirmed, listed       bool
	leader, batch, revision uint64
	asks                    map[string]map[string]wire.Ask // by verb and target
}

var (
	_ wire.Backend   = (*Table)(nil)
	_ wire.Waiter    = (*Table)(nil)
	_ wire.Describer = (*Table)(nil)

	errTorn     = errors.New("the table was replaced during the call")
	errConflict = errors.New("an order record has a later writer")
)

// New returns an empty table that writes a batch in one step (O4).
func New() *Table {
	t := &Table{acked: make(map[uint64]acked), changed: make(chan struct{}), now: empty()}
	t.now.confirmed = true
	return t
}

// NewPiecewise returns an empty table that writes and reads one record at a time (O5).
func NewPiecewise() *Table {
	t := New()
	t.piecewise = true
	return t
}

// Traits is that of wire.Describer.
func (t *Table) Traits() wire.Traits { return wire.Traits{Piecewise: t.piecewise} }

func empty() state {
	return state{
		Records: Records{Members: make(map[uint64]*Member), Tasks: make(map[string]wire.Task)},
		server:  random(), asks: map[string]map[string]wire.Ask{"drain": {}, "hold": {}, "restart": {}},
	}
}

func random() string { return strconv.FormatUint(rand.Uint64(), 36) }

// clone returns a copy that shares nothing that changes.
func (s *state) clone() state {
	c := *s
	c.Tasks, c.asks, c.Members = maps.Clone(s.Tasks), maps.Clone(s.asks), maps.Clone(s.Members)
	for verb, asks := range c.asks {
		c.asks[verb] = maps.Clone(asks)
	}
	for id, m := range c.Members {
		copied := *m
		copied.Orders = maps.Clone(m.Orders)
		c.Members[id] = &copied
	}
	return c
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
func (t *Table) sync(u wire.Update, between func()) (wire.View, error) {
	s := &t.now
	t.findLoss(u.Query, u.Campaign > 0)
	switch self := s.member(u.Self); {
	case u.Server == s.server && self.removed > 0:
		return wire.View{}, fmt.Errorf("sync of %d: %w", u.Self, wire.ErrEvicted)
	case u.Server != s.server, self.Record.Heartbeat >= u.Member.Heartbeat:
		return t.view(u.Query, between)
	}
	s.revision++
	wakes := s.publish(&u)
	for _, piece := range t.pieces(u.Batch) {
		if between(); s.server != u.Server {
			return wire.View{}, errTorn
		}
		if !t.mayWrite(&u, piece) {
			if t.piecewise && s.leader == u.Self && s.Epoch == piece.Epoch {
				return wire.View{}, errConflict // the leader must not take it for written
			}
			break
		}
		s.revision++
		s.write(piece)
		wakes = true
	}
	if wakes {
		t.wake()
	}
	failed := s.ask(u.Asks)
	t.acked[u.Self] = acked{s.server, u.Member.Heartbeat, s.Epoch, s.revision}
	v, err := t.view(u.Query, between)
	v.Failed = failed
	return v, err
}

// publish writes what a member says of itself, and reports whether others must read.
func (s *state) publish(u *wire.Update) (wakes bool) {
	s.Lease = max(s.Lease, u.Member.Lease)
	for _, id := range u.Left {
		s.remove(id)
	}
	wakes = len(u.Left) > 0
	if m := s.member(u.Self); m.removed == 0 {
		m.Record.Heartbeat = u.Member.Heartbeat // alone it is no change
		if m.at == 0 || !reflect.DeepEqual(m.Record, u.Member) {
			m.at, wakes = s.revision, true
		}
		m.Record, m.reading = u.Member, cmp.Or(m.reading, random())
		if u.Report != nil {
			m.Report, m.reportedAt, m.stored, m.reportOf = u.Report, s.revision, u.Member.Heartbeat, u.Reading
		}
	}
	if u.Confirm && !s.confirmed {
		s.confirmed, wakes = true, true
	}
	if u.Campaign > s.Epoch && u.Epoch == s.Epoch && s.confirmed {
		s.Epoch, s.leader, s.batch, wakes = u.Campaign, u.Self, u.Campaign, true
	}
	return wakes
}

// remove removes a member and its report. Its orders stay.
func (s *state) remove(id uint64) {
	m := s.member(id)
	m.Record, m.Report, m.removed = wire.Member{}, nil, s.revision
}

// pieces returns the parts of a batch that are written at once: all of it, or what is for
// one member.
func (t *Table) pieces(b *wire.Batch) (pieces []*wire.Batch) {
	switch {
	case b == nil:
		return nil
	case !t.piecewise:
		return []*wire.Batch{b}
	}
	rest, members := *b, make(map[uint64]bool)
	if rest.Orders, rest.Dropped = nil, nil; rest.Len() > 0 || rest.Listed {
		pieces = append(pieces, &rest)
	}
	for _, o := range slices.Concat(b.Orders, b.Dropped) {
		members[o.Member] = true
	}
	for _, id := range slices.Sorted(maps.Keys(members)) {
		others := func(o wire.Order) bool { return o.Member != id }
		pieces = append(pieces, &wire.Batch{
			Epoch: b.Epoch, Version: b.Version,
			Orders: slices.DeleteFunc(slices.Clone(b.Orders), others), Dropped: slices.DeleteFunc(slices.Clone(b.Dropped), others),
		})
	}
	return pieces
}

// mayWrite reports whether a part of a batch takes effect (O4, O5), and guards its record.
func (t *Table) mayWrite(u *wire.Update, b *wire.Batch) bool {
	s := &t.now
	leads := b.Epoch == s.Epoch && s.leader == u.Self
	orders := slices.Concat(b.Orders, b.Dropped)
	if !t.piecewise || len(orders) == 0 {
		return leads && (t.piecewise || b.Version > s.batch)
	}
	m := s.member(orders[0].Member)
	if m.epoch > b.Epoch || m.epoch < b.Epoch && !leads || m.epoch == b.Epoch && m.version > b.Version {
		return false
	}
	m.reading, m.epoch, m.version = cmp.Or(m.reading, random()), b.Epoch, b.Version
	return true
}

// write writes a batch, or a part of it.
func (s *state) write(b *wire.Batch) {
	s.batch, s.listed = b.Version, s.listed || b.Listed
	for id, beat := range b.Evict {
		if s.member(id).Record.Heartbeat == beat {
			s.remove(id)
		}
	}
	for _, o := range b.Dropped {
		delete(s.member(o.Member).Orders, o.Task)
	}
	for _, o := range b.Orders {
		s.member(o.Member).Orders[o.Task] = Order{o, s.revision}
	}
	s.count()
	for _, task := range b.Tasks {
		s.Tasks[task.Name] = task
	}
	maps.DeleteFunc(s.Tasks, func(name string, _ wire.Task) bool { return slices.Contains(b.Deleted, name) })
	maps.DeleteFunc(s.asks["restart"], func(name string, _ wire.Ask) bool { return slices.Contains(b.Restarted, name) })
}

// count records how many orders to run each member has.
func (s *state) count() {
	for _, m := range s.Members {
		m.toRun = m.count()
	}
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

// ask carries out requests of operators, and returns one text for each that failed.
func (s *state) ask(asks []wire.Ask) []string {
	failed, ends := make([]string, len(asks)), map[string]string{"undrain": "drain", "release": "hold"}
	for i, a := range asks {
		if begun, ok := ends[a.Verb]; ok {
			delete(s.asks[begun], a.Target)
		} else if known, ok := s.asks[a.Verb]; ok {
			known[a.Target] = a
		} else {
			failed[i] = fmt.Sprintf("the verb %q is unknown", a.Verb)
		}
	}
	return failed
}

// findLoss draws another Server if there is a sign that data which was acknowledged is lost
// (B7). With it the epoch ends.
func (t *Table) findLoss(q wire.Query, campaigns bool) {
	s := &t.now
	a, self := t.acked[q.Self], s.member(q.Self)
	lost := t.other || s.Epoch >= wire.MaxEpoch || s.Lease < 0 || s.Lease > wire.MaxLease || s.revision < a.revision
	if a.server == s.server {
		lost = lost || s.Epoch < a.epoch || self.removed == 0 && self.Record.Heartbeat < a.heartbeat
	}
	for id, m := range s.Members {
		if !t.piecewise && (id == q.Self || q.Follow || campaigns) { // a leader must see them all
			lost = lost || m.toRun != m.count()
		}
	}
	if !lost || !s.confirmed && q.Server != s.server {
		return
	}
	s.server, s.confirmed, s.listed, t.other = random(), false, false, false
	s.Epoch, s.leader, s.Lease = 0, 0, min(max(s.Lease, 0), wire.MaxLease)
	s.count()
	for _, a := range t.acked {
		s.revision = max(s.revision, a.revision)
	}
	s.revision++
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
func (t *Table) view(q wire.Query, between func()) (wire.View, error) {
	s := &t.now
	server, since, revision := s.server, sinceOf(q, s), s.revision
	v := wire.View{Full: since == 0, Beats: make(map[uint64]uint64), Reports: make(map[uint64]wire.Report)}
	see := func(n, limit uint64) {
		if n < limit {
			v.Seen = max(v.Seen, n)
		}
	}
	ids := slices.Sorted(maps.Keys(s.Members))
	for _, id := range ids {
		m := s.Members[id]
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
			see(m.Record.Epoch, wire.MaxSeen)
		}
		if r := m.Report; r != nil {
			if id == q.Self && r.Applied < wire.MaxSeen { // otherwise it cannot be read
				v.Stored = m.stored
			}
			if q.Follow && (v.Full || m.reportedAt > since) && (!t.piecewise || m.reportOf == m.reading) {
				v.Reports[id] = *r
			}
			see(r.Applied, wire.MaxSeen)
		}
	}
	between()
	for _, id := range ids {
		for _, o := range s.member(id).Orders {
			if (id == q.Self || q.Follow) && (v.Full || o.at > since) {
				v.Orders = append(v.Orders, o.Order)
			}
			see(o.Version, wire.MaxEpoch)
		}
	}
	self := s.member(q.Self)
	if v.OrderCount = self.toRun; t.piecewise {
		v.OrderCount, v.Reading = self.count(), self.reading
	}
	if q.Follow && v.Full {
		v.Tasks = slices.Collect(maps.Values(s.Tasks))
	}
	if between(); s.server != server {
		return wire.View{}, errTorn
	}
	see(max(s.Epoch, s.batch), wire.MaxEpoch)
	v.Server, v.Confirmed, v.Epoch, v.Leader, v.Lease, v.Listed = server, s.confirmed, s.Epoch, s.leader, s.Lease, s.listed
	v.Revision = fmt.Sprintf("%s %v %d", server, q.Follow, revision)
	v.Drains, v.Restarts = maps.Clone(s.asks["drain"]), maps.Clone(s.asks["restart"])
	if hold, ok := s.asks["hold"][""]; ok {
		v.Hold = &hold
	}
	return v, nil
}

// sinceOf returns the revision that a query names, or 0 if a full View is due.
func sinceOf(q wire.Query, s *state) uint64 {
	text, ok := strings.CutPrefix(q.Since, fmt.Sprintf("%s %v ", s.server, q.Follow))
	n, err := strconv.ParseUint(text, 10, 64)
	if !ok || err != nil || n > s.revision {
		return 0
	}
	return n
}

// read is Read without faults. The first Read of a leader claims the orders of a piecewise
// table (O6).
func (t *Table) read(q wire.Query, between func()) (wire.View, error) {
	s := &t.now
	if s.revision < t.acked[q.Self].revision {
		return wire.View{}, fmt.Errorf("read of %d: the table is older than what it has shown", q.Self)
	}
	if t.piecewise && q.Follow && q.Since == "" && q.Self == s.leader && s.Epoch < wire.MaxEpoch {
		for _, m := range s.Members {
			if m.Record.Heartbeat > 0 && m.epoch < s.Epoch {
				m.epoch, m.version = s.Epoch, s.Epoch
			}
		}
	}
	return t.view(q, between)
}

// Wait returns when something but a heartbeat or a report has changed.
func (t *Table) Wait(ctx context.Context, q wire.Query) error {
	t.mu.Lock()
	changed := t.changed
	missed := sinceOf(q, &t.now) < t.woke || q.Server != t.now.server
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
