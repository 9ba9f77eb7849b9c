package rebalance

import "math/bits"

// The copies, on open workers, of the tasks that have too many there. Those
// tasks are numbered in order, so that what is kept of each is small and close
// together where they are few.

type overs struct {
	total  int      // how many copies are too much
	tasks  []uint64 // a bit for each task
	before []int32  // by word of tasks: how many tasks have a bit in those before it

	// By number of a task.
	excess []int32 // how many copies it has too many
	head   []int32 // the latest of its copies, plus one; see link
	met    []uint32

	copies []overCopy // by worker
	first  []int32    // by worker: its first in copies; one more at the end
	linked bool
}

type overCopy struct {
	task, number     int32
	worker, position int32
	next             int32 // the one before of the same task, plus one; see link
}

// reset forgets all.
func (o *overs) reset(tasks int) {
	o.tasks, o.total = sized(o.tasks, (tasks+63)/64), 0
	o.excess = o.excess[:0]
}

// add notes that a task has n copies too many. Tasks are added in order.
func (o *overs) add(t, n int32) {
	o.tasks[t/64] |= 1 << (t % 64)
	o.excess = append(o.excess, n)
	o.total += int(n)
}

// collect collects the copies. One pass over the lists of the open workers.
func (o *overs) collect(p *Planner) {
	o.before = o.before[:0]
	n := int32(0)
	for _, word := range o.tasks {
		o.before = append(o.before, n)
		n += int32(bits.OnesCount64(word))
	}
	o.first, o.copies, o.linked = o.first[:0], o.copies[:0], false
	tasks := o.tasks
	for w, list := range p.Held {
		o.first = append(o.first, int32(len(o.copies)))
		if p.States[w] != Open {
			continue
		}
		for k, t := range list {
			word, bit := uint32(t)/64, uint32(t)%64
			if tasks[word]>>bit&1 == 0 {
				continue
			}
			at := p.offset[w] + int32(k)
			if p.flags[at] != kept {
				continue
			}
			number := o.before[word] + int32(bits.OnesCount64(tasks[word]&(1<<bit-1)))
			o.copies = append(o.copies, overCopy{task: t, number: number, worker: int32(w), position: at})
		}
	}
	o.first = append(o.first, int32(len(o.copies)))
}

// of returns the copies on w.
func (o *overs) of(w int32) []overCopy {
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
	o.head = sized(o.head, len(o.excess))
	o.met = sized(o.met, len(o.excess))
	for i := range o.copies {
		c := &o.copies[i]
		c.next = o.head[c.number]
		o.head[c.number] = int32(i) + 1
	}
}
