package rebalance

// What the quarantined workers keep and gain. It is decided first, and the rest
// of the plan is exact for that choice.

import (
	"cmp"
	"math"
	"slices"
)

// quarantine is the step that decides for the quarantined workers.
type quarantine struct {
	*draft
	placement *placement

	quarantined []int32   // the quarantined workers
	keeps       []int32   // by worker: the least that a quarantined one ends with, as far as known
	drains      []pending // offer: the copies on draining workers
	handed      []int32   // take: positions in the giver's list
}

// decide decides what the quarantined workers keep and gain. They get the same level as
// the open workers, as if those could take everything, and lose the copies above it:
// first copies of tasks with too many, then copies that an open worker has a place for.
//
// It costs a few passes over the lists of the quarantined workers.
func (q *quarantine) decide() {
	if !q.has[Quarantined] {
		return
	}
	q.quarantined = q.quarantined[:0]
	q.keeps = sized(q.keeps, len(q.States))
	for w, s := range q.States {
		if s == Quarantined {
			q.quarantined = append(q.quarantined, int32(w))
		}
	}
	for _, w := range q.quarantined {
		q.dropFrom(w, func(t int32) bool { return q.stays[t]+q.pinnedOf(t) > q.target[t] })
		q.keeps[w] = q.pinnedOn(w)
		if len(q.open) == 0 {
			q.keeps[w] = q.load[w] // no other worker can take what it has
		}
	}
	q.handedOver = q.handedOver.emptied(len(q.Want))
	gains, extra := q.grow()
	q.byLoad(q.quarantined)
	left, level := extra, q.level
	if gains {
		// The open workers have more if others gain less than their share. To lose
		// copies to workers with as many makes the spread worse.
		level = max(level, q.openLevel())
	}
	for _, w := range q.quarantined {
		most := level
		if most == q.level && left > 0 && q.hasExtra(w) {
			most++
			left--
		}
		q.dropFrom(w, func(t int32) bool {
			return q.load[w] > most && q.onOpen(t)+q.stays[t] > q.target[t]
		})
		q.dropFrom(w, func(t int32) bool {
			return q.load[w] > most && q.target[t]-q.stays[t] < q.places(t) && !q.handedOver.has(t)
		})
	}
	if gains { // some lost copies, others could not: that changes the level
		for _, w := range q.quarantined {
			q.keeps[w] = q.load[w]
		}
		q.raise(q.share())
	}
}

// share finds the level of the open and the quarantined workers, and how many of
// them get one more. A quarantined worker has its base at most.
func (q *quarantine) share() (extra int32) {
	d := q.draft
	floors, ceilings := d.floors[:0], d.ceilings[:0]
	for w, s := range d.States {
		switch s {
		case Quarantined:
			floors, ceilings = append(floors, q.keeps[w]), append(ceilings, d.base[w])
		case Open:
			floors, ceilings = append(floors, d.pinnedOn(int32(w))), append(ceilings, math.MaxInt32)
		}
	}
	d.floors, d.ceilings = floors, ceilings
	n := -d.waiting
	for t := range d.target {
		if len(d.open) > 0 {
			n += int(min(d.target[t], d.places(int32(t))+d.stays[t]))
		} else {
			n += int(d.target[t])
		}
	}
	d.level, extra = fill(floors, ceilings, n)
	return extra
}

// hasExtra reports whether quarantined worker w has one of the extra units. Copies
// beyond the level that it must keep do not count.
func (q *quarantine) hasExtra(w int32) bool { return q.load[w] > q.level && q.keeps[w] <= q.level }

// openLevel returns the level of the open workers, if the quarantined ones lose
// nothing.
func (q *quarantine) openLevel() int32 {
	d := q.draft
	n := 0
	for t, target := range d.target {
		n += int(max(0, min(target-d.stays[t], d.places(int32(t)))))
	}
	level, _ := d.levelOf(n)
	return level
}

// gainOf returns how many copies quarantined worker w may gain.
func (q *quarantine) gainOf(w int32) int32 {
	if q.MaxGain == nil {
		return 0
	}
	return min(q.MaxGain[w], int32(len(q.Want)))
}

// dropFrom drops from quarantined worker w the copies for which matches is true.
func (q *quarantine) dropFrom(w int32, matches func(t int32) bool) {
	for k, t := range q.Running[w] {
		if at := q.offset[w] + int32(k); q.flags[at] == kept && matches(t) {
			q.lose(t, w, at)
			q.stays[t]--
		}
	}
}

// grow decides what the quarantined workers gain, up to MaxGain: copies that no open
// worker has a place for, then what is missing or drains, and then copies that
// the fullest open workers have beyond the level. Only the first may take a
// worker beyond the level. It finds the level, and how many workers get one more.
// It reports whether any worker may gain.
//
// O(tasks + open · log open), and a pass over the lists that it touches, for each
// worker that gains less than its share because it runs or may not run the rest.
func (q *quarantine) grow() (gains bool, extra int32) {
	for _, w := range q.quarantined {
		gain := q.gainOf(w)
		q.base[w] = q.load[w] + gain
		gains = gains || gain > 0
	}
	extra = q.share()
	if !gains {
		return false, extra
	}
	q.byLoad(q.quarantined)
	slices.Reverse(q.quarantined) // those with the least first
	q.offer(true, q.level)
	q.offer(true, math.MaxInt32)
	for again := true; again; {
		extra = q.share()
		q.raise(extra)
		again = false
		for _, w := range q.quarantined {
			if q.load[w] < min(q.base[w], q.level) && q.isLeft() {
				q.base[w], again = q.load[w], true
			}
		}
	}
	return true, extra
}

// raise brings quarantined workers up to the level, and extra of them beyond it.
func (q *quarantine) raise(extra int32) {
	q.offer(false, q.level)
	q.takeOver(q.level+1, 0)
	q.takeOver(q.level, 0)
	q.takeOver(q.level+1, extra)
}

// isLeft reports whether there is something left that raise could not give away.
func (q *quarantine) isLeft() bool {
	return len(q.pending) > 0 || slices.ContainsFunc(q.open, func(w int32) bool {
		return q.load[w] > max(q.level, q.pinnedOn(w))
	})
}

// offer lets quarantined workers start what is missing and what drains, until
// they have most copies: only copies without a place on an open worker, or any.
func (q *quarantine) offer(only bool, most int32) {
	d := q.draft
	d.pending = d.pending[:0]
	drains := q.drains[:0]
	for t, target := range d.target {
		t := int32(t)
		open, stays := d.onOpen(t), d.stays[t]
		lack, places := target-stays-open, d.places(t)
		if only {
			lack = min(lack, target-stays-places)
		} else {
			lack = min(lack, places-open)
		}
		switch {
		case lack <= 0:
		case d.has[Draining] && lack <= d.drained[t]:
			drains = append(drains, pending{t, lack})
		default:
			d.pending = append(d.pending, pending{t, lack})
		}
	}
	q.drains = drains
	if only {
		for _, some := range [][]pending{d.pending, drains} {
			slices.SortStableFunc(some, func(x, y pending) int { return cmp.Compare(q.copies(x.task), q.copies(y.task)) })
		}
	}
	d.pending = append(d.pending, drains...)
	if len(d.pending) == 0 {
		return
	}
	for _, w := range q.quarantined {
		d.limit[w] = max(d.load[w], min(d.base[w], most))
	}
	before := len(d.changes)
	q.placement.deal(q.quarantined, true)
	for _, c := range d.changes[before:] {
		d.stays[c.Task]++
		if only {
			q.keeps[c.To]++ // no other worker has a place for it
		}
	}
}

// copies returns how many copies of t there are at most without another one on a
// quarantined worker.
func (q *quarantine) copies(t int32) int32 {
	n := q.places(t) + q.stays[t]
	if q.has[Frozen] {
		n += q.frozen[t]
	}
	return n
}

// takeOver moves copies to quarantined workers from open workers with more than
// some load, the fullest first. They end at the level, and extra of them with one
// more.
func (q *quarantine) takeOver(load, extra int32) {
	isRoom := false
	for _, w := range q.quarantined {
		isRoom = isRoom || q.load[w] < q.base[w] && q.load[w] <= q.level
		if q.hasExtra(w) {
			extra--
		}
	}
	if !isRoom {
		return
	}
	givers := append(q.scratch[:0], q.open...)
	q.scratch = givers
	q.byLoad(givers)
	surplus := q.surplusOf(givers)
	for _, w := range q.quarantined {
		most := q.level
		if extra > 0 {
			most++
		}
		q.limit[w] = max(q.load[w], min(q.base[w], most))
		if q.room(w) == 0 {
			continue
		}
		blocked := q.block(w)
		for len(givers) > 0 && q.load[givers[0]] <= load {
			givers = givers[1:]
		}
		for _, giver := range givers {
			most := q.load[giver] - load
			if surplus != nil {
				most -= surplus[giver]
			}
			if most > 0 && q.room(w) > 0 {
				q.take(giver, w, most, blocked)
			}
		}
		if q.hasExtra(w) {
			extra--
		}
	}
}

// surplusOf returns, by worker, how many copies open workers may lose because their tasks
// have too many; nil if no task has. If a worker also handed others to a quarantined
// one, that one could end with more.
func (q *quarantine) surplusOf(workers []int32) (of []int32) {
	d := q.draft
	tooMany := func(t int32) bool { return d.onOpen(t)+d.stays[t] > d.target[t] }
	for t := range d.target {
		if tooMany(int32(t)) {
			of = make([]int32, len(d.States))
			break
		}
	}
	if of == nil {
		return nil
	}
	for _, w := range workers {
		for k, t := range d.Running[w] {
			if d.flags[d.offset[w]+int32(k)] == kept && tooMany(t) {
				of[w]++
			}
		}
	}
	return of
}

// take moves up to most copies from an open worker to a quarantined one. Blocked
// marks what that cannot gain.
func (q *quarantine) take(giver, w, most int32, blocked uint32) {
	d := q.draft
	most = min(most, d.room(w))
	handed := q.handed[:0]
	for k, t := range d.Running[giver] {
		if int32(len(handed)) >= most {
			break
		}
		if d.flags[d.offset[giver]+int32(k)] != kept || d.marks[t] == blocked || d.onOpen(t)+d.stays[t] != d.target[t] {
			continue
		}
		d.marks[t] = blocked
		d.handedOver.add(t)
		d.handsOver = true
		d.tasks[t].lack++
		d.stays[t]++
		handed = append(handed, int32(k))
	}
	q.handed = handed
	d.move(handed, giver, w)
}
