package term

// The guard against storms of evictions (P11).

import (
	"slices"
	"time"
)

// stormHold is how long changed labels evict nothing if they would evict too much.
const stormHold = 5 * time.Minute

// storm is a change of labels that would evict more than a part of the running copies, such as
// that of workers that registered again without their labels.
type storm struct {
	since   time.Time // zero: there is none
	movable int       // copies that break the labels' rule, and have a worker that may run them
	over    bool      // it has lasted for stormHold, so copies are evicted
}

// holds reports whether nothing is evicted.
func (s *storm) holds() bool { return !s.since.IsZero() && !s.over }

// watchStorm finds out whether a storm begins or ends. changed: the rules did. During a storm,
// and if the rules changed, it takes a pass over all instances.
func (d *decider) watchStorm(changed bool) {
	s, r := &d.fleet.storm, &d.fleet.rules
	if r.may == nil {
		*s = storm{}
		return
	}
	if !changed && s.since.IsZero() {
		return
	}
	running, evicted, movable := 0, 0, 0
	open := make(map[int32]bool) // the kinds of open workers
	for i, w := range d.fleet.Workers {
		open[r.kind[i]] = open[r.kind[i]] || w.isOpen()
	}
	for i, w := range d.fleet.Workers {
		if w.State == Lost {
			continue
		}
		for _, task := range w.runs {
			if d.expect.Instances[task] == 0 {
				continue
			}
			running++
			if class := d.expect.classOf(task); !w.Draining && !r.mayRun(class, i) {
				evicted++
				if slices.ContainsFunc(r.may[class], func(kind int32) bool { return open[kind] }) {
					movable++
				}
			}
		}
	}
	switch {
	case float64(evicted) <= d.cfg.MaxLoss*float64(running):
		*s = storm{}
		return
	case s.since.IsZero(), changed && movable > s.movable: // it begins, or grows
		*s = storm{since: d.now.Time}
	}
	s.movable, s.over = movable, s.over || d.now.Time.Sub(s.since) >= stormHold
}

// holdEvictions pins the copies of a worker that break the labels' rule: it returns held with
// these before the pinned ones at its end, how many are pinned then, and lists them.
func (d *decider) holdEvictions(i int, held []int32, pinned int32) (kept []int32, pins int32) {
	r := &d.fleet.rules
	breaks := func(task int32) bool {
		return d.expect.Instances[task] > 0 && !r.mayRun(d.expect.classOf(task), i)
	}
	free := len(held) - int(pinned)
	if !slices.ContainsFunc(held[:free], breaks) {
		return held, pinned
	}
	var stay []int32
	for _, task := range held[:free] {
		if breaks(task) {
			stay = append(stay, task)
			d.out.EvictionsHeld++
			d.out.Waiting = append(d.out.Waiting, Waiting{Task: task, Instances: 1, Reason: ReasonEvictionHeld, Worker: int32(i)})
		} else {
			kept = append(kept, task)
		}
	}
	return slices.Concat(kept, stay, held[free:]), pinned + int32(len(stay))
}
