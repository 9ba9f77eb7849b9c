package rebalance

// The first steps: what there is, and what is wanted of whom.

// scan counts the copies of each task, and the load of each worker.
func (p *Planner) scan() error {
	n := uint32(len(p.Want))
	for w, list := range p.Held {
		seen := int32(w) + 1
		var count []int32 // where the copies of workers that are not open count
		switch p.States[w] {
		case Frozen:
			count = p.frozen
		case Draining:
			count = p.drained
		case Closed:
			count = p.closed
		}
		distinct := int32(len(list))
		for k, t := range list {
			if uint32(t) >= n {
				return invalid("Held[%d][%d] is %d, there are %d tasks", w, k, t, n)
			}
			s := &p.tasks[t]
			if s.seen == seen {
				p.flags[p.offset[w]+int32(k)] = repeated
				distinct--
				continue
			}
			s.seen = seen
			if count == nil {
				s.open++
			} else {
				count[t]++
			}
		}
		p.load[w] = distinct
	}
	for t, want := range p.Want {
		if want < 0 {
			return invalid("Want[%d] is %d", t, want)
		}
	}
	return nil
}

// isSettled says whether nothing has to change, for the ordinary case that all
// workers are open: every task has its copies, and the loads are even.
func (p *Planner) isSettled() bool {
	if p.has[Frozen] || p.has[Draining] || p.has[Closed] || p.Bounds != nil || len(p.open) == 0 {
		return false
	}
	for t := range p.tasks {
		if p.tasks[t].open != p.Want[t] {
			return false
		}
	}
	least, most := p.load[p.open[0]], p.load[p.open[0]]
	for _, w := range p.open {
		least, most = min(least, p.load[w]), max(most, p.load[w])
	}
	return most-least <= 1
}

// stopUnexpected drops the copies of tasks that are expected nowhere.
func (p *Planner) stopUnexpected() {
	found := false
	for t, want := range p.Want {
		if want > 0 {
			continue
		}
		if p.tasks[t].open > 0 || p.has[Draining] && p.drained[t] > 0 || p.has[Closed] && p.closed[t] > 0 {
			found = true
			break
		}
	}
	if !found {
		return
	}
	for w, list := range p.Held {
		if p.States[w] == Frozen {
			continue
		}
		at := p.offset[w]
		for k, t := range list {
			if !p.isExpected(t) && p.flags[at+int32(k)] == kept {
				p.lose(int32(w), at+int32(k))
			}
		}
	}
}

// forbidden sorts the forbidden pairs by worker, and counts for each task the
// open workers that have no copy and may gain none.
func (p *Planner) forbidden() {
	p.forbid.reset()
	if len(p.Forbidden) == 0 {
		return
	}
	p.barred = sized(p.barred, len(p.Want))
	p.forbid.fill(len(p.States), p.Forbidden)
	for _, w := range p.open {
		row := p.forbid.row(w)
		if len(row) == 0 {
			continue
		}
		round := p.mark()
		for k, t := range p.Held[w] {
			if p.flags[p.offset[w]+int32(k)] == kept {
				p.marks[t] = round
			}
		}
		for _, t := range row {
			if p.marks[t] != round { // neither held nor counted before
				p.marks[t] = round
				p.barred[t]++
			}
		}
	}
}

// places is how many open workers can hold a copy of t.
func (p *Planner) places(t int32) int32 {
	n := int32(len(p.open))
	if len(p.Forbidden) > 0 {
		n -= p.barred[t]
	}
	return n
}

// answering is how many copies of t run on workers that are not frozen.
func (p *Planner) answering(t int32) int32 {
	a := p.tasks[t].open
	if p.has[Draining] {
		a += p.drained[t]
	}
	if p.has[Closed] {
		a += p.closed[t]
	}
	return a
}

// targets decides how many copies of each task the workers that are not frozen
// shall run: as many as are wanted beside the frozen ones, but none that is
// wanted and answers is given up for one that is frozen (P4).
func (p *Planner) targets() {
	p.target = sized(p.target, len(p.Want))
	for t, want := range p.Want {
		p.target[t] = want
		if p.has[Frozen] && want > 0 {
			p.target[t] = max(want-p.frozen[t], min(want, p.answering(int32(t))))
		}
	}
}

// demand decides how many copies of each task the open workers shall run.
func (p *Planner) demand() {
	p.need = sized(p.need, len(p.Want))
	for t, target := range p.target {
		if target == 0 {
			continue
		}
		if p.has[Closed] {
			target -= p.closed[t]
		}
		p.need[t] = min(target, p.places(int32(t)))
	}
}

// rows holds a list of tasks for each worker.
type rows struct {
	start []int32
	items []int32
}

func (r *rows) reset() { r.start = r.start[:0] }

func (r *rows) row(w int32) []int32 {
	if len(r.start) == 0 {
		return nil
	}
	return r.items[r.start[w]:r.start[w+1]]
}

// fill sorts pairs by worker, in time linear in their number.
func (r *rows) fill(workers int, pairs []Pair) {
	r.start = sized(r.start, workers+1)
	r.items = sized(r.items, len(pairs))
	for _, f := range pairs {
		r.start[f.Worker+1]++
	}
	for w := range workers {
		r.start[w+1] += r.start[w]
	}
	for _, f := range pairs {
		r.items[r.start[f.Worker]] = f.Task
		r.start[f.Worker]++
	}
	copy(r.start[1:], r.start[:workers])
	r.start[0] = 0
}
