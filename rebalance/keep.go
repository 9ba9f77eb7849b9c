package rebalance

// Step 2: how many copies each task gets, which surplus ones stop, and which copies need a place.

import (
	"math/bits"
	"slices"
)

// item is a copy that needs a place: a missing one, or one that must leave its worker.
type item struct {
	task  int32
	from  int32 // the worker that runs it, or None
	copy  ref   // if it runs; placed once a missing copy has its place
	tier  tier
	waits bool // the limit of moves keeps it from its place
}

// placed marks a missing copy that has a place.
const placed = noRef + 1

// tier is the order of P9.
type tier int8

const (
	firstOnes   tier = iota // missing copies of tasks that do not run at all
	furtherOnes             // other missing copies
	drained                 // copies on draining workers
	evicted                 // copies where a rule forbids them
)

// keeping decides which copies stay.
type keeping struct {
	target  []int32 // by task: how many copies workers that are not frozen are to have
	memory  []int32 // of target
	looked  set     // the tasks whose copies must be looked up
	trimmed bool    // some copy is one too many
	crowded bool    // some zone has too many copies of a task
	evicts  bool    // some copy must leave
	items   []item
	missing int     // items that are missing copies
	sorted  []item  // memory of items
	begins  []int32 // for sort: where the items of a key begin
	widths  []int32 // by class: the workers that may run it
}

// decide decides which copies stay, and lists those that need a place.
func (k *keeping) decide(s *state, sc *scan) {
	k.items, k.trimmed, k.crowded = k.items[:0], false, false
	s.multi = sc.mostWanted > 1 || sc.surplus || sc.repeats
	k.aim(s, sc)
	s.pin()
	work := s.findLeaving()
	k.looked = k.looked.emptied(len(s.Want))
	k.findSurplus(s, sc)
	if s.zoned {
		k.findCrowded(s)
	}
	k.listMissing(s, sc)
	k.missing = len(k.items)
	for _, x := range k.items {
		work += s.work(x.task)
	}
	many := s.multi && work > len(s.workers)
	if many { // one pass is faster than the lists of some workers for each item
		k.lookUpItems(s)
	}
	if many || k.trimmed || k.crowded {
		s.prepare()
		s.index(k.looked)
	}
	if k.trimmed {
		k.trim(s)
	}
	if k.crowded {
		k.evictFromZones(s)
	}
	k.listLeaving(s)
	k.evicts = len(k.items) > 0 && k.items[len(k.items)-1].from != None
	if s.weights != nil {
		slices.SortStableFunc(k.items, func(a, b item) int { return s.Weight[b.task].compare(s.Weight[a.task]) })
	}
	if s.labels && s.weights == nil && len(k.items) > 1 {
		k.findWidths(s)
		if len(k.items) >= bulk {
			k.sort(func(x item) int32 { return s.class(x.task) })
		}
		k.sort(func(x item) int32 { return k.widths[s.class(x.task)] })
	}
	if k.evicts || s.labels || s.weights != nil {
		k.sort(func(x item) int32 { return int32(x.tier) })
	}
}

// aim sets the targets.
func (k *keeping) aim(s *state, sc *scan) {
	k.target = s.Want
	if sc.frozen == nil {
		return
	}
	k.memory = append(k.memory[:0], s.Want...)
	k.target = k.memory
	for t, n := range sc.frozen {
		if want := s.Want[t]; n > 0 && want > 0 {
			k.target[t] = max(want-n, min(want, s.copies(int32(t))))
		}
	}
}

// pin marks the pinned copies.
func (s *state) pin() {
	for w, n := range s.Pinned {
		list, at := s.Running[w], s.workers[w].offset
		if n == 0 || s.States[w] == Frozen {
			continue
		}
		for i := len(list) - int(n); i < len(list); i++ {
			c := at + int32(i)
			if s.flags[c]&repeated != 0 {
				c = at + int32(slices.Index(list, list[i]))
			}
			s.flags[c] |= pinned
		}
	}
}

// findLeaving marks the copies that must leave their workers, but for those of full zones, and
// returns how much work they are.
func (s *state) findLeaving() (work int) {
	for w := range s.workers {
		at := &s.workers[w]
		drains := at.state == Draining
		if !drains && (!s.labels || at.state == Frozen || s.classesOf(int32(w)).isWithin(s.admitted(s.hubs[at.hub].kind))) {
			continue
		}
		for k, t := range s.Running[w] {
			if c := at.offset + int32(k); s.flags[c] == 0 && (drains || !s.admitsClass(t, at.hub)) {
				s.flags[c] |= leaving
				at.leaving++
				work += s.work(t)
			}
		}
	}
	return work
}

// work is about how many workers are asked whether they run t until one takes a copy, times four.
func (s *state) work(t int32) int { return 4 + int(s.Want[t])/8 }

// findSurplus finds the tasks with too many copies.
func (k *keeping) findSurplus(s *state, sc *scan) {
	switch {
	case sc.single:
		if k.trimmed = sc.repeats; sc.repeats {
			copy(k.looked, sc.again)
		}
	case sc.surplus || sc.frozen != nil:
		for t := range sc.counts {
			if s.copies(int32(t)) > k.target[t] && s.Want[t] > 0 {
				k.looked.add(int32(t))
				k.trimmed = true
			}
		}
	}
}

// findCrowded finds the tasks of which a zone has too many copies.
func (k *keeping) findCrowded(s *state) {
	zones := s.inZone
	for t, most := range s.zoneCap {
		for _, n := range zones[:s.zones] {
			if n > most {
				k.looked.add(int32(t))
				k.crowded = true
			}
		}
		zones = zones[s.zones:]
	}
}

// trim stops surplus copies: first those that must leave, then those in the fullest zones, then
// those on the workers with the most. The search may still exchange them, for nothing.
func (k *keeping) trim(s *state) {
	for t := range k.looked.members {
		n := -k.target[t]
		for range s.holders(t) {
			n++
		}
		for ; n > 0; n-- {
			h := s.worst(t, func(h *holder) bool { return s.flags[h.copy]&gone == 0 })
			s.take(h.worker, h.copy)
		}
	}
}

// worst returns the copy of t that stops first, among some of them, or nil. Of equal ones it is on the
// first worker.
func (s *state) worst(t int32, among func(h *holder) bool) (worst *holder) {
	for h := range s.holders(t) {
		if among(h) && (worst == nil || !s.stopsSooner(worst, h)) {
			worst = h
		}
	}
	return worst
}

// stopsSooner is the order in which copies of a task stop.
func (s *state) stopsSooner(a, b *holder) bool {
	if x, y := s.stopRank(a), s.stopRank(b); x != y {
		return x < y
	}
	if s.zoned {
		zones := s.inZone[int(a.task)*s.zones:]
		if x, y := zones[s.zone(a.worker)], zones[s.zone(b.worker)]; x != y {
			return x > y
		}
	}
	if n := s.stopping(b).compare(s.stopping(a)); n != 0 {
		return n < 0
	}
	return s.States[a.worker] == Open && s.States[b.worker] == Quarantined // where another copy may start
}

// stopping returns what one copy less saves. One that must leave counts as well.
func (s *state) stopping(h *holder) cost {
	at := &s.workers[h.worker]
	if s.flags[h.copy]&leaving != 0 && !at.isOver() {
		return cost{2*int64(at.load) - 1, int64(at.share)}
	}
	return s.removing(h.worker)
}

func (s *state) stopRank(h *holder) (rank int) {
	f := s.flags[h.copy]
	if s.States[h.worker] != Draining {
		rank = 1
	}
	switch {
	case f&pinned != 0:
		return 3 + rank
	case f&leaving == 0:
		return 2
	}
	return rank
}

// evictFromZones marks copies of the tasks of which a zone has too many.
func (k *keeping) evictFromZones(s *state) {
	for t := range k.looked.members {
		for z := range int32(s.zones) {
			over := s.inZone[int(t)*s.zones+int(z)] - s.zoneCap[t]
			if over <= 0 {
				continue
			}
			for h := range s.holders(t) {
				if s.zone(h.worker) == z && s.flags[h.copy]&(gone|leaving) == leaving {
					over--
				}
			}
			for ; over > 0; over-- {
				h := s.worst(t, func(h *holder) bool { return s.zone(h.worker) == z && s.flags[h.copy] == 0 })
				if h == nil {
					break
				}
				s.markLeaving(h.worker, h.copy)
			}
		}
	}
}

// listMissing lists the missing copies. Of a task that wants more copies than there are open workers,
// one more than these stands for all that have no place.
func (k *keeping) listMissing(s *state, sc *scan) {
	if sc.single {
		k.items = slices.Grow(k.items, sc.met.lacks())
		for i, word := range sc.met {
			for word = ^word; word != 0; word &= word - 1 {
				k.items = append(k.items, item{task: int32(i*64 + bits.TrailingZeros64(word)), from: None, copy: noRef})
			}
		}
		return
	}
	if sc.complete {
		return
	}
	for _, of := range []tier{firstOnes, furtherOnes} {
		for t := range sc.counts {
			missing := k.target[t] - s.copies(int32(t))
			if missing <= 0 {
				continue
			}
			n := min(missing, s.open+1)
			if missing == k.target[t] && (sc.frozen == nil || sc.frozen[t] == 0) { // its first copy is missing
				if n--; of == firstOnes {
					n = 1
				}
			} else if of == firstOnes {
				continue
			}
			for range n {
				k.items = append(k.items, item{task: int32(t), from: None, copy: noRef, tier: of})
			}
		}
	}
}

// lookUpItems adds the tasks of the items to those that must be looked up.
func (k *keeping) lookUpItems(s *state) {
	for _, x := range k.items {
		k.looked.add(x.task)
	}
	for w := range s.workers {
		if s.workers[w].leaving == 0 {
			continue
		}
		for i, t := range s.Running[w] {
			if s.flags[s.workers[w].offset+int32(i)] == leaving {
				k.looked.add(t)
			}
		}
	}
}

// listLeaving lists the copies that must leave.
func (k *keeping) listLeaving(s *state) {
	for w := range s.workers {
		at := &s.workers[w]
		if at.leaving == 0 {
			continue
		}
		of := evicted
		if at.state == Draining {
			of = drained
		}
		for i, t := range slices.Backward(s.Running[w]) { // what has moved last is at the end: see placeLeaving
			if c := at.offset + int32(i); s.flags[c] == leaving {
				k.items = append(k.items, item{task: t, from: int32(w), copy: c, tier: of})
			}
		}
	}
}

// findWidths counts the workers of each class: what few may run goes first.
func (k *keeping) findWidths(s *state) {
	k.widths = sized(k.widths, len(s.May))
	for w := range s.workers {
		at := &s.workers[w]
		if at.state != Open {
			continue
		}
		for class := range s.admitted(s.hubs[at.hub].kind).members {
			k.widths[class]++
		}
	}
}

// sort sorts the items by small keys, in linear time. Equal ones keep their order.
func (k *keeping) sort(key func(item) int32) {
	most, last, sorted := int32(0), int32(0), true
	for _, x := range k.items {
		n := key(x)
		sorted = sorted && last <= n
		most, last = max(most, n), n
	}
	if sorted {
		return
	}
	k.begins = sized(k.begins, int(most)+2)
	for _, x := range k.items {
		k.begins[key(x)+1]++
	}
	for i := range most {
		k.begins[i+1] += k.begins[i]
	}
	k.sorted = roomy(k.sorted, len(k.items))
	for _, x := range k.items {
		at := &k.begins[key(x)]
		k.sorted[*at] = x
		*at++
	}
	k.items, k.sorted = k.sorted, k.items
}
