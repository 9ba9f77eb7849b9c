package rebalance

// The first steps: what there is, and what is wanted of whom.

// scan counts the copies of each task, and the load of each worker. One pass
// over the lists.
func (p *Planner) scan() error {
	all := int32(0) // negative once a task has too many
	for w, list := range p.Held {
		flags := p.flags[p.offset[w]:][:len(list)]
		repeats, at := 0, 0
		if count := p.countOf(int32(w)); count == nil {
			var lacks int32
			repeats, lacks, at = tally(p.tasks, list, flags, int32(w)+1)
			all |= lacks
		} else {
			repeats, at = tallyTo(count, p.tasks, list, flags, int32(w)+1)
		}
		if at < len(list) {
			return invalid("Held[%d][%d] is %d, there are %d tasks", w, at, list[at], len(p.tasks))
		}
		p.load[w] = int32(len(list) - repeats)
	}
	p.isOver = all < 0
	return nil
}

// countOf returns where the copies on w are counted by task, nil if w is open.
func (p *Planner) countOf(w int32) []int32 {
	switch p.States[w] {
	case Frozen:
		return p.frozen
	case Draining:
		return p.drained
	case Closed:
		return p.closed
	default:
		return nil
	}
}

// tally takes what an open worker runs off what is lacking. It returns how many
// tasks are named again, the bits of what is lacking then, and where it stopped:
// at a task that is none, or at the end of the list.
//
// This loop is most of a plan that changes little: it has a function of its own
// so that all it needs stays in registers.
func tally(tasks []task, list []int32, flags []flag, seen int32) (repeats int, lacks int32, at int) {
	for k, t := range list {
		i := uint(uint32(t))
		if i >= uint(len(tasks)) {
			return repeats, lacks, k
		}
		s := &tasks[i]
		if s.seen == seen {
			flags[k] = repeated
			repeats++
			continue
		}
		s.seen = seen
		s.lack--
		lacks |= s.lack
	}
	return repeats, lacks, len(list)
}

// tallyTo counts what a worker runs that is not open.
func tallyTo(count []int32, tasks []task, list []int32, flags []flag, seen int32) (repeats, at int) {
	for k, t := range list {
		i := uint(uint32(t))
		if i >= uint(len(tasks)) {
			return repeats, k
		}
		if s := &tasks[i]; s.seen != seen {
			s.seen = seen
			count[t]++
		} else {
			flags[k] = repeated
			repeats++
		}
	}
	return repeats, len(list)
}

// isSettled says whether nothing has to change, for the ordinary case that all
// workers are open: every task has its copies, and the loads are even.
func (p *Planner) isSettled() bool {
	if p.has[Frozen] || p.has[Draining] || p.has[Closed] || p.Bounds != nil || len(p.open) == 0 {
		return false
	}
	if p.isOver || p.running() != p.wanted {
		return false
	}
	least, most := p.load[p.open[0]], p.load[p.open[0]]
	for _, w := range p.open {
		least, most = min(least, p.load[w]), max(most, p.load[w])
	}
	return most-least <= 1
}

// running is how many copies the open workers have.
func (p *Planner) running() int {
	n := 0
	for _, w := range p.open {
		n += int(p.load[w])
	}
	return n
}

// stopUnexpected drops the copies of tasks that are expected nowhere.
func (p *Planner) stopUnexpected() {
	if p.least > 0 {
		return
	}
	found := false
	for t, want := range p.Want {
		if want == 0 && p.answering(int32(t)) > 0 {
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
				p.lose(t, int32(w), at+int32(k))
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

// answering is how many copies of t run on workers that are not frozen, before
// demand.
func (p *Planner) answering(t int32) int32 {
	a := p.Want[t] - p.tasks[t].lack
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

// demand decides how many copies of each task the open workers shall run.
func (p *Planner) demand() {
	p.need, p.isShort = p.Want, false
	if !p.has[Frozen] && !p.has[Closed] && len(p.Forbidden) == 0 && int(p.most) <= len(p.open) {
		return
	}
	p.needed = append(p.needed[:0], p.target...)
	p.need = p.needed
	if p.has[Closed] {
		for t, closed := range p.closed {
			p.need[t] = max(0, p.need[t]-closed) // the copies of what is unexpected count too
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

// gaps lists what is missing, and finds the tasks that have too many copies on
// open workers. O(tasks), unless the scan saw that there is neither.
func (p *Planner) gaps() {
	p.pending, p.missing = p.pending[:0], 0
	if !p.isOver && p.running() == p.wanted {
		return
	}
	p.overs.reset(len(p.Want))
	p.isOver = false
	for t, s := range p.tasks {
		switch {
		case s.lack == 0:
		case s.lack > 0:
			p.pending = append(p.pending, pending{int32(t), s.lack})
			p.missing += int(s.lack)
		case p.least > 0 || p.isExpected(int32(t)):
			p.overs.add(int32(t), -s.lack)
			p.isOver = true
		}
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
