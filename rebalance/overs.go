package rebalance

// The copies, on open workers, of the tasks that have too many there. Those tasks are
// numbered in order, so that their data is small and close together if they are few.

type overs struct {
	total int // the number of surplus copies
	tasks numbering

	// By number of a task.
	excess []int32  // the number of its surplus copies
	met    []uint32 // the round of the search that met it last; see link
	head   []int32  // the latest of its copies, plus one; see link

	copies []overCopy // by worker
	links  []overLink // parallel to copies; see link
	first  []int32    // by worker: its first in copies; one more at the end
	next   []int32    // by worker: trim: the first that was not visited yet
	linked bool
	found  []int32 // once: the positions of these tasks in one list
	listed set     // once: by number: the tasks that one list has named so far
}

// overCopy is small: there may be as many as copies in all.
type overCopy struct{ number, position int32 }

type overLink struct {
	worker int32
	next   int32 // the previous copy of the same task, plus one
}

// reset empties o.
func (o *overs) reset(tasks int) {
	o.tasks.set, o.total = o.tasks.emptied(tasks), 0
	o.excess = o.excess[:0]
}

// add adds a task with n surplus copies. Tasks are added in order.
func (o *overs) add(t, n int32) {
	o.tasks.add(t)
	o.excess = append(o.excess, n)
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
				o.copies = append(o.copies, overCopy{o.tasks.of(t), at})
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

// link links the copies of each task, for searches.
func (o *overs) link() {
	if o.linked || len(o.copies) == 0 {
		return
	}
	o.linked = true
	o.head = sized(o.head, len(o.excess))
	o.met = sized(o.met, len(o.excess))
	o.links = sized(o.links, len(o.copies))
	for w := range len(o.first) - 1 {
		for i := o.first[w]; i < o.first[w+1]; i++ {
			head := &o.head[o.copies[i].number]
			o.links[i] = overLink{int32(w), *head}
			*head = i + 1
		}
	}
}
