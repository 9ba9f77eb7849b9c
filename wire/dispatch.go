package wire

import (
	"maps"
	"slices"
	"time"
)

// dispatch holds what a leader knows of orders and reports, and decides what it writes
// next. It makes no call; times are the replica's own.
type dispatch struct {
	epoch     uint64
	piecewise bool
	count     uint64 // batches written
	members   map[uint64]*memberOrders
	tasks     map[string]Task   // the list in force, as the table has it
	goal      map[string]Task   // the list in force, as it is to be
	written   bool              // tasks and batch together are goal
	served    bool              // the orchestrator has goal
	toList    bool              // Listed is to be written with the last task
	rejected  map[string]string // tasks that the backend refuses, with why
	dirty     []*entry
	dropped   []Order
	evict     map[uint64]uint64
	idle      bool     // nothing of the above can be written, until something changes
	batch     *Batch   // sent and not answered
	before    []before // the entries of its orders, as they were
	unsure    bool     // a Sync with batch had no answer: the table may have it
	limit     int      // records of the next batch
	above     uint64   // a version above all that was written (A9)
}

// memberOrders is what a leader knows of one member.
type memberOrders struct {
	id         uint64
	orders     map[string]*entry
	report     Report
	also       map[string]bool
	starting   map[string]bool
	known      bool // it has a report; otherwise it may run anything (O9)
	unreadable bool // its last report cannot be read
	held       bool // it is silent, by its heartbeat (A10)
	gone       bool
	// sent is the highest version that was sent, and waiting since when Applied is below
	// it; zero if it is not.
	sent    uint64
	waiting time.Time
	list    []string      // what it may run; nil: to be computed
	changed chan struct{} // closed when something of the above has changed
}

// entry is the order for one task on one member, as the table has it or may have it. With
// Version 0 none was written.
type entry struct {
	Order
	of    *memberOrders
	run   bool   // what is wanted: an order to run
	dirty bool   // to be written
	why   string // the member or the backend has refused it
}

// newDispatch returns what a new leader knows from its first full View with Follow (O6).
func newDispatch(v *View, piecewise bool, now time.Time) *dispatch {
	d := &dispatch{
		epoch: v.Epoch, piecewise: piecewise, limit: MaxBatch,
		members: make(map[uint64]*memberOrders), rejected: make(map[string]string),
	}
	d.observe(v, now)
	return d
}

// member returns what is known of a member.
func (d *dispatch) member(id uint64) *memberOrders {
	m := d.members[id]
	if m == nil {
		m = &memberOrders{id: id, orders: make(map[string]*entry), changed: make(chan struct{})}
		d.members[id] = m
	}
	return m
}

// touch records that a member's state has changed.
func (m *memberOrders) touch() {
	m.list = nil
	close(m.changed)
	m.changed = make(chan struct{})
}

// observe records a View with Follow. A full one shows what is missing, too.
func (d *dispatch) observe(v *View, now time.Time) {
	for _, m := range v.Members {
		d.member(m.ID)
	}
	var found []*entry
	if v.Full && d.batch == nil { // what a batch writes may be missing, and is not lost
		found = d.compare(v)
	}
	for _, id := range v.Gone {
		d.leave(id)
	}
	for id, r := range v.Reports {
		if m := d.members[id]; m != nil {
			d.reported(m, r, now)
		}
	}
	for id, m := range d.members {
		if _, ok := v.Reports[id]; v.Full && !ok {
			m.known = false
		}
	}
	if len(found) == 0 {
		return
	}
	copies := d.copies()
	for _, e := range found { // orders of earlier epochs (O6)
		if !e.Stop && !e.of.gone && e.Version > e.of.report.Applied {
			e.run = d.hasRoom(e, copies)
			d.mark(e)
		}
	}
}

// compare marks what a full View lacks of what is in force (O8), and returns the orders that
// were not known.
func (d *dispatch) compare(v *View) (found []*entry) {
	there := make(map[Order]bool, len(v.Orders))
	for _, o := range v.Orders {
		there[o] = true
		if m := d.member(o.Member); m.orders[o.Task] == nil {
			e := &entry{Order: o, of: m, run: !o.Stop}
			m.orders[o.Task], m.sent = e, max(m.sent, o.Version)
			found = append(found, e)
		}
		if o.Epoch > d.epoch && o.Version < MaxEpoch {
			d.above = max(d.above, o.Version) // of a later leader (O5)
		}
	}
	for _, m := range d.members {
		for _, e := range m.orders {
			if e.Version > 0 && !e.dirty && !there[e.Order] {
				d.mark(e)
			}
		}
	}
	d.tasks = make(map[string]Task, len(v.Tasks))
	for _, t := range v.Tasks {
		d.tasks[t.Name] = t
	}
	if d.goal == nil {
		d.goal = maps.Clone(d.tasks)
	}
	d.idle, d.written = false, false
	return found
}

// reported records a report, and what follows from it (O7, O8, A9).
func (d *dispatch) reported(m *memberOrders, r Report, now time.Time) {
	d.idle = false
	if m.unreadable = r.Applied >= MaxSeen; m.unreadable {
		m.touch()
		return
	}
	if r.Applied > d.epoch+d.count {
		d.above = max(d.above, r.Applied)
		return
	}
	m.report, m.known = r, true
	m.also, m.starting = setOf(r.Also), setOf(r.Starting)
	m.touch()
	for task, e := range m.orders {
		if e.dirty || e.Version == 0 || e.Version > r.Applied {
			continue
		}
		why, refused := r.Refused[task]
		switch {
		case e.Stop && !m.also[task]:
			d.dropped = append(d.dropped, e.Order)
			delete(m.orders, task)
		case !e.Stop && refused: // not deleted: the member counts its orders to run
			e.run, e.why = false, why
			d.mark(e)
		case !e.Stop && m.also[task]: // the table has lost it
			d.mark(e)
		}
	}
	for _, task := range r.Also {
		if m.orders[task] == nil {
			e := &entry{Order: Order{Member: m.id, Task: task}, of: m, run: true}
			m.orders[task] = e
			d.mark(e)
		}
	}
	m.wait(now)
}

func setOf(tasks []string) map[string]bool {
	set := make(map[string]bool, len(tasks))
	for _, task := range tasks {
		set[task] = true
	}
	return set
}

// wait records whether the member has orders that it has not read.
func (m *memberOrders) wait(now time.Time) {
	switch {
	case m.report.Applied >= m.sent:
		m.waiting = time.Time{}
	case m.waiting.IsZero():
		m.waiting = now
	}
}

// leave records that a member is gone: it runs nothing, and its orders are deleted.
func (d *dispatch) leave(id uint64) {
	m := d.members[id]
	if m == nil {
		return
	}
	for _, e := range m.orders {
		if e.Version > 0 {
			d.dropped = append(d.dropped, e.Order)
		}
	}
	m.gone, d.idle = true, false
	delete(d.members, id)
	m.touch()
}

// mark marks an order as to be written.
func (d *dispatch) mark(e *entry) {
	d.idle, e.of.list = false, nil
	if !e.dirty {
		e.dirty = true
		d.dirty = append(d.dirty, e)
	}
}

// order makes a member run a task, or stop it, and returns the entry; nil: there is
// nothing to stop.
func (d *dispatch) order(m *memberOrders, task string, run bool) *entry {
	e := m.orders[task]
	if e == nil {
		if !run {
			return nil
		}
		e = &entry{Order: Order{Member: m.id, Task: task}, of: m}
		m.orders[task] = e
	}
	lost := !run && !e.run && !e.dirty && e.Version <= m.report.Applied && m.also[task] // an order to stop (O8)
	if e.run != run || lost {
		e.run, e.why = run, ""
		d.mark(e)
	}
	return e
}

// withdraw takes an order to run back that was never written, and reports whether it did.
func (d *dispatch) withdraw(e *entry) bool {
	if !e.dirty || !e.run || e.Version > 0 && !e.Stop {
		return false
	}
	e.run, e.dirty = false, false
	if e.Version == 0 {
		delete(e.of.orders, e.Task)
	}
	e.of.touch()
	return true
}

// reports reports whether the member runs a task by its report, or still stops it.
func (m *memberOrders) reports(task string) bool {
	e := m.orders[task]
	if m.also[task] || e == nil || e.Version == 0 || e.Stop || e.Version > m.report.Applied {
		return m.also[task]
	}
	_, refused := m.report.Refused[task]
	return !refused
}

// mayRun reports whether a member may run a task, by all that the table has or may have: an
// order, to run or to stop, that the member has not read counts.
func (m *memberOrders) mayRun(task string) bool {
	e := m.orders[task]
	return e != nil && e.Version > m.report.Applied || m.reports(task)
}

// mayRunAll returns what a member may run, those not yet started first.
func (m *memberOrders) mayRunAll() []string {
	if m.list != nil {
		return m.list
	}
	first, rest := make([]string, 0, len(m.orders)), []string(nil)
	for task, e := range m.orders {
		switch {
		case !m.mayRun(task):
		case e.Version > m.report.Applied || m.starting[task]:
			first = append(first, task)
		default:
			rest = append(rest, task)
		}
	}
	for task := range m.also {
		if m.orders[task] == nil {
			rest = append(rest, task)
		}
	}
	slices.Sort(first)
	slices.Sort(rest)
	m.list = append(first, rest...)
	return m.list
}

// copies returns how many members may run each task. The text "" stands for members without
// a report, which may run any task.
func (d *dispatch) copies() map[string]int {
	copies := make(map[string]int)
	for _, m := range d.members {
		if !m.known {
			copies[""]++
		}
		for _, task := range m.mayRunAll() {
			copies[task]++
		}
	}
	return copies
}

// allows reports whether an order to run may be written now (O3, O9).
func (d *dispatch) allows(e *entry, copies map[string]int) bool {
	return e.of.reports(e.Task) || d.hasRoom(e, copies)
}

// hasRoom reports whether fewer other members than wanted may run the task of e.
func (d *dispatch) hasRoom(e *entry, copies map[string]int) bool {
	others, unknown := copies[e.Task], copies[""]
	if e.of.mayRun(e.Task) {
		others--
	}
	if !e.of.known {
		unknown--
	}
	t := d.goal[e.Task]
	return unknown == 0 && others < t.wanted()
}
