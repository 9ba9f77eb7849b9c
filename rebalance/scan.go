package rebalance

// Step 1: the copies that run, those that are missing, and those that are too many.

import (
	"math/bits"
	"slices"
)

// scan counts the copies of each task, and the load of each worker. One pass
// over the lists.
func (p *Planner) scan() error {
	if p.single {
		return p.scanSingle()
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
	p.hasSurplus = all < 0
	return nil
}

// noTask returns the error for a worker that lists a number of no task.
func (p *Planner) noTask(w, at int) error {
	return invalid("Held[%d][%d] is %d, there are %d tasks", w, at, p.Held[w][at], len(p.Want))
}

// countOf returns the number of copies by task on the workers of w's state, nil if w is
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

// tally subtracts the copies of an open worker from lack. It returns how many tasks the
// list names again, the bitwise or of the new values of lack, and the position at which
// it stopped: that of a number of no task, or the end of the list.
//
// A plan that changes little spends most of its time in this loop. It is a separate
// function, and not inlined, so that all its variables stay in registers.
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

// tallyTo counts the copies of a worker that is not open.
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
	if p.hasSurplus || len(p.drops) > 0 || p.running() != p.wanted {
		return false
	}
	least, most := p.load[p.open[0]], p.load[p.open[0]]
	for _, w := range p.open {
		least, most = min(least, p.load[w]), max(most, p.load[w])
	}
	return most-least <= 1
}

// running returns how many copies the open workers run.
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
	if p.least > 0 || p.single {
		return // no task is unexpected, or meetAgain has dropped the copies
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

// gaps lists the missing copies, and finds the tasks that have too many copies on open
// workers. O(tasks), unless the scan has found neither.
func (p *Planner) gaps() {
	p.pending, p.missing = p.pending[:0], 0
	lack := p.wanted - p.running() // the missing copies without the surplus ones
	if !p.hasSurplus && lack == 0 {
		return
	}
	p.pending = slices.Grow(p.pending, min(max(lack, 0), len(p.Want)))
	if p.single {
		p.gapsSingle()
		return
	}
	p.surplus.reset(len(p.Want))
	p.hasSurplus = false
	for t, s := range p.tasks {
		switch {
		case s.lack == 0:
		case s.lack > 0:
			p.pending = append(p.pending, pending{int32(t), s.lack})
			p.missing += int(s.lack)
		case p.least > 0 || p.isExpected(int32(t)):
			p.surplus.add(int32(t), -s.lack)
			p.hasSurplus = true
		}
	}
}

// Step 1 of the ordinary case: no task is wanted more than once, every worker is open, and
// nothing is forbidden or pinned. Then the scan needs one bit for each task: whether a
// copy of it was met. The bits of a million tasks fit into the first-level cache, and
// their words do not. The plan is the same as that of the general scan.

// beginSingle reports whether this is the ordinary case, and prepares for it. O(tasks).
func (p *Planner) beginSingle() bool {
	if len(p.open) < len(p.States) || len(p.open) == 0 || len(p.Forbidden) > 0 || p.Pinned != nil {
		return false
	}
	tasks := len(p.Want)
	p.met = p.met.emptied(tasks)
	p.wanted, p.least, p.most = tasks, 1, 1
	for k := range p.met {
		wants := p.Want[k*64 : min(k*64+64, tasks)]
		others := int32(0) // the bits in which some differ from 1
		rest := wants
		for ; len(rest) >= 4; rest = rest[4:] {
			others |= (rest[0] ^ 1) | (rest[1] ^ 1) | (rest[2] ^ 1) | (rest[3] ^ 1)
		}
		for _, want := range rest {
			others |= want ^ 1
		}
		switch others {
		case 0:
		case 1:
			p.least = 0
			for i, want := range wants {
				if want == 0 {
					p.met.add(int32(k*64 + i)) // the first copy is one too many
					p.wanted--
				}
			}
		default:
			return false
		}
	}
	if tasks%64 != 0 {
		p.met[tasks/64] |= ^uint64(0) << (tasks % 64) // numbers of no task
	}
	return true
}

// scanSingle is scan for the ordinary case. One pass over the lists, and another one if a
// task was met again.
func (p *Planner) scanSingle() error {
	tasks := len(p.Want)
	p.surplus.reset(tasks)
	p.surplus.copies = p.surplus.copies[:0]
	again := p.surplus.tasks.set
	for w, list := range p.Held {
		if at := meet(p.met, again, list, tasks); at < len(list) {
			return p.noTask(w, at)
		}
		p.load[w] = int32(len(list))
	}
	p.hasSurplus = !again.isEmpty()
	if p.hasSurplus {
		p.meetAgain()
	}
	return nil
}

// meet adds the tasks of a list to met, or to again if they are in met. It returns the
// position at which it stopped: that of a number of no task, or the end. Like tally it is
// not inlined.
//
//go:noinline
func meet(met, again set, list []int32, tasks int) int {
	for k, t := range list {
		i := uint(uint32(t))
		if i/64 >= uint(len(met)) {
			return k
		}
		word, bit := &met[i/64], uint64(1)<<(i%64)
		was := *word
		*word = was | bit
		if was&bit == 0 {
			continue
		}
		if i >= uint(tasks) {
			return k
		}
		again[i/64] |= bit
	}
	return len(list)
}

// meetAgain visits the tasks that were met again: it finds repeated names, drops copies
// of unexpected tasks, and collects the copies of the others.
func (p *Planner) meetAgain() {
	o := &p.surplus
	o.tasks.number()
	o.excess = sized(o.excess, o.tasks.count)
	o.listed = o.listed.emptied(o.tasks.count)
	o.first, o.linked = o.first[:0], false
	anyExpected := p.least > 0
	for w, list := range p.Held {
		first, drops := len(o.copies), len(p.drops)
		o.first = append(o.first, int32(first))
		o.found = findAll(o.tasks.set, list, o.found)
		repeats := int32(0)
		for _, k := range o.found {
			t, at := list[k], p.offset[w]+k
			number := o.tasks.of(t)
			switch {
			case o.listed.has(number):
				p.flags[at] = repeated
				repeats++
				continue
			case anyExpected || p.isExpected(t):
				o.excess[number]++
				o.copies = append(o.copies, surplusCopy{number, at})
			default:
				p.lose(t, int32(w), at)
			}
			o.listed.add(number)
		}
		p.load[w] -= repeats
		for _, c := range o.copies[first:] {
			o.listed.remove(c.number)
		}
		for _, d := range p.drops[drops:] {
			o.listed.remove(o.tasks.of(d.task))
		}
	}
	o.first = append(o.first, int32(len(o.copies)))
	for number, copies := range o.excess {
		o.excess[number] = max(0, copies-1)
		o.total += int(o.excess[number])
	}
	if o.total == 0 {
		o.copies = o.copies[:0] // all were repeated names, or are dropped
	}
	p.hasSurplus = o.total > 0
}

// findAll returns the positions of the tasks of a list that are in a set. It reuses the
// memory of places. Like tally it is not inlined.
//
//go:noinline
func findAll(tasks set, list, places []int32) []int32 {
	places = slices.Grow(places[:0], len(list))[:len(list)]
	n := 0
	for k, t := range list {
		// Without a branch, because it would be unpredictable.
		places[n] = int32(k)
		n += int(tasks[uint32(t)/64] >> (uint32(t) % 64) & 1)
	}
	return places[:n]
}

// gapsSingle lists the missing copies: the tasks that were not met. O(tasks/64 + missing).
func (p *Planner) gapsSingle() {
	for k, word := range p.met {
		for missing := ^word; missing != 0; missing &= missing - 1 {
			p.pending = append(p.pending, pending{int32(k*64 + bits.TrailingZeros64(missing)), 1})
		}
	}
	p.missing = len(p.pending)
}
