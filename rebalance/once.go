package rebalance

import (
	"math/bits"
	"slices"
)

// Step 1 of the ordinary case: no task is wanted more than once, every worker is open, and
// nothing is forbidden or pinned. Then the scan needs one bit for each task: whether a
// copy of it was met. The bits of a million tasks fit into the first-level cache, and
// their words do not. The plan is the same as that of the general scan.

// wantOnce reports whether this is the ordinary case, and prepares for it. O(tasks).
func (p *Planner) wantOnce() bool {
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

// scanOnce finds what runs. One pass over the lists, and another one if a task was
// met again.
func (p *Planner) scanOnce() error {
	tasks := len(p.Want)
	p.overs.reset(tasks)
	p.overs.copies = p.overs.copies[:0]
	again := p.overs.tasks.set
	for w, list := range p.Held {
		if at := meet(p.met, again, list, tasks); at < len(list) {
			return p.noTask(w, at)
		}
		p.load[w] = int32(len(list))
	}
	p.isOver = !again.isEmpty()
	if p.isOver {
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
	o := &p.overs
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
				o.copies = append(o.copies, overCopy{number, at})
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
	p.isOver = o.total > 0
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

// gapsOnce lists the missing copies: the tasks that were not met. O(tasks/64 + missing).
func (p *Planner) gapsOnce() {
	for k, word := range p.met {
		for missing := ^word; missing != 0; missing &= missing - 1 {
			p.pending = append(p.pending, pending{int32(k*64 + bits.TrailingZeros64(missing)), 1})
		}
	}
	p.missing = len(p.pending)
}
