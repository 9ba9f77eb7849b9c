package rebalance

import "slices"

// Step 1: what there is, what is missing and what is too much.

// scan counts the copies of each task, and the load of each worker. One pass
// over the lists.
func (p *Planner) scan() error {
	if p.once {
		return p.scanOnce()
	}
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
			return p.noTask(w, at)
		}
		p.load[w] = int32(len(list) - repeats)
	}
	p.isOver = all < 0
	return nil
}

// noTask returns the error for a worker that lists a number of no task.
func (p *Planner) noTask(w, at int) error {
	return invalid("Held[%d][%d] is %d, there are %d tasks", w, at, p.Held[w][at], len(p.Want))
}

// countOf returns the numbers of copies by task for the state of w, nil if w is
// open.
func (p *Planner) countOf(w int32) []int32 {
	switch p.States[w] {
	case Frozen:
		return p.frozen
	case Draining:
		return p.drained
	case Quarantined:
		return p.stays
	default:
		return nil
	}
}

// tally takes what an open worker runs off what is lacking. It returns how many
// tasks are named again, the bits of what is lacking then, and where it stopped:
// at a number of no task, or at the end of the list.
//
// This loop is most of a plan that changes little: it has a function of its own,
// and is not inlined, so that all it needs stays in registers.
//
//go:noinline
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

// isSettled reports whether nothing must change, for the ordinary case that all
// workers are open: every task has its copies, and the loads are even.
func (p *Planner) isSettled() bool {
	if p.has[Frozen] || p.has[Draining] || p.has[Quarantined] || len(p.open) == 0 {
		return false
	}
	if p.isOver || len(p.drops) > 0 || p.running() != p.wanted {
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

// stopUnexpected drops the copies of unexpected tasks. If there are any, one pass
// over the lists.
func (p *Planner) stopUnexpected() {
	if p.least > 0 || p.once {
		return // there are none, or it is done
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

// gaps lists what is missing, and finds the tasks that have too many copies on
// open workers. O(tasks), unless the scan saw that there is neither.
func (p *Planner) gaps() {
	p.pending, p.missing = p.pending[:0], 0
	lack := p.wanted - p.running() // beyond what is too much of others
	if !p.isOver && lack == 0 {
		return
	}
	p.pending = slices.Grow(p.pending, min(max(lack, 0), len(p.Want)))
	if p.once {
		p.gapsOnce()
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
