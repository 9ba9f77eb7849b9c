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
	faults  func(Call) Fault
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
	Members map[uint64]wire.Member
	Reports map[uint64]wire.Report
	Orders  map[uint64]map[string]wire.Order // by member and task
	Tasks   map[string]wire.Task
}

// state is all that a table stores. Every change has a revision.
type state struct {
	Records
	server                        string
	confirmed, listed             bool
	leader, batch, seen, revision uint64
	stored                        map[uint64]receipt // of the reports
	guards                        map[uint64]guard   // of the orders of each member
	counts                        map[uint64]int     // of the orders to run, to find that some were lost
	at                            map[key]uint64     // revisions of records
	removed                       map[uint64]uint64  // revisions of removals
	drains, restarts              map[string]wire.Ask
	hold                          *wire.Ask
}

// key names a record: a member's if task is nil, otherwise an order. A report has the key of
// its member, and report set.
type key struct {
	member uint64
	report bool
	task   string
}

// receipt says from which order record a report was made, and which Sync stored it.
type receipt struct {
	heartbeat uint64
	reading   string
}

// guard is the order record of one member in a piecewise table: its identity, and the epoch
// and the version of its last writer. A record that was edited by hand has another identity.
type guard struct {
	reading        string
	epoch, version uint64
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
		Records: Records{
			Members: make(map[uint64]wire.Member), Reports: make(map[uint64]wire.Report),
			Orders: make(map[uint64]map[string]wire.Order), Tasks: make(map[string]wire.Task),
		},
		server: random(), stored: make(map[uint64]receipt), guards: make(map[uint64]guard), counts: make(map[uint64]int),
		at: make(map[key]uint64), removed: make(map[uint64]uint64),
		drains: make(map[string]wire.Ask), restarts: make(map[string]wire.Ask),
	}
}

func random() string { return strconv.FormatUint(rand.Uint64(), 36) }

// clone returns a copy that shares nothing that changes.
func (s *state) clone() state {
	c := *s
	c.Members, c.Reports, c.Tasks = maps.Clone(s.Members), maps.Clone(s.Reports), maps.Clone(s.Tasks)
	c.stored, c.guards, c.counts, c.at = maps.Clone(s.stored), maps.Clone(s.guards), maps.Clone(s.counts), maps.Clone(s.at)
	c.removed, c.drains, c.restarts = maps.Clone(s.removed), maps.Clone(s.drains), maps.Clone(s.restarts)
	c.Orders = make(map[uint64]map[string]wire.Order, len(s.Orders))
	for id, orders := range s.Orders {
		c.Orders[id] = maps.Clone(orders)
	}
	return c
}

// sync is Sync without faults. between is called between the steps of a piecewise table,
// without the lock.
func (t *Table) sync(u wire.Update, between func()) (wire.View, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.now
	t.findLoss(u.Query, u.Campaign > 0)
	switch _, gone := s.removed[u.Self]; {
	case u.Server == s.server && gone:
		return wire.View{}, fmt.Errorf("sync of %d: %w", u.Self, wire.ErrEvicted)
	case u.Server != s.server, s.Members[u.Self].Heartbeat >= u.Member.Heartbeat:
		return t.view(u.Query, between)
	}
	s.revision++
	wakes := t.publish(&u)
	for _, piece := range t.pieces(u.Batch) {
		if t.step(between); s.server != u.Server {
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

// step lets other calls pass, if the table is piecewise.
func (t *Table) step(between func()) {
	if t.piecewise {
		t.mu.Unlock()
		between()
		t.mu.Lock()
	}
}

// publish writes what a member says of itself, and reports whether others must read.
func (t *Table) publish(u *wire.Update) (wakes bool) {
	s := &t.now
	s.Lease = max(s.Lease, u.Member.Lease)
	for _, id := range u.Left {
		s.remove(id)
	}
	wakes = len(u.Left) > 0
	if _, left := s.removed[u.Self]; !left {
		former, known := s.Members[u.Self]
		former.Heartbeat = u.Member.Heartbeat // alone it is no change
		if !known || !reflect.DeepEqual(former, u.Member) {
			s.at[key{member: u.Self}], wakes = s.revision, true
		}
		s.Members[u.Self] = u.Member
		if s.guards[u.Self].reading == "" {
			s.guards[u.Self] = guard{reading: random()}
		}
		if u.Report != nil {
			s.Reports[u.Self], s.stored[u.Self] = *u.Report, receipt{u.Member.Heartbeat, u.Reading}
			s.at[key{member: u.Self, report: true}] = s.revision
			s.see(u.Report.Applied, wire.MaxSeen)
		}
	}
	if u.Confirm && !s.confirmed {
		s.confirmed, wakes = true, true
	}
	if u.Campaign > s.Epoch && u.Epoch == s.Epoch && s.confirmed {
		s.Epoch, s.leader, s.batch, wakes = u.Campaign, u.Self, u.Campaign, true
		s.see(s.Epoch, wire.MaxEpoch)
	}
	return wakes
}

// see records a number for View.Seen.
func (s *state) see(n, limit uint64) {
	if n < limit {
		s.seen = max(s.seen, n)
	}
}

// remove removes a member and its report. Its orders stay.
func (s *state) remove(id uint64) {
	delete(s.Members, id)
	delete(s.Reports, id)
	s.removed[id] = s.revision
}

// pieces returns the parts of a batch that are written at once: all of it, or what is for
// one member.
func (t *Table) pieces(b *wire.Batch) (pieces []*wire.Batch) {
	if b == nil || !t.piecewise {
		return slices.DeleteFunc([]*wire.Batch{b}, func(b *wire.Batch) bool { return b == nil })
	}
	rest, of := *b, make(map[uint64]*wire.Batch)
	if rest.Orders, rest.Dropped = nil, nil; rest.Len() > 0 || rest.Listed {
		pieces = append(pieces, &rest)
	}
	part := func(id uint64) *wire.Batch {
		if of[id] == nil {
			of[id] = &wire.Batch{Epoch: b.Epoch, Version: b.Version}
			pieces = append(pieces, of[id])
		}
		return of[id]
	}
	for _, o := range b.Orders {
		part(o.Member).Orders = append(part(o.Member).Orders, o)
	}
	for _, o := range b.Dropped {
		part(o.Member).Dropped = append(part(o.Member).Dropped, o)
	}
	return pieces
}

// mayWrite reports whether a part of a batch takes effect (O4, O5), and guards its record.
func (t *Table) mayWrite(u *wire.Update, b *wire.Batch) bool {
	s := &t.now
	leads := b.Epoch == s.Epoch && s.leader == u.Self
	orders := append(slices.Clip(b.Orders), b.Dropped...)
	if !t.piecewise || len(orders) == 0 {
		return leads && (t.piecewise || b.Version > s.batch)
	}
	id := orders[0].Member
	g := s.guards[id]
	if g.epoch > b.Epoch || g.epoch < b.Epoch && !leads || g.epoch == b.Epoch && g.version > b.Version {
		return false
	}
	s.guards[id] = guard{cmp.Or(g.reading, random()), b.Epoch, b.Version}
	return true
}

// write writes a batch, or a part of it.
func (s *state) write(b *wire.Batch) {
	s.batch = b.Version
	s.see(b.Version, wire.MaxEpoch)
	s.listed = s.listed || b.Listed
	for id, beat := range b.Evict {
		if m, ok := s.Members[id]; ok && beat == m.Heartbeat || !ok && beat == 0 {
			s.remove(id)
		}
	}
	for _, o := range b.Dropped {
		s.count(o, false)
		delete(s.Orders[o.Member], o.Task)
	}
	for _, o := range b.Orders {
		s.count(o, !o.Stop)
		if s.Orders[o.Member] == nil {
			s.Orders[o.Member] = make(map[string]wire.Order)
		}
		s.Orders[o.Member][o.Task] = o
		s.at[key{member: o.Member, task: o.Task}] = s.revision
	}
	for _, task := range b.Tasks {
		s.Tasks[task.Name] = task
	}
	maps.DeleteFunc(s.Tasks, func(name string, _ wire.Task) bool { return slices.Contains(b.Deleted, name) })
	maps.DeleteFunc(s.restarts, func(name string, _ wire.Ask) bool { return slices.Contains(b.Restarted, name) })
}

// count keeps the number of a member's orders to run, when one is replaced.
func (s *state) count(o wire.Order, runs bool) {
	if was, ok := s.Orders[o.Member][o.Task]; ok && !was.Stop {
		s.counts[o.Member]--
	}
	if runs {
		s.counts[o.Member]++
	}
}

// ask carries out requests of operators, and returns one text for each that failed.
func (s *state) ask(asks []wire.Ask) []string {
	failed := make([]string, len(asks))
	for i, a := range asks {
		switch a.Verb {
		case "drain":
			s.drains[a.Target] = a
		case "undrain":
			delete(s.drains, a.Target)
		case "hold":
			s.hold = &a
		case "release":
			s.hold = nil
		case "restart":
			s.restarts[a.Target] = a
		default:
			failed[i] = fmt.Sprintf("the verb %q is unknown", a.Verb)
		}
	}
	return failed
}

// findLoss draws another Server if there is a sign that data which was acknowledged is lost
// (B7). With it the epoch ends.
func (t *Table) findLoss(q wire.Query, campaigns bool) {
	s := &t.now
	a := t.acked[q.Self]
	_, removed := s.removed[q.Self]
	lost := t.other || s.Epoch >= wire.MaxEpoch || s.Lease < 0 || s.Lease > wire.MaxLease || s.revision < a.revision
	if a.server == s.server {
		lost = lost || s.Epoch < a.epoch || !removed && s.Members[q.Self].Heartbeat < a.heartbeat
	}
	for id, n := range s.counts {
		if !t.piecewise && (id == q.Self || q.Follow || campaigns) { // a leader must see them all
			lost = lost || n != s.toRun(id)
		}
	}
	if !lost || !s.confirmed && q.Server != s.server {
		return
	}
	s.see(s.Epoch, wire.MaxEpoch)
	s.Epoch, s.leader, s.Lease = 0, 0, min(max(s.Lease, 0), wire.MaxLease)
	clear(s.counts)
	for id := range s.Orders {
		s.counts[id] = s.toRun(id)
	}
	s.server, s.confirmed, s.listed, t.other = random(), false, false, false
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

// toRun returns how many orders to run a member has.
func (s *state) toRun(id uint64) (n int) {
	for _, o := range s.Orders[id] {
		if !o.Stop {
			n++
		}
	}
	return n
}

// view returns what a query shows. Reports are read before orders, and orders before the
// table's own record.
func (t *Table) view(q wire.Query, between func()) (wire.View, error) {
	s := &t.now
	server, since, revision := s.server, sinceOf(q, s), s.revision
	v := wire.View{Beats: make(map[uint64]uint64), Full: since == 0, Stored: s.stored[q.Self].heartbeat, Reports: make(map[uint64]wire.Report)}
	if s.Reports[q.Self].Applied >= wire.MaxSeen { // it cannot be read
		v.Stored = 0
	}
	for _, id := range slices.Sorted(maps.Keys(s.Members)) {
		m := s.Members[id]
		if v.Full || s.at[key{member: id}] > since {
			v.Members = append(v.Members, m)
		}
		if q.Beats || id == s.leader || id == q.Self {
			v.Beats[id] = m.Heartbeat
		}
		r, ok := s.Reports[id]
		if ok = ok && (!t.piecewise || s.stored[id].reading == s.guards[id].reading); ok && q.Follow && (v.Full || s.at[key{member: id, report: true}] > since) {
			v.Reports[id] = r
		}
	}
	t.step(between)
	for id, orders := range s.Orders {
		for task, o := range orders {
			if (id == q.Self || q.Follow) && (v.Full || s.at[key{member: id, task: task}] > since) {
				v.Orders = append(v.Orders, o)
			}
		}
	}
	if v.OrderCount = s.counts[q.Self]; t.piecewise {
		v.OrderCount, v.Reading = s.toRun(q.Self), s.guards[q.Self].reading
	}
	if q.Follow && v.Full {
		v.Tasks = slices.Collect(maps.Values(s.Tasks))
	}
	for id, at := range s.removed {
		if at > since && !v.Full || v.Full && len(s.Orders[id]) > 0 {
			v.Gone = append(v.Gone, id)
		}
	}
	if t.step(between); s.server != server {
		return wire.View{}, errTorn
	}
	v.Server, v.Confirmed, v.Epoch, v.Leader, v.Seen, v.Lease, v.Listed = server, s.confirmed, s.Epoch, s.leader, s.seen, s.Lease, s.listed
	v.Revision = fmt.Sprintf("%s %v %d", server, q.Follow, revision)
	v.Drains, v.Hold, v.Restarts = maps.Clone(s.drains), s.hold, maps.Clone(s.restarts)
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
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.now
	if s.revision < t.acked[q.Self].revision {
		return wire.View{}, fmt.Errorf("read of %d: the table is older than what it has shown", q.Self)
	}
	if t.piecewise && q.Follow && q.Since == "" && q.Self == s.leader && s.Epoch < wire.MaxEpoch {
		for _, id := range slices.Sorted(maps.Keys(s.Members)) {
			if g := s.guards[id]; g.epoch < s.Epoch {
				s.guards[id] = guard{g.reading, s.Epoch, s.Epoch}
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
