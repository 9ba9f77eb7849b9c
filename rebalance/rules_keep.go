package rebalance

// Rules: which copies stay, which stop, and which need another place.

import (
	"cmp"
	"slices"
)

// classify finds the copies that must leave their worker, and counts those that stay. One
// pass over the lists.
func (r *rules) classify() {
	tasks := len(r.Want)
	r.leaving, r.places = r.leaving[:0], r.places[:0]
	r.away = sized(r.away, tasks)
	r.gain = sized(r.gain, len(r.States))
	r.leavingOf = sized(r.leavingOf, len(r.flags))
	r.elsewhere = make(map[int32]int32)
	r.asked = sized(r.asked, len(r.May))
	if r.zoned {
		r.inZone = sized(r.inZone, tasks*r.zones)
	}
	anyMisplaced := r.labels && r.anyMisplaced()
	if r.single && !r.hasSurplus {
		r.classifyMet()
		return
	}
	r.firstOf = sized(r.firstOf, tasks)
	for w, list := range r.Running {
		w := int32(w)
		state, start, zone := r.States[w], r.offset[w], int(r.zoneOf(w))
		r.gain[w] = r.gainOf(w)
		if state == Open && !r.zoned && r.Pinned == nil && (!anyMisplaced || !r.misplaced.has(w)) {
			countKept(r.firstOf, r.Want, list, r.flags[start:][:len(list)])
			continue
		}
		kind := r.kindOf(w)
		for k, t := range list {
			at := start + int32(k)
			flag := r.flags[at]
			if !flag.runs() || r.Want[t] == 0 {
				continue
			}
			if r.zoned {
				r.inZone[int(t)*r.zones+zone]++
			}
			switch {
			case state == Frozen:
			case flag == pinned:
				r.firstOf[t]++
				if state == Draining || !r.mayStay(t, kind) {
					r.elsewhere[t]++
				}
			case state == Draining:
				r.leave(t, w, at, Drain)
			case !r.mayStay(t, kind):
				r.leave(t, w, at, EvictLabel)
			default:
				r.firstOf[t]++
			}
		}
	}
}

// classifyMet is classify if no task runs more than once, and the scan has found which run.
func (r *rules) classifyMet() {
	r.firstOf = append(r.firstOf[:0], r.Want...)
	r.met.others(func(t int32) { r.firstOf[t] = 0 })
	for w := range r.States {
		r.gain[w] = r.gainOf(int32(w))
	}
	if !r.labels {
		return
	}
	r.misplaced.all(func(w int32) {
		kind := r.kindOf(w)
		for k, t := range r.Running[w] {
			if at := r.offset[w] + int32(k); r.flags[at] == kept && !r.mayStay(t, kind) {
				r.firstOf[t] = 0
				r.leave(t, w, at, EvictLabel)
			}
		}
	})
}

// countKept counts the kept copies of expected tasks. Like tally it is not inlined.
//
//go:noinline
func countKept(count, want, list []int32, flags []flag) {
	for k, t := range list {
		if flags[k] == kept && want[t] > 0 {
			count[t]++
		}
	}
}

// mayStay is mayRun, and remembers the last answer for each class. Workers of equal kinds
// often follow each other, and all copies of a worker ask for its kind.
func (r *rules) mayStay(t, kind int32) bool {
	if !r.labels {
		return true
	}
	a := &r.asked[r.classOf(t)]
	if a.kind != kind+1 {
		*a = answer{kind + 1, r.mayRun(t, kind)}
	}
	return a.may
}

// gainOf returns how many copies w may gain.
func (r *rules) gainOf(w int32) int32 {
	if r.States[w] == Open {
		return int32(len(r.Want))
	}
	return 0
}

// leave records that a copy leaves, and returns its place in leaving. It no longer counts in
// the load of its worker.
func (r *rules) leave(t, w, at int32, why Reason) int32 {
	r.leaving = append(r.leaving, leaving{task: t, worker: w, position: at, why: why, change: None})
	r.leavingOf[at] = int32(len(r.leaving))
	r.flags[at] = leaves
	r.load[w]--
	r.away[t]++
	return int32(len(r.leaving)) - 1
}

// trim stops surplus copies: first copies that must leave, then those on the fullest workers,
// of the fullest zones. It lists the copies that need a place.
func (r *rules) trim() {
	over := r.over[:0]
	if !r.single || r.hasSurplus {
		for t, target := range r.target {
			if n := r.firstOf[t] - target; n > 0 && !r.byZone {
				over = append(over, pending{int32(t), n})
			}
		}
	}
	r.over = over
	r.class, r.may = r.Class, r.May
	if len(over) > maxOwnClasses || r.weights.weighted {
		r.stopFullest(over)
		r.over = over[:0]
	} else if len(over) > 0 {
		r.ownClasses()
	}
	for i := range r.leaving {
		l := &r.leaving[i]
		if r.away[l.task] > max(0, r.target[l.task]-r.firstOf[l.task]) {
			r.away[l.task]--
			r.load[l.worker]++
			r.stop(l.task, l.worker, l.position)
			l.task = None
		}
	}
	r.leaving = slices.DeleteFunc(r.leaving, func(l leaving) bool { return l.task == None })
	for i, l := range r.leaving {
		r.leavingOf[l.position] = int32(i) + 1
	}
	r.findWidths()
	r.hopeless = r.hopeless[:0]
	if r.single {
		r.met.others(r.placeMissing)
	} else {
		for t := range r.target {
			r.placeMissing(int32(t))
		}
	}
	r.stays = sized(r.stays, len(r.States))
	for i := range r.leaving {
		l := &r.leaving[i]
		if r.width[r.classOf(l.task)] == 0 {
			l.stuck = true
			r.load[l.worker]++
			r.stays[l.worker]++
			continue
		}
		tier := int32(tierDrain)
		if l.why != Drain {
			tier = tierEvict
		}
		r.places = append(r.places, place{task: l.task, copies: 1, tier: tier, leaving: int32(i)})
	}
}

// placeMissing lists the missing copies of a task.
func (r *rules) placeMissing(t int32) {
	missing := r.target[t] - r.firstOf[t] - r.away[t]
	if missing <= 0 {
		return
	}
	if n := max(0, r.width[r.classOf(t)]-r.firstOf[t]+r.elsewhere[t]); missing > n {
		r.hopeless = append(r.hopeless, pending{t, missing - n})
		missing = n
	}
	first := int32(0)
	if missing > 0 && r.firstOf[t] == 0 && r.away[t] == 0 && (!r.has[Frozen] || r.frozen[t] == 0) {
		first = 1
		r.places = append(r.places, place{task: t, copies: 1, tier: tierFirst, leaving: None})
	}
	if missing > first {
		r.places = append(r.places, place{task: t, copies: missing - first, tier: tierFurther, leaving: None})
	}
}

// findWidths counts, for each class, the workers that may run it.
func (r *rules) findWidths() {
	kinds, total := r.kinds[0][:0], int32(0)
	for w, s := range r.States {
		if s != Open && s != Quarantined {
			continue
		}
		kind := int(r.kindOf(int32(w)))
		if n := kind + 1 - len(kinds); n > 0 {
			kinds = append(kinds, make([]int32, n)...)
		}
		kinds[kind]++
		total++
	}
	r.kinds[0] = kinds
	r.width = sized(r.width, max(1, len(r.May)))
	for c := range r.width {
		if len(r.May) == 0 || r.May[c] == nil {
			r.width[c] = total
			continue
		}
		for i, kind := range r.May[c] {
			if int(kind) < len(kinds) && (i == 0 || r.May[c][i-1] != kind) {
				r.width[c] += kinds[kind]
			}
		}
	}
}

// maxOwnClasses is the highest number of tasks with surplus copies of which each is a class
// of its own, so that the network chooses the copies that stop.
const maxOwnClasses = 200

// ownClasses makes each task with surplus copies a class of its own.
func (r *rules) ownClasses() {
	r.ownClass = sized(r.ownClass, len(r.Want))
	copy(r.ownClass, r.Class)
	r.ownMay = append(r.ownMay[:0], r.May...)
	if len(r.ownMay) == 0 {
		r.ownMay = append(r.ownMay, nil)
	}
	for _, x := range r.over {
		r.ownMay = append(r.ownMay, r.ownMay[r.ownClass[x.task]])
		r.ownClass[x.task] = int32(len(r.ownMay)) - 1
	}
	r.class, r.may = r.ownClass, r.ownMay
}

// stopSurplus stops the copies that the network lets go of tasks with surplus copies.
func (r *rules) stopSurplus() {
	left := r.over
	r.rest = slices.DeleteFunc(r.rest, func(x item) bool {
		if x.leaving == None || r.leaving[x.leaving].why == Drain {
			return false
		}
		at, ok := slices.BinarySearchFunc(left, x.task, func(p pending, t int32) int { return cmp.Compare(p.task, t) })
		if !ok || left[at].copies == 0 {
			return false
		}
		left[at].copies--
		l := &r.leaving[x.leaving]
		l.placed = true
		r.load[l.worker]++
		r.stop(l.task, l.worker, l.position)
		return true
	})
	if len(left) > 0 {
		r.stopFullest(left)
	}
}

// stopFullest stops surplus copies on the fullest workers.
func (r *rules) stopFullest(over []pending) {
	r.find(over)
	for _, x := range over {
		for range x.copies {
			if c := r.fullest(x.task, None); c != nil {
				r.stop(c.task, c.worker, c.position)
			}
		}
	}
}

// stop drops a surplus copy.
func (r *rules) stop(t, w, position int32) {
	r.lose(t, w, position)
	r.inItsZone(t, w, -1)
}

// holder is a copy that stays and is not pinned.
type holder struct{ task, worker, position int32 }

// find lists the copies of some tasks, which fullest chooses from. One pass over the lists.
func (r *rules) find(tasks []pending) {
	wanted := r.found.emptied(len(r.Want))
	for _, x := range tasks {
		wanted.add(x.task)
	}
	r.found = wanted
	r.holders = r.holders[:0]
	for w, list := range r.Running {
		if s := r.States[w]; s != Open && s != Quarantined {
			continue
		}
		kind := r.kindOf(int32(w))
		for k, t := range list {
			if wanted.has(t) && r.flags[r.offset[w]+int32(k)] == kept && r.mayRun(t, kind) {
				r.holders = append(r.holders, holder{t, int32(w), r.offset[w] + int32(k)})
			}
		}
	}
	slices.SortStableFunc(r.holders, func(a, b holder) int { return cmp.Compare(a.task, b.task) })
}

// fullest returns the copy of t, of those that find listed, on the worker with the most use:
// in a zone, or in the zone with the most copies if zone is None.
func (r *rules) fullest(t, zone int32) *holder {
	at, _ := slices.BinarySearchFunc(r.holders, t, func(h holder, t int32) int { return cmp.Compare(h.task, t) })
	var best *holder
	for ; at < len(r.holders) && r.holders[at].task == t; at++ {
		h := &r.holders[at]
		if r.flags[h.position] != kept || zone != None && r.zoneOf(h.worker) != zone {
			continue
		}
		if best == nil || r.isFuller(h, best, zone) {
			best = h
		}
	}
	return best
}

func (r *rules) isFuller(a, b *holder, zone int32) bool {
	if r.zoned && zone == None {
		row := r.inZone[int(a.task)*r.zones:]
		if x, y := row[r.zoneOf(a.worker)], row[r.zoneOf(b.worker)]; x != y {
			return x > y
		}
	}
	return r.use(a.worker, 0).more(r.use(b.worker, 0))
}

// mayRun reports whether workers of a kind may run t.
func (d *draft) mayRun(t, kind int32) bool { return admits(d.May, d.classOf(t), kind) }

// admits reports whether workers of a kind may run tasks of a class; see Problem.May.
func admits(may [][]int32, class, kind int32) bool {
	if may == nil || may[class] == nil {
		return true
	}
	_, found := slices.BinarySearch(may[class], kind)
	return found
}

// use is a load by its share.
type use struct{ load, share int64 }

// use returns the use of w with some more copies.
func (d *draft) use(w, more int32) use {
	return use{int64(d.load[w]) + int64(more), int64(d.shareOf(w))}
}

func (u use) more(v use) bool { return u.load*v.share > v.load*u.share }
