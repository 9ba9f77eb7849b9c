package term

// Why an instance has no place (P12).

import (
	"slices"

	"github.com/f8949c05/orchestrator/internal/handover"
	"github.com/f8949c05/orchestrator/rebalance"
)

// Causes counts the open workers by the first cause for which they do not take an instance, in
// the order of the fields. The counts add up to Workers.
type Causes struct {
	Workers int // open ones
	// Lacking counts the workers by the first required label that they do not fulfil, in the
	// order of the labels.
	Lacking     []LabelCount
	ZoneFull    int
	NoRoom      int // they run as many tasks as they may
	Running     int // they run a copy
	Quarantined int
	Paused      int // for the task
	Free        int // nothing stands against a later term
}

// LabelCount is a required label and the number of workers that do not fulfil it.
type LabelCount struct {
	Label   string
	Workers int
}

// unplaced has the reasons of waiting that no worker takes the instance.
var unplaced = []Reason{ReasonNoPlace, ReasonNoOtherWorker, ReasonPaused, ReasonRequires, ReasonZone, ReasonLimit}

// findCauses adds the causes to the instances without a place, if some rule is set. It takes
// O(classes · workers) and O(1) for each copy of their tasks, and a pass over all instances.
func (d *decider) findCauses() {
	if !d.fleet.rules.ruled {
		return
	}
	var rows []int
	var tasks []int32
	for i := range d.out.Waiting {
		if w := &d.out.Waiting[i]; slices.Contains(unplaced, w.Reason) {
			rows, tasks = append(rows, i), append(tasks, w.Task)
		}
	}
	if len(rows) == 0 {
		return
	}
	v := d.decided()
	on := d.copiesOf(tasks)
	found := make(map[int32]*Causes)
	for _, i := range rows {
		w := &d.out.Waiting[i]
		if found[w.Task] == nil {
			found[w.Task] = v.causes(w.Task, on[w.Task])
		}
		w.Causes = found[w.Task]
	}
}

// copiesOf returns the workers that run some tasks, all if it is nil, or may, by index, as the plan
// leaves them.
func (d *decider) copiesOf(tasks []int32) map[int32][]int {
	on := d.fleet.runners(tasks)
	for i := range d.out.Changes {
		c := &d.out.Changes[i]
		on[c.Task] = replaced(on[c.Task], c.From, c.To)
	}
	return on
}

// replaced returns workers without one and with another, by index; either may be None.
func replaced(on []int, from, to int32) []int {
	on = slices.DeleteFunc(on, func(i int) bool { return i == int(from) })
	if to != handover.None {
		on = append(on, int(to))
	}
	return on
}

// decidedFleet is a fleet as a plan leaves it.
type decidedFleet struct {
	*decider

	open []bool // by worker
	sick []bool // by worker: it is quarantined
	full []bool // by worker: it runs as many tasks as it may
	by   map[int32]*classCauses
}

// classCauses counts the open workers by what stands against a class, whatever the task.
type classCauses struct {
	lacking []LabelCount
	zones   []zoneCauses // by zone: of the workers whose labels fit
}

type zoneCauses struct{ noRoom, quarantined, free int }

// decided returns the fleet as the plan leaves it.
func (d *decider) decided() *decidedFleet {
	n := len(d.fleet.Workers)
	v := &decidedFleet{
		decider: d, open: make([]bool, n), sick: make([]bool, n), full: make([]bool, n),
		by: make(map[int32]*classCauses),
	}
	after := d.loadsAfter()
	for i, w := range d.fleet.Workers {
		limit := rulesOf(w).MaxTasks
		v.open[i], v.full[i] = w.isOpen(), limit > 0 && after[i] >= int(limit)
	}
	for at, state := range d.problem.States {
		v.sick[d.index[at]] = state == rebalance.Quarantined
	}
	return v
}

// class returns what stands against a class.
func (v *decidedFleet) class(class int32) *classCauses {
	if c := v.by[class]; c != nil {
		return c
	}
	r := &v.fleet.rules
	c := &classCauses{zones: make([]zoneCauses, max(r.zones, 1))}
	v.by[class] = c
	var requires []string
	if int(class) < len(v.expect.Requires) {
		requires = v.expect.Requires[class]
	}
	counts := make([]int, len(requires)) // of the workers that lack each
	for i, open := range v.open {
		if !open {
			continue
		}
		if !r.mayRun(class, i) {
			counts[slices.Index(requires, lacking(r.labels[r.kind[i]], requires))]++
			continue
		}
		zone := &c.zones[r.zoneOf(i)]
		switch {
		case v.full[i]:
			zone.noRoom++
		case v.sick[i]:
			zone.quarantined++
		default:
			zone.free++
		}
	}
	for k, n := range counts {
		if n > 0 {
			c.lacking = append(c.lacking, LabelCount{requires[k], n})
		}
	}
	return c
}

// causes returns why no worker takes an instance of a task, which runs on some workers.
func (v *decidedFleet) causes(task int32, on []int) *Causes {
	r, class := &v.fleet.rules, v.expect.classOf(task)
	of := v.class(class)
	out := &Causes{Lacking: of.lacking}
	limit, capped := v.expect.zoneCap(task)
	if n := v.expect.Instances[task]; !capped && r.zones > 1 && n > 1 && (v.expect.MaxPerZone == nil || v.expect.MaxPerZone[task] == 0) {
		limit, capped = (n+r.zones-1)/r.zones, true // P13
	}
	copies := make([]int32, len(of.zones))
	for _, i := range on {
		copies[r.zoneOf(i)]++
	}
	isFull := func(zone int32) bool { return capped && copies[zone] >= limit }
	for z := range of.zones {
		zone := &of.zones[z]
		if isFull(int32(z)) {
			out.ZoneFull += zone.noRoom + zone.quarantined + zone.free
			continue
		}
		out.NoRoom += zone.noRoom
		out.Quarantined += zone.quarantined
		out.Free += zone.free
	}
	// take reports whether no earlier cause applies to a worker, and counts it no more.
	take := func(i int) bool {
		switch {
		case !v.open[i] || !r.mayRun(class, i) || isFull(r.zoneOf(i)) || v.full[i]:
			return false
		case v.sick[i]:
			out.Quarantined--
		default:
			out.Free--
		}
		return true
	}
	runs := make(map[int]bool, len(on))
	for _, i := range on {
		if !runs[i] && take(i) {
			out.Running++
		}
		runs[i] = true
	}
	v.countPaused(task, out, func(i int) bool { return !runs[i] && !v.sick[i] && take(i) })
	for _, l := range out.Lacking {
		out.Workers += l.Workers
	}
	out.Workers += out.ZoneFull + out.NoRoom + out.Running + out.Quarantined + out.Paused + out.Free
	return out
}

// countPaused counts the workers on which a task pauses. take reports whether no earlier cause
// applies to a worker.
func (v *decidedFleet) countPaused(task int32, out *Causes, take func(worker int) bool) {
	failed := v.breakers.tasks[task]
	switch {
	case failed == nil:
	case failed.suspect && failed.pause.active(v.now):
		out.Paused, out.Free = out.Paused+out.Free, 0
	default:
		for i, w := range v.fleet.Workers {
			pause := v.breakers.pauseOn(taskOn{Task: task, Worker: w.Serial})
			if pause.active(v.now) && take(i) {
				out.Paused++
			}
		}
	}
}
