package rebalance

// The copies, on open workers, of the tasks that have too many there. Those
// tasks are numbered in order, so that what is kept of each is small and close
// together where they are few.

type overs struct {
	total int // how many copies are too much
	tasks numbering

	// By number of a task.
	of   []over
	head []int32 // the latest of its copies, plus one; see link

	copies []overCopy // by worker
	first  []int32    // by worker: its first in copies; one more at the end
	next   []int32    // by worker: trim: the first that was not looked at yet
	linked bool
}

type over struct {
	excess int32  // how many copies there are too many
	met    uint32 // when it was last met; see its users
}

type overCopy struct {
	task, number     int32
	worker, position int32
	next             int32 // the one before of the same task, plus one; see link
}

// reset forgets all.
func (o *overs) reset(tasks int) {
	o.tasks.set, o.total = o.tasks.emptied(tasks), 0
	o.of = o.of[:0]
}

// add notes that a task has n copies too many. Tasks are added in order.
func (o *overs) add(t, n int32) {
	o.tasks.add(t)
	o.of = append(o.of, over{excess: n})
	o.total += int(n)
}

// collect collects the copies. One pass over the lists of the open workers.
func (o *overs) collect(p *Planner) {
	o.tasks.number()
	o.first, o.copies, o.linked = o.first[:0], o.copies[:0], false
	tasks := o.tasks.set
	for w, list := range p.Held {
		o.first = append(o.first, int32(len(o.copies)))
		if p.States[w] != Open {
			continue
		}
		for k, t := range list {
			if !tasks.has(t) {
				continue
			}
			if at := p.offset[w] + int32(k); p.flags[at] == kept {
				o.copies = append(o.copies, overCopy{task: t, number: o.tasks.of(t), worker: int32(w), position: at})
			}
		}
	}
	o.first = append(o.first, int32(len(o.copies)))
}

// on returns the copies on w.
func (o *overs) on(w int32) []overCopy {
	if len(o.copies) == 0 {
		return nil
	}
	return o.copies[o.first[w]:o.first[w+1]]
}

// link lets the copies be found by task, for searches.
func (o *overs) link() {
	if o.linked || len(o.copies) == 0 {
		return
	}
	o.linked = true
	o.head = sized(o.head, len(o.of))
	for number := range o.of {
		o.of[number].met = 0
	}
	for i := range o.copies {
		c := &o.copies[i]
		c.next = o.head[c.number]
		o.head[c.number] = int32(i) + 1
	}
}
