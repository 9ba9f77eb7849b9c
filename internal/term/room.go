package term

// Room for starts where rules limit the copies (P10).

import (
	"slices"

	"github.com/f8949c05/orchestrator/internal/handover"
)

// place is a worker, or, if task is not None, a zone for that task. The number of its copies is limited.
type place struct{ task, at int32 }

// room counts how many more copies fit in a place, for those that it was asked for.
type room struct {
	*decider
	free map[place]int32
	on   map[int32][]int // the tasks with a limit for each zone that change, and their workers
}

// at returns the limited places in which a copy of a task on a worker counts.
func (r *room) at(task, worker int32) (places []place) {
	if worker == handover.None {
		return nil
	}
	if w := r.fleet.Workers[worker]; rulesOf(w).MaxTasks > 0 {
		p := place{handover.None, worker}
		if _, known := r.free[p]; !known {
			r.free[p] = rulesOf(w).MaxTasks - int32(w.Holds())
		}
		places = append(places, p)
	}
	if limit, capped := r.expect.zoneCap(task); capped {
		p := place{task, r.fleet.rules.zoneOf(int(worker))}
		if _, known := r.free[p]; !known {
			r.free[p] = limit
			for _, i := range r.on[task] {
				if r.fleet.rules.zoneOf(i) == p.at {
					r.free[p]--
				}
			}
		}
		places = append(places, p)
	}
	return places
}

// waitForRoom lets each start and move without free room wait for one change that makes it, or leaves
// it out. A move inside a zone needs none there, and makes none. Copies that wait for each other in a circle change
// places: one of them stops first. If tasks have a limit for each zone, waitForRoom takes a pass
// over all instances.
func (d *decider) waitForRoom() {
	if d.fleet.rules.maxTasks == nil && d.expect.MaxPerZone == nil {
		return
	}
	r, changes := room{decider: d, free: make(map[place]int32)}, d.out.Changes
	capped := []int32{}
	for i := range changes {
		if _, limited := d.expect.zoneCap(changes[i].Task); limited {
			capped = append(capped, changes[i].Task)
		}
	}
	if len(capped) > 0 {
		r.on = d.fleet.runners(capped)
	}
	givers := make(map[place][]int32) // those that no change waits for
	for i := range changes {
		if c := &changes[i]; c.Skip == handover.NotSkipped {
			keeps := r.at(c.Task, c.To)
			for _, p := range r.at(c.Task, c.From) {
				if !slices.Contains(keeps, p) {
					givers[p] = append(givers[p], int32(i))
				}
			}
		}
	}
	for i := range changes {
		c := &changes[i]
		if c.To == handover.None || c.Skip != handover.NotSkipped {
			continue
		}
		from := r.at(c.Task, c.From)
		takes := slices.DeleteFunc(r.at(c.Task, c.To), func(p place) bool { return slices.Contains(from, p) })
		for _, p := range takes {
			if r.free[p] > 0 {
				r.free[p]--
				continue
			}
			// It waits for one change at most. Where there are too many, one makes no room.
			if r.free[p] < 0 || len(givers[p]) == 0 || c.After != 0 {
				c.Skip, c.After = handover.NoRoom, 0
				break
			}
			c.After, givers[p] = givers[p][0]+1, givers[p][1:]
		}
	}
	d.openCircles()
	for again := true; again; { // those that wait for a change that is skipped
		again = false
		for i := range changes {
			if c := &changes[i]; c.Skip == handover.NotSkipped && c.After != 0 && changes[c.After-1].Skip != handover.NotSkipped {
				c.Skip, again = handover.NoRoom, true
			}
		}
	}
	d.dropWithoutRoom()
}

// dropWithoutRoom drops the moves that are skipped: a copy that should leave its worker waits, and
// another move is deferred. A start that is skipped stays in the plan.
func (d *decider) dropWithoutRoom() {
	kept, index := d.out.Changes[:0], make([]int32, len(d.out.Changes))
	for i, c := range d.out.Changes {
		if c.Skip != handover.NoRoom || !c.isMove() {
			kept = append(kept, c)
			index[i] = int32(len(kept))
			continue
		}
		d.out.Adds--
		d.out.LowerBound = min(d.out.LowerBound, d.out.Adds)
		switch c.Reason {
		case ReasonRebalance, ReasonRoom:
			d.out.Deferred++
			continue
		case ReasonDrain:
			c.Reason = ReasonNoPlace
		}
		d.out.Waiting = append(d.out.Waiting, Waiting{Task: c.Task, Instances: 1, Reason: c.Reason, Worker: c.From})
	}
	for i := range kept {
		if c := &kept[i]; c.After > 0 && c.Skip == handover.NotSkipped {
			c.After = index[c.After-1]
		}
	}
	d.out.Changes = kept
}

// openCircles lets one move of those that wait for each other in a circle stop before there is room for
// it. If all moves of a circle start first, they are skipped. If one of them is for an even spread, the
// next term makes one move at most, for which there is room.
func (d *decider) openCircles() {
	changes, walks := d.out.Changes, make([]int, len(d.out.Changes))
	for i := range changes {
		at := int32(i)
		for at >= 0 && walks[at] == 0 {
			walks[at] = i + 1
			at = changes[at].After - 1
		}
		if at < 0 || walks[at] != i+1 {
			continue // there is no circle, or it was seen before
		}
		open := false
		for first := at; ; {
			c := &changes[at]
			c.Last = false
			if !open && !c.StartFirst {
				c.Loose, open = true, true
			}
			if at = c.After - 1; at == first {
				break
			}
		}
		for ; !open && changes[at].Skip == handover.NotSkipped; at = changes[at].After - 1 {
			changes[at].Skip = handover.NoRoom
			if changes[at].Reason == ReasonRebalance {
				d.fleet.singleIn = d.now.Term + 1
			}
		}
	}
}

// runners returns the workers that run or may run some tasks, all if it is nil, by index. It takes
// a pass over all instances.
func (f *Fleet) runners(of []int32) map[int32][]int {
	on, round := make(map[int32][]int), f.stamp(of)
	for i, w := range f.Workers {
		for _, tasks := range [][]int32{w.runs, w.unsure.sorted()} {
			for _, task := range tasks {
				if all := on[task]; (of == nil || f.stamps[task] == round) && (len(all) == 0 || all[len(all)-1] != i) {
					on[task] = append(all, i)
				}
			}
		}
	}
	return on
}
