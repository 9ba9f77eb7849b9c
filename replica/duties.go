package replica

import (
	"cmp"
	"maps"
	"slices"

	"github.com/f8949c05/orchestrator/worker"
)

// duties is a member's side of its orders: what it starts and stops, and what it reports.
// It makes no call.
type duties struct {
	piecewise bool
	server    string // of orders
	reading   string // View.Reading of the same View
	orders    map[string]Order
	// accepted has the starts of tasks that run or will start (O1). The order that the
	// table has now may be a later one, or gone.
	accepted map[string]start
	why      map[string]string // why the worker has refused a start
	former   map[string]start  // by task, the last start that was accepted and has ended, also in former lives
	applied  uint64
	// incomplete: the table has another number of orders to run.
	incomplete bool
}

// maxFormer bounds duties.former. Without its former start a task that has asked to run
// elsewhere may come back once.
const maxFormer = 10_000

// start is what the worker is given for a task. token is the version of the order from
// which the run starts, and version that of the order from which it has its input.
type start struct {
	task           string
	token, version uint64
	input          int64
	generation     uint64
}

func newDuties(piecewise bool) *duties {
	return &duties{piecewise: piecewise, orders: make(map[string]Order), accepted: make(map[string]start), why: make(map[string]string), former: make(map[string]start)}
}

// present is what the worker has, by task.
type present map[string]worker.TaskStatus[string]

// read merges a View. The caller drops Views of another Server than that of its newest
// one, and the answers of calls that it has given up (O1).
func (d *duties) read(v *View, self uint64) {
	if v.Full || v.Server != d.server || v.Reading != d.reading { // of another order record
		clear(d.orders)
	}
	d.server, d.reading = v.Server, v.Reading
	for _, o := range v.Orders {
		if o.Member == self {
			d.orders[o.Task] = o
		}
	}
	toRun := 0
	for _, o := range d.orders {
		if !o.Stop {
			toRun++
		}
	}
	d.incomplete = toRun != v.OrderCount
}

// accept decides about every order (O1, O6), and raises Applied. live: the table is
// confirmed, and the lease was acknowledged in it; epoch is that of the table. An order to
// run that is at most Applied then, and was not accepted, is refused.
func (d *duties) accept(have present, epoch uint64, live bool) {
	applied := d.applied
	for task, o := range d.orders {
		starts := live && o.Version > d.applied && isOf(o.Version, epoch) && (!d.piecewise || o.Epoch == epoch)
		_, here := have[task]
		from, accepted := d.accepted[task]
		switch {
		case o.Version >= MaxSeen && !isOf(o.Version, epoch): // no leader has written it
		case o.Stop:
			d.end(task)
			delete(d.why, task)
			applied = max(applied, o.Version)
		case here || accepted || starts:
			if was, ok := d.former[task]; ok && !accepted && was.input == o.Input && was.generation == o.Generation {
				from, from.token = was, o.Version // its input has the same version: see worker.Reschedule
			}
			d.accepted[task] = from.after(o)
			delete(d.why, task)
			applied = max(applied, o.Version)
		}
	}
	d.applied = applied
}

// after returns the start of a task that has another order to run. A later order changes
// neither run nor token, unless its Input or Generation differs.
func (s start) after(o Order) start {
	switch {
	case s.task == "":
		return start{o.Task, o.Version, o.Version, o.Input, o.Generation}
	case s.input == o.Input && s.generation == o.Generation:
		return s
	}
	s.version = max(o.Version, s.version+1)
	if s.generation != o.Generation {
		s.token = s.version
	}
	s.input, s.generation = o.Input, o.Generation
	return s
}

// isOf reports whether the leader of an epoch wrote a version.
func isOf(version, epoch uint64) bool { return version >= epoch && version-epoch < epochStep }

// steps returns what the worker is to do, in the order of the tasks: all that follows from
// the accepted orders, not only from new ones (O2).
func (d *duties) steps(have present) (add, update []start, remove []string) {
	for task, o := range d.accepted {
		switch s, here := have[task]; {
		case !here:
			add = append(add, o)
		case s.State == worker.Stopping: // it starts when the earlier run has ended
		case s.Version < int64(o.version) || s.Token < o.token:
			update = append(update, o)
		}
	}
	for task, o := range d.orders {
		if s, here := have[task]; o.Stop && here && s.State != worker.Stopping {
			remove = append(remove, task)
		}
	}
	byTask := func(a, b start) int { return cmp.Compare(a.task, b.task) }
	slices.SortFunc(add, byTask)
	slices.SortFunc(update, byTask)
	slices.Sort(remove)
	return add, update, remove
}

// fail records that the worker has refused to start a task from an order.
func (d *duties) fail(from start, why string) {
	if d.accepted[from.task] == from {
		d.end(from.task)
		d.why[from.task] = why
	}
}

// end records that an accepted start, if there is one, has ended.
func (d *duties) end(task string) {
	if s, ok := d.accepted[task]; ok {
		if len(d.former) == maxFormer {
			clear(d.former)
		}
		d.former[task] = s
		delete(d.accepted, task)
	}
}

// forget drops the orders to stop of tasks that have stopped, once a report that says so was
// published (O7).
func (d *duties) forget(published *Report, have present) {
	maps.DeleteFunc(d.orders, func(task string, o Order) bool {
		_, here := have[task]
		return o.Stop && !here && o.Version <= published.Applied
	})
}

// report returns the present report (O2).
func (d *duties) report(have present) Report {
	r := Report{Applied: d.applied, Refused: make(map[string]string)}
	runs := make(map[string]bool) // by an accepted order, which the table has
	var refused []string
	for task, o := range d.orders {
		_, accepted := d.accepted[task]
		_, here := have[task]
		if runs[task] = accepted && !o.Stop; !o.Stop && !accepted && !here && o.Version <= d.applied {
			refused = append(refused, task)
		}
	}
	for task, s := range have {
		if !runs[task] {
			r.Also = append(r.Also, task)
		} else if s.State == worker.Starting {
			r.Starting = append(r.Starting, task)
		}
		if s.State != worker.Running || s.Err != nil {
			r.States = append(r.States, stateOf(s))
		}
	}
	for task := range d.accepted {
		if _, here := have[task]; !here && !runs[task] {
			r.Also = append(r.Also, task)
		}
	}
	slices.Sort(r.Also)
	slices.Sort(r.Starting)
	slices.SortFunc(r.States, func(a, b TaskState) int { return cmp.Compare(a.Task, b.Task) })
	r.More = max(0, len(r.States)-maxListed)
	r.States = r.States[:len(r.States)-r.More]
	slices.Sort(refused)
	for i, task := range refused {
		if r.Refused[task] = ""; i < maxListed {
			r.Refused[task] = cut(cmp.Or(d.why[task], "the order was not above Applied when it was read"))
		}
	}
	return r
}

func stateOf(s worker.TaskStatus[string]) TaskState {
	t := TaskState{Task: s.Task, State: s.State.String(), Restarts: s.Restarts, Attempts: s.Attempts, Since: s.Since, Failing: s.Failing}
	if s.Err != nil {
		t.Err = cut(s.Err.Error())
	}
	return t
}

// cut shortens a text to the length that reports have at most.
func cut(text string) string { return text[:min(len(text), maxReason)] }

// sameReport reports whether two reports differ in nothing but the states of tasks, which
// alone cause no Sync (O2).
func sameReport(a, b Report) bool {
	return a.Applied == b.Applied && slices.Equal(a.Also, b.Also) && slices.Equal(a.Starting, b.Starting) && maps.Equal(a.Refused, b.Refused)
}
