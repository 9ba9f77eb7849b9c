package replica

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// next returns the batch to write: the one without an answer again, or what has changed and
// the members to evict; nil if there is nothing, or the leader must stop. Deletions of orders
// alone wait for a Sync that is due anyway: sync says that this is one.
func (d *dispatch) next(evict map[uint64]uint64, sync bool) *Batch {
	switch {
	case d.above > 0:
		return nil
	case d.batch != nil || d.idle && len(evict) == 0 && (!sync || !d.tidy):
		return d.batch
	}
	b := &Batch{Epoch: d.epoch, Version: d.epoch + d.count + 1, Evict: make(map[uint64]uint64)}
	full, bytes := false, 0
	room := func(texts ...string) bool { // any one record has room
		for _, text := range texts {
			bytes += len(text)
		}
		full = full || b.Len() == d.limit || b.Len() > 0 && bytes > MaxBatchBytes
		return !full
	}
	d.addTasks(b, room) // before their first orders
	for id, beat := range evict {
		if !d.member(id).kept && room() {
			b.Evict[id] = beat
		}
	}
	d.addOrders(b, room)
	b.Listed, d.idle = d.toList && !full, !full
	d.tidy = !sync && len(b.Dropped) > 0 && b.Len() == len(b.Dropped) && !b.Listed
	if d.tidy || b.Len() == 0 && !b.Listed {
		return nil
	}
	d.count++
	d.batch = b
	return b
}

// addTasks adds what the list in force lacks, and what is too much in it.
func (d *dispatch) addTasks(b *Batch, room func(texts ...string) bool) {
	var changed []string
	for name, t := range d.goal {
		if was, ok := d.tasks[name]; !ok || !sameTask(was, t) {
			changed = append(changed, name)
		}
	}
	for name := range d.tasks {
		if _, ok := d.goal[name]; !ok {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	for _, name := range changed {
		switch t, ok := d.goal[name]; {
		case !room(append([]string{name}, t.Requires...)...):
			return
		case ok:
			b.Tasks = append(b.Tasks, t)
		default:
			b.Deleted = append(b.Deleted, name)
		}
	}
}

// addOrders adds the orders that may be written now, and those to delete.
func (d *dispatch) addOrders(b *Batch, room func(texts ...string) bool) {
	var open []*entry
	for id, m := range d.members {
		for task, e := range m.orders {
			t, listed := d.goal[task]
			over := e.isOver()
			switch {
			case over && e.Version == 0:
				delete(m.orders, task)
				continue
			case d.unlisted && !listed && e.run && !over: // an order without its Input would begin it anew (O8)
				continue
			case over, e.dirty:
			case !e.Stop && e.why == "" && e.Version > m.report.Applied && !isOf(e.Version, d.epoch): // of an earlier epoch (O6)
				e.run, e.dirty = d.hasRoom(e), true
			case !listed || !e.run || e.Input == t.Input && e.Generation == t.Generation: // or W7
				continue
			}
			open = append(open, e)
		}
		if m.gone && len(m.orders) == 0 {
			delete(d.members, id)
		}
	}
	slices.SortFunc(open, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.Task, b.Task), cmp.Compare(a.Member, b.Member))
	})
	for _, e := range open {
		switch over := e.isOver(); {
		case e.run && !over && !d.allows(e):
		case !room(e.Task):
			return
		case over:
			b.Dropped = append(b.Dropped, e.Order)
		default:
			t := d.goal[e.Task]
			e.was = e.Order
			e.Order = Order{Member: e.Member, Task: e.Task, Version: b.Version, Stop: !e.run, Input: t.Input, Generation: t.Generation}
			if d.piecewise {
				e.Epoch = d.epoch
			}
			e.dirty, e.of.list = false, nil
			b.Orders = append(b.Orders, e.Order)
		}
	}
}

// stored records that the batch is in the table.
func (d *dispatch) stored(now time.Time) {
	b := d.batch
	for _, t := range b.Tasks {
		d.tasks[t.Name] = t
	}
	for _, name := range b.Deleted {
		delete(d.tasks, name)
	}
	for _, o := range b.Orders {
		mark(&d.members[o.Member].waiting, true, now)
	}
	d.deleted(b.Dropped)
	d.toList = d.toList && !b.Listed
	d.batch, d.unsure, d.limit = nil, false, min(2*d.limit, MaxBatch)
}

// deleted records that orders are not in the table any more.
func (d *dispatch) deleted(orders []Order) {
	for _, o := range orders {
		d.members[o.Member].orders[o.Task].Order = Order{Member: o.Member, Task: o.Task}
	}
}

// setGoal sets the list in force that the table shall have.
func (d *dispatch) setGoal(goal map[string]Task) {
	d.goal, d.unlisted, d.served, d.idle = goal, false, false, false
	for name := range d.rejected { // it stays as the table has it
		if was, ok := d.tasks[name]; ok {
			goal[name] = was
		} else {
			delete(goal, name)
		}
	}
}

// refuse records that the batch was certainly not written (B5). Its records are written in
// two batches then. A single one is left out: refuse returns its name.
func (d *dispatch) refuse(why error) (left string) {
	b, alone, text := d.batch, d.batch.Len() == 1, cut(why.Error())
	d.batch, d.idle, d.limit = nil, false, max(1, b.Len()/2)
	for _, o := range b.Orders {
		e := d.members[o.Member].orders[o.Task]
		e.Order = e.was
		if d.mark(e); alone {
			left, e.why, e.run, e.dirty = fmt.Sprintf("order for task %q", o.Task), text, e.Version > 0 && !e.Stop, false
		}
		e.of.touch()
	}
	if !alone {
		return ""
	}
	for id := range b.Evict {
		left, d.member(id).kept = fmt.Sprintf("removal of member %d", id), true
	}
	names := b.Deleted
	for _, t := range b.Tasks {
		names = append(names, t.Name)
	}
	for _, name := range names {
		left, d.rejected[name] = fmt.Sprintf("task %q", name), text
	}
	d.setGoal(d.goal)
	d.deleted(b.Dropped)
	return cmp.Or(left, "a record to delete")
}
