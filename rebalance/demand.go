package rebalance

// The number of copies of each task on the open workers, and the workers that may not
// gain one.

// forbidden sorts the forbidden pairs by worker, and counts for each task the
// open workers that have no copy and may gain none. O(tasks + pairs), and a pass
// over the lists of the workers in them.
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
			if p.flags[p.offset[w]+int32(k)].runs() {
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

// places returns how many open workers can hold a copy of t.
func (p *Planner) places(t int32) int32 {
	n := int32(len(p.open))
	if len(p.Forbidden) > 0 {
		n -= p.barred[t]
	}
	return n
}

// answering returns how many copies of t run on workers that are not frozen, before
// demand.
func (p *Planner) answering(t int32) int32 {
	a := p.Want[t] - p.tasks[t].lack
	if p.has[Draining] {
		a += p.drained[t]
	}
	if p.staying {
		a += p.stays[t]
	}
	return a
}

// targets decides how many copies of each task the workers that are not frozen run: as
// many as are wanted beside the frozen copies. A wanted copy that answers does not stop
// because of a frozen one (P4).
func (p *Planner) targets() {
	p.target = p.Want
	if !p.has[Frozen] {
		return
	}
	p.aimed = append(p.aimed[:0], p.Want...)
	p.target = p.aimed
	for t, frozen := range p.frozen {
		if want := p.Want[t]; frozen > 0 && want > 0 {
			p.target[t] = max(want-frozen, min(want, p.answering(int32(t))))
		}
	}
}

// demand decides how many copies of each task the open workers run.
func (p *Planner) demand() {
	p.need, p.isShort = p.Want, false
	if !p.has[Frozen] && !p.staying && len(p.Forbidden) == 0 && int(p.most) <= len(p.open) {
		return
	}
	p.needed = append(p.needed[:0], p.target...)
	p.need = p.needed
	if p.staying {
		for t, stays := range p.stays {
			p.need[t] = max(0, p.need[t]-stays) // copies of unexpected tasks count too
		}
	}
	places := int32(len(p.open))
	wanted, all := 0, int32(0)
	for t, need := range p.need {
		if len(p.Forbidden) > 0 {
			places = p.places(int32(t))
		}
		if need > places {
			need, p.isShort = places, true
			p.need[t] = need
		}
		wanted += int(need)
		s := &p.tasks[t]
		s.lack += need - p.Want[t]
		all |= s.lack
	}
	p.wanted, p.isOver = wanted, all < 0
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
