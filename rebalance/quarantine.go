package rebalance

// What the quarantined workers keep and gain. It is decided first, and the rest
// of the plan is exact for that choice.

import (
	"cmp"
	"math"
	"slices"
)

// quarantine decides what the quarantined workers keep and gain. They are levelled
// with the open ones, as if those could take everything, and lose what is above:
// first copies of tasks with too many, then copies that an open worker has a place
// for.
//
// It costs a few passes over the lists of the quarantined workers.
func (p *Planner) quarantine() {
	if !p.has[Quarantined] {
		return
	}
	p.quarantined = p.quarantined[:0]
	p.keeps = sized(p.keeps, len(p.States))
	for w, s := range p.States {
		if s == Quarantined {
			p.quarantined = append(p.quarantined, int32(w))
		}
	}
	for _, w := range p.quarantined {
		p.dropFrom(w, func(t int32) bool { return p.stays[t]+p.pinnedOf(t) > p.target[t] })
		p.keeps[w] = p.pinnedOn(w)
		if len(p.open) == 0 {
			p.keeps[w] = p.load[w] // no other worker can take what it has
		}
	}
	p.grabbed = p.grabbed.emptied(len(p.Want))
	gains, extra := p.grow()
	p.byLoad(p.quarantined)
	left, level := extra, p.level
	if gains {
		// The open workers have more if others gain less than their share. To lose
		// copies to workers with as many makes the spread worse.
		level = max(level, p.openLevel())
	}
	for _, w := range p.quarantined {
		most := level
		if most == p.level && left > 0 && p.hasExtra(w) {
			most++
			left--
		}
		p.dropFrom(w, func(t int32) bool {
			return p.load[w] > most && p.onOpen(t)+p.stays[t] > p.target[t]
		})
		p.dropFrom(w, func(t int32) bool {
			return p.load[w] > most && p.target[t]-p.stays[t] < p.places(t) && !p.grabbed.has(t)
		})
	}
	if gains { // some lost copies, others could not: that changes the level
		for _, w := range p.quarantined {
			p.keeps[w] = p.load[w]
		}
		p.raise(p.share())
	}
}

// share finds the level of the open and the quarantined workers, and how many of
// them get one more. A quarantined worker has its base at most.
func (p *Planner) share() (extra int32) {
	floors, ceilings := p.floors[:0], p.ceilings[:0]
	for w, s := range p.States {
		switch s {
		case Quarantined:
			floors, ceilings = append(floors, p.keeps[w]), append(ceilings, p.base[w])
		case Open:
			floors, ceilings = append(floors, p.pinnedOn(int32(w))), append(ceilings, math.MaxInt32)
		}
	}
	p.floors, p.ceilings = floors, ceilings
	n := -p.waiting
	for t := range p.target {
		if len(p.open) > 0 {
			n += int(min(p.target[t], p.places(int32(t))+p.stays[t]))
		} else {
			n += int(p.target[t])
		}
	}
	p.level, extra = fill(floors, ceilings, n)
	return extra
}

// hasExtra reports whether quarantined worker w has one of the extra units. Copies
// beyond the level that it must keep do not count.
func (p *Planner) hasExtra(w int32) bool { return p.load[w] > p.level && p.keeps[w] <= p.level }

// openLevel returns the level of the open workers, if the quarantined ones lose
// nothing.
func (p *Planner) openLevel() int32 {
	n := 0
	for t, target := range p.target {
		n += int(max(0, min(target-p.stays[t], p.places(int32(t)))))
	}
	level, _ := p.levelOf(n)
	return level
}

// gainOf returns how many copies quarantined worker w may gain.
func (p *Planner) gainOf(w int32) int32 {
	if p.Gain == nil {
		return 0
	}
	return min(p.Gain[w], int32(len(p.Want)))
}

// onOpen returns how many copies of t the open workers run, before demand.
func (p *Planner) onOpen(t int32) int32 { return p.Want[t] - p.tasks[t].lack }

// dropFrom drops from quarantined worker w the copies for which matches is true.
func (p *Planner) dropFrom(w int32, matches func(t int32) bool) {
	for k, t := range p.Held[w] {
		if at := p.offset[w] + int32(k); p.flags[at] == kept && matches(t) {
			p.lose(t, w, at)
			p.stays[t]--
		}
	}
}

// grow decides what the quarantined workers gain, up to Gain: copies that no open
// worker has a place for, then what is missing or drains, and then copies that
// the fullest open workers have beyond the level. Only the first may take a
// worker beyond the level. It finds the level, and how many workers get one more.
// It reports whether any worker may gain.
//
// O(tasks + open · log open), and a pass over the lists that it touches, for each
// worker that gains less than its share because it runs or may not run the rest.
func (p *Planner) grow() (gains bool, extra int32) {
	for _, w := range p.quarantined {
		gain := p.gainOf(w)
		p.base[w] = p.load[w] + gain
		gains = gains || gain > 0
	}
	extra = p.share()
	if !gains {
		return false, extra
	}
	p.byLoad(p.quarantined)
	slices.Reverse(p.quarantined) // those with the least first
	p.offer(true, p.level)
	p.offer(true, math.MaxInt32)
	for again := true; again; {
		extra = p.share()
		p.raise(extra)
		again = false
		for _, w := range p.quarantined {
			if p.load[w] < min(p.base[w], p.level) && p.isLeft() {
				p.base[w], again = p.load[w], true
			}
		}
	}
	return true, extra
}

// raise brings quarantined workers up to the level, and extra of them beyond it.
func (p *Planner) raise(extra int32) {
	p.offer(false, p.level)
	p.takeOver(p.level+1, 0)
	p.takeOver(p.level, 0)
	p.takeOver(p.level+1, extra)
}

// isLeft reports whether there is something left that raise could not give away.
func (p *Planner) isLeft() bool {
	return len(p.pending) > 0 || slices.ContainsFunc(p.open, func(w int32) bool {
		return p.load[w] > max(p.level, p.pinnedOn(w))
	})
}

// offer lets quarantined workers start what is missing and what drains, until
// they have most copies: only copies without a place on an open worker, or any.
func (p *Planner) offer(only bool, most int32) {
	p.pending = p.pending[:0]
	drains := p.spare[:0]
	for t, target := range p.target {
		t := int32(t)
		open, stays := p.onOpen(t), p.stays[t]
		lack, places := target-stays-open, p.places(t)
		if only {
			lack = min(lack, target-stays-places)
		} else {
			lack = min(lack, places-open)
		}
		switch {
		case lack <= 0:
		case p.has[Draining] && lack <= p.drained[t]:
			drains = append(drains, pending{t, lack})
		default:
			p.pending = append(p.pending, pending{t, lack})
		}
	}
	p.spare = drains
	if only {
		for _, some := range [][]pending{p.pending, drains} {
			slices.SortStableFunc(some, func(x, y pending) int { return cmp.Compare(p.copies(x.task), p.copies(y.task)) })
		}
	}
	p.pending = append(p.pending, drains...)
	if len(p.pending) == 0 {
		return
	}
	for _, w := range p.quarantined {
		p.limit[w] = max(p.load[w], min(p.base[w], most))
	}
	before := len(p.changes)
	p.deal(p.quarantined, true)
	for _, c := range p.changes[before:] {
		p.stays[c.Task]++
		if only {
			p.keeps[c.To]++ // no other worker has a place for it
		}
	}
}

// copies returns how many copies of t there are at most without another one on a
// quarantined worker.
func (p *Planner) copies(t int32) int32 {
	n := p.places(t) + p.stays[t]
	if p.has[Frozen] {
		n += p.frozen[t]
	}
	return n
}

// takeOver moves copies to quarantined workers from open workers with more than
// some load, the fullest first. They end at the level, and extra of them with one
// more.
func (p *Planner) takeOver(load, extra int32) {
	isRoom := false
	for _, w := range p.quarantined {
		isRoom = isRoom || p.load[w] < p.base[w] && p.load[w] <= p.level
		if p.hasExtra(w) {
			extra--
		}
	}
	if !isRoom {
		return
	}
	givers := append(p.scratch[:0], p.open...)
	p.scratch = givers
	p.byLoad(givers)
	surplus := p.surplusOf(givers)
	for _, w := range p.quarantined {
		most := p.level
		if extra > 0 {
			most++
		}
		p.limit[w] = max(p.load[w], min(p.base[w], most))
		if p.room(w) == 0 {
			continue
		}
		blocked := p.block(w)
		for len(givers) > 0 && p.load[givers[0]] <= load {
			givers = givers[1:]
		}
		for _, giver := range givers {
			most := p.load[giver] - load
			if surplus != nil {
				most -= surplus[giver]
			}
			if most > 0 && p.room(w) > 0 {
				p.take(giver, w, most, blocked)
			}
		}
		if p.hasExtra(w) {
			extra--
		}
	}
}

// surplusOf returns, by worker, how many copies open workers may lose because their tasks
// have too many; nil if no task has. If a worker also handed others to a quarantined
// one, that one could end with more.
func (p *Planner) surplusOf(workers []int32) (of []int32) {
	tooMany := func(t int32) bool { return p.onOpen(t)+p.stays[t] > p.target[t] }
	for t := range p.target {
		if tooMany(int32(t)) {
			of = make([]int32, len(p.States))
			break
		}
	}
	if of == nil {
		return nil
	}
	for _, w := range workers {
		for k, t := range p.Held[w] {
			if p.flags[p.offset[w]+int32(k)] == kept && tooMany(t) {
				of[w]++
			}
		}
	}
	return of
}

// take moves up to most copies from an open worker to a quarantined one. Blocked
// marks what that cannot gain.
func (p *Planner) take(giver, w, most int32, blocked uint32) {
	most = min(most, p.room(w))
	handed := p.handed[:0]
	for k, t := range p.Held[giver] {
		if int32(len(handed)) >= most {
			break
		}
		if p.flags[p.offset[giver]+int32(k)] != kept || p.marks[t] == blocked || p.onOpen(t)+p.stays[t] != p.target[t] {
			continue
		}
		p.marks[t] = blocked
		p.grabbed.add(t)
		p.grabs = true
		p.tasks[t].lack++
		p.stays[t]++
		handed = append(handed, int32(k))
	}
	p.handed = handed
	p.move(handed, giver, w)
}
