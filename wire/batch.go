package wire

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// before is an order of a batch as it was before the batch.
type before struct {
	*entry
	was  Order
	sent uint64
}

// next returns the batch to write: the one without an answer again, or what has changed;
// nil if there is nothing, or the leader must stop.
func (d *dispatch) next() *Batch {
	switch {
	case d.above > 0:
		return nil
	case d.batch != nil || d.idle:
		return d.batch
	}
	b := &Batch{Epoch: d.epoch, Version: d.epoch + d.count + 1}
	records, bytes := 0, 0
	room := func(texts ...string) bool { // any one record has room
		n := bytes
		for _, text := range texts {
			n += len(text)
		}
		if records == d.limit || records > 0 && n > MaxBatchBytes {
			return false
		}
		records, bytes = records+1, n
		return true
	}
	full := d.addTasks(b, room) // before their first orders
	for id, beat := range d.evict {
		if b.Evict == nil {
			b.Evict = make(map[uint64]uint64)
		}
		if full = full || !room(); !full {
			b.Evict[id] = beat
		}
	}
	full = d.addOrders(b, room) || full
	for len(d.dropped) > 0 && room(d.dropped[0].Task) {
		o := d.dropped[0]
		d.dropped = d.dropped[1:]
		if m := d.members[o.Member]; m == nil || m.orders[o.Task] == nil { // not ordered again since
			b.Dropped = append(b.Dropped, o)
		}
	}
	d.evict, d.idle = nil, !full && len(d.dropped) == 0
	if b.Len() == 0 && !b.Listed {
		return nil
	}
	d.count++
	d.batch = b
	return b
}

// addTasks adds what the list in force lacks, and what is too much in it.
func (d *dispatch) addTasks(b *Batch, room func(texts ...string) bool) (full bool) {
	if d.written && !d.toList {
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(d.goal)) {
		t := d.goal[name]
		if was, ok := d.tasks[name]; ok && sameTask(was, t) || full {
			continue
		}
		if full = !room(append([]string{name}, t.Requires...)...); !full {
			b.Tasks = append(b.Tasks, t)
		}
	}
	for name := range d.tasks {
		if _, ok := d.goal[name]; ok || full {
			continue
		}
		if full = !room(name); !full {
			b.Deleted = append(b.Deleted, name)
		}
	}
	slices.Sort(b.Deleted)
	d.written, b.Listed = !full, d.toList && !full
	return full
}

// addOrders adds the orders that may be written now.
func (d *dispatch) addOrders(b *Batch, room func(texts ...string) bool) (full bool) {
	if len(d.dirty) == 0 {
		return false
	}
	copies, rest := d.copies(), d.dirty[:0]
	for _, e := range d.dirty {
		m := e.of
		switch {
		case m.gone || !e.dirty:
		case !e.run && e.Version == 0 && !m.also[e.Task]: // it was never to run
			e.dirty = false
			delete(m.orders, e.Task)
			m.touch()
		case full, e.run && !d.allows(e, copies):
			rest = append(rest, e)
		case !room(e.Task):
			full, rest = true, append(rest, e)
		default:
			d.before = append(d.before, before{e, e.Order, m.sent})
			if !m.mayRun(e.Task) {
				copies[e.Task]++
			}
			t := d.goal[e.Task]
			e.Order = Order{Member: m.id, Task: e.Task, Version: b.Version, Stop: !e.run, Input: t.Input, Generation: t.Generation}
			if d.piecewise {
				e.Epoch = d.epoch
			}
			e.dirty, m.sent, m.list = false, b.Version, nil
			b.Orders = append(b.Orders, e.Order)
		}
	}
	d.dirty = rest
	return full
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
		if m := d.members[o.Member]; m != nil {
			m.wait(now)
		}
	}
	d.toList = d.toList && !b.Listed
	d.batch, d.before, d.unsure, d.limit = nil, nil, false, min(2*d.limit, MaxBatch)
}

// setGoal sets the list in force as it is to be, and marks the orders to run whose task has
// another Input or Generation (W7).
func (d *dispatch) setGoal(goal map[string]Task) {
	d.goal, d.written, d.served, d.idle = goal, false, false, false
	for name := range d.rejected {
		d.keep(name)
	}
	for _, m := range d.members {
		for name, e := range m.orders {
			if t, ok := goal[name]; ok && e.run && e.Version > 0 && (e.Input != t.Input || e.Generation != t.Generation) {
				d.mark(e)
			}
		}
	}
}

// refuse records that the batch was certainly not written (B5). Its records are written in
// two batches then. A single one is left out: refuse returns its name.
func (d *dispatch) refuse(why error) (left string) {
	b, all, alone := d.batch, d.before, d.batch.Len() == 1
	d.batch, d.before, d.idle, d.written, d.limit = nil, nil, false, false, max(1, b.Len()/2)
	for _, x := range all {
		m := x.of
		if m.gone || m.orders[x.Task] != x.entry {
			continue
		}
		x.Order, m.sent = x.was, x.sent
		if !alone {
			d.mark(x.entry)
			continue
		}
		left, x.why, x.run = fmt.Sprintf("order for task %q", x.Task), cut(why.Error()), x.Version > 0 && !x.Stop
		if x.Version == 0 {
			delete(m.orders, x.Task)
		}
		m.touch()
	}
	if !alone {
		d.dropped = append(b.Dropped, d.dropped...)
		return ""
	}
	for _, t := range b.Tasks {
		left, d.rejected[t.Name] = fmt.Sprintf("task %q", t.Name), cut(why.Error())
		d.keep(t.Name)
	}
	for _, name := range b.Deleted {
		left, d.rejected[name] = fmt.Sprintf("deletion of task %q", name), cut(why.Error())
		d.keep(name)
	}
	return cmp.Or(left, "a record to delete")
}

// keep makes a task of the list in force stay as the table has it.
func (d *dispatch) keep(name string) {
	if was, ok := d.tasks[name]; ok {
		d.goal[name] = was
	} else {
		delete(d.goal, name)
	}
}
