package rebalance

// What the quarantined workers keep. It is decided first, and the rest of the plan is
// exact for that choice.

import "math"

// quarantine is the step that decides for the quarantined workers.
type quarantine struct {
	*draft
	quarantined []int32 // the quarantined workers
	keeps       []int32 // by worker: the least that a quarantined one ends with, as far as known
}

// decide decides what the quarantined workers keep. They get the same level as
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
		q.keeps[w], q.base[w] = q.pinnedOn(w), q.load[w]
		if len(q.open) == 0 {
			q.keeps[w] = q.load[w] // no other worker can take what it has
		}
	}
	left := q.share()
	q.byLoad(q.quarantined)
	for _, w := range q.quarantined {
		most := q.level
		if left > 0 && q.hasExtra(w) {
			most++
			left--
		}
		q.dropFrom(w, func(t int32) bool {
			return q.load[w] > most && q.onOpen(t)+q.stays[t] > q.target[t]
		})
		q.dropFrom(w, func(t int32) bool {
			return q.load[w] > most && q.target[t]-q.stays[t] < q.places(t)
		})
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

// dropFrom drops from quarantined worker w the copies for which matches is true.
func (q *quarantine) dropFrom(w int32, matches func(t int32) bool) {
	for k, t := range q.Running[w] {
		if at := q.offset[w] + int32(k); q.flags[at] == kept && matches(t) {
			q.lose(t, w, at)
			q.stays[t]--
		}
	}
}
