package term

// Room for starts where rules limit the copies (P10).

import (
	"slices"

	"github.com/f8949c05/orchestrator/internal/handover"
)

// roomFor returns the room for the starts of some changes, and false if no rule limits them. It
// takes a step for each change, and a pass over all instances if a task with a limit for each
// zone changes.
func (f *Fleet) roomFor(t *Tasks, changes []Change) (handover.Room, bool) {
	var room handover.Room
	r := &f.rules
	if !r.ruled || r.maxTasks == nil && t.MaxPerZone == nil {
		return room, false
	}
	none := [2]int32{handover.None, handover.None}
	room.Takes, room.Gives = slices.Repeat([][2]int32{none}, len(changes)), slices.Repeat([][2]int32{none}, len(changes))
	workers := make(map[int32]int32) // by worker: its place
	atWorker := func(w int32) int32 {
		if w == handover.None || r.maxTasks == nil || r.maxTasks[w] == 0 {
			return handover.None
		}
		p, known := workers[w]
		if !known {
			p = int32(len(room.Free))
			workers[w] = p
			room.Free = append(room.Free, r.maxTasks[w]-int32(f.Workers[w].Holds()))
		}
		return p
	}
	for i := range changes {
		c := &changes[i]
		room.Takes[i][0], room.Gives[i][0] = atWorker(c.To), atWorker(c.From)
	}
	f.addZones(t, changes, &room)
	return room, true
}

// taskIn is a task and the number of a zone.
type taskIn struct{ task, zone int32 }

// addZones adds the room of tasks in zones. A move inside a zone needs none.
func (f *Fleet) addZones(t *Tasks, changes []Change, room *handover.Room) {
	r := &f.rules
	if t.MaxPerZone == nil {
		return
	}
	round, some := f.nextRound(), false
	for i := range changes {
		if _, limited := t.zoneCap(changes[i].Task); limited {
			f.stamps[changes[i].Task], some = round, true
		}
	}
	if !some {
		return
	}
	zones := make(map[taskIn]int32) // the place of each
	at := func(task, worker int32) int32 {
		if worker == handover.None {
			return handover.None
		}
		in := taskIn{task, r.zoneOf(int(worker))}
		p, known := zones[in]
		if !known {
			p = int32(len(room.Free))
			zones[in] = p
			limit, _ := t.zoneCap(task)
			room.Free = append(room.Free, limit)
		}
		return p
	}
	for i := range changes {
		c := &changes[i]
		if _, limited := t.zoneCap(c.Task); !limited {
			continue
		}
		to, from := at(c.Task, c.To), at(c.Task, c.From)
		if to != from {
			room.Takes[i][1], room.Gives[i][1] = to, from
		}
	}
	for task, on := range f.runners(round) {
		for _, w := range on {
			if p, ok := zones[taskIn{task, r.zoneOf(w)}]; ok {
				room.Free[p]--
			}
		}
	}
}

// runners returns the workers that run or may run the tasks with the stamp of a round, by
// index. It takes a pass over all instances.
func (f *Fleet) runners(round uint32) map[int32][]int {
	on := make(map[int32][]int)
	for i, w := range f.Workers {
		for _, tasks := range [][]int32{w.runs, w.unsure.sorted()} {
			for _, task := range tasks {
				if all := on[task]; f.stamps[task] == round && (len(all) == 0 || all[len(all)-1] != i) {
					on[task] = append(all, i)
				}
			}
		}
	}
	return on
}

// dropWithoutRoom drops the moves that start first and have no room: they count at both ends,
// so they use only what is free now, or what stops make free that do not wait for a start. A
// copy that should leave its worker waits, and another move is deferred.
func (d *decider) dropWithoutRoom() {
	if !slices.ContainsFunc(d.out.Changes, func(c Change) bool { return c.StartFirst && c.isMove() }) {
		return
	}
	room, limited := d.fleet.roomFor(d.expect, d.out.Changes)
	if !limited {
		return
	}
	add := func(places [2]int32, n int32) {
		for _, p := range places {
			if p != handover.None {
				room.Free[p] += n
			}
		}
	}
	for i := range d.out.Changes {
		if c := &d.out.Changes[i]; !c.StartFirst || !c.isMove() {
			add(room.Gives[i], 1)
			add(room.Takes[i], -1)
		}
	}
	kept := d.out.Changes[:0]
	for i, c := range d.out.Changes {
		full := slices.ContainsFunc(room.Takes[i][:], func(p int32) bool { return p != handover.None && room.Free[p] <= 0 })
		if !c.StartFirst || !c.isMove() || !full {
			if c.StartFirst && c.isMove() {
				add(room.Takes[i], -1)
			}
			kept = append(kept, c)
			continue
		}
		d.out.Adds--
		d.out.LowerBound = min(d.out.LowerBound, d.out.Adds)
		why := c.Reason
		switch why {
		case ReasonRebalance:
			d.out.Deferred++
			continue
		case ReasonDrain:
			why = ReasonNoPlace
		}
		d.out.Waiting = append(d.out.Waiting, Waiting{Task: c.Task, Instances: 1, Reason: why, Worker: c.From})
	}
	d.out.Changes = kept
}
