package replica

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
	unlisted  bool              // no answer of a Source is known: goal may lack tasks
	served    bool              // the orchestrator has goal
	toList    bool              // Listed is to be written with the last task
	rejected  map[string]string // tasks that the backend refuses, with why
	idle      bool              // nothing can be written, until something changes
	tidy      bool              // but for orders to delete
	batch     *Batch            // sent and not answered
	unsure    bool              // a Sync with batch had no answer: the table may have it
	limit     int               // records of the next batch
	above     uint64            // a version above all that was written (A9)
}

// memberOrders is what a leader knows of one member.
type memberOrders struct {
	id         uint64
	orders     map[string]*entry
	report     Report
	also       map[string]bool
	starting   map[string]bool
	known      bool          // it has a report; otherwise it may run anything (O9)
	unreadable bool          // its last report cannot be read
	held       bool          // it is silent, by its heartbeat (A10)
	gone       bool          // its orders are to be deleted
	kept       bool          // the backend refuses to remove it
	waiting    time.Time     // since when Applied is below an order's version; zero: it is not
	list       []string      // what it may run; nil: to be computed
	changed    chan struct{} // closed when something of the above has changed
}

// entry is the order for one task on one member, as the table has it or may have it. With
// Version 0 the table has none.
type entry struct {
	Order
	was   Order // before the batch that is sent
	of    *memberOrders
	run   bool   // what is wanted: an order to run
	dirty bool   // to be written
	why   string // the member or the backend has refused it
}

// newDispatch returns what a new leader knows from its first full View with Follow (O6).
func newDispatch(v *View, piecewise bool, now time.Time) *dispatch {
	d := &dispatch{epoch: v.Epoch, piecewise: piecewise, limit: MaxBatch, members: make(map[uint64]*memberOrders), rejected: make(map[string]string), unlisted: !v.Listed}
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

// entry returns the order for a task. A new one is not to run.
func (m *memberOrders) entry(task string) *entry {
	if m.orders[task] == nil {
		m.orders[task] = &entry{Order: Order{Member: m.id, Task: task}, of: m}
	}
	return m.orders[task]
}

// touch records that a member's state has changed.
func (m *memberOrders) touch() {
	m.list = nil
	close(m.changed)
	m.changed = make(chan struct{})
}

// mark marks an order as to be written.
func (d *dispatch) mark(e *entry) { e.dirty, d.idle = true, false }

// isRead reports whether the table has nothing else than what the member has read.
func (e *entry) isRead() bool { return !e.dirty && e.Version <= e.of.report.Applied }

// isOver reports whether to delete the order (O7): the member is gone, or its report
// says that the task has stopped.
func (e *entry) isOver() bool {
	stopped := !e.run && (e.Stop || e.Version == 0) && e.Version <= e.of.report.Applied && !e.of.also[e.Task]
	return e.of.gone || stopped
}

// observe records a View with Follow. A full one shows what is missing, too.
func (d *dispatch) observe(v *View, now time.Time) {
	for _, m := range v.Members {
		d.member(m.ID)
	}
	if v.Full && d.batch == nil { // what a batch writes may be missing, and is not lost
		d.compare(v)
	}
	for _, id := range v.Gone {
		if m := d.members[id]; m != nil {
			m.gone, d.idle = true, false
			m.touch()
		}
	}
	for id, m := range d.members {
		if r, ok := v.Reports[id]; ok {
			d.reported(m, r, now)
		} else if v.Full {
			m.known = false
		}
	}
}

// compare records the orders that were not known, and marks what a full View lacks of what
// is in force (O8).
func (d *dispatch) compare(v *View) {
	there := make(map[Order]bool, len(v.Orders))
	for _, o := range v.Orders {
		there[o] = true
		if e := d.member(o.Member).entry(o.Task); e.Version == 0 && !e.dirty {
			e.Order, e.run, e.of.list = o, !o.Stop, nil
		}
		if o.Epoch > d.epoch && o.Version < MaxSeen {
			d.above = max(d.above, o.Version) // of a later leader (O5)
		}
	}
	for _, m := range d.members {
		m.kept = false
		for _, e := range m.orders {
			if e.Version > 0 && !there[e.Order] {
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
	d.idle = false
}

// reported records a report, and what follows from it (O7, O8, A9).
func (d *dispatch) reported(m *memberOrders, r Report, now time.Time) {
	m.unreadable = r.Applied >= MaxSeen && r.Applied > d.epoch+d.count
	switch {
	case m.unreadable:
		m.touch()
		return
	case r.Applied > d.epoch+d.count:
		d.above = max(d.above, r.Applied)
		return
	}
	m.report, m.known, d.idle = r, true, false
	m.also, m.starting = setOf(r.Also), setOf(r.Starting)
	for task, why := range r.Refused { // not deleted: the member counts its orders to run
		if e := m.orders[task]; e != nil && !e.Stop && e.isRead() {
			e.run, e.why = false, why
			d.mark(e)
		}
	}
	for _, task := range r.Also { // unknown, or the table has lost its order
		if e := m.entry(task); !e.Stop && e.isRead() {
			e.run = true
			d.mark(e)
		}
	}
	unread := false
	for _, e := range m.orders {
		unread = unread || e.Version > r.Applied
	}
	mark(&m.waiting, unread, now)
	m.touch()
}

// keepSilent takes over from an earlier view of the same members which are silent.
func (d *dispatch) keepSilent(from *dispatch) {
	for id, m := range d.members {
		if was := from.members[id]; was != nil {
			if m.held = was.held; !m.waiting.IsZero() && !was.waiting.IsZero() {
				m.waiting = was.waiting
			}
		}
	}
}

func setOf(tasks []string) map[string]bool {
	set := make(map[string]bool, len(tasks))
	for _, task := range tasks {
		set[task] = true
	}
	return set
}

// order makes a member run a task, or stop it, and returns the entry; nil: there is
// nothing to stop.
func (d *dispatch) order(m *memberOrders, task string, run bool) *entry {
	if m.orders[task] == nil && !run {
		return nil
	}
	e := m.entry(task)
	lost := !run && e.isRead() && m.also[task] // an order to stop (O8)
	if e.run != run || lost {
		e.run, e.why = run, ""
		d.mark(e)
	}
	return e
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
	return !m.gone && (e != nil && e.Version > m.report.Applied || m.reports(task))
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
	slices.Sort(first)
	slices.Sort(rest)
	m.list = append(first, rest...)
	return m.list
}

// allows reports whether an order to run may be written now (O3, O9).
func (d *dispatch) allows(e *entry) bool { return e.of.reports(e.Task) || d.hasRoom(e) }

// hasRoom reports whether fewer other members than wanted may run the task of e. A member
// without a report may run any task.
func (d *dispatch) hasRoom(e *entry) bool {
	others := 0
	for _, m := range d.members {
		switch {
		case m == e.of || m.gone:
		case !m.known:
			return false
		case m.mayRun(e.Task):
			others++
		}
	}
	t := d.goal[e.Task]
	return others < t.wanted()
}
