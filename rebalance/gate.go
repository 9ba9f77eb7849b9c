package rebalance

// The gate: every rule about who may run what. All starts and moves pass it.

import (
	"cmp"
	"math"
	"slices"
)

// gate knows the rules. Tasks of equal labels are a class. Workers of equal labels and zone are
// a hub: apart from forbidden pairs and from the copies that they run, a rule admits all workers
// of a hub or none.
type gate struct {
	labels  bool
	words   int // of a set of classes
	kinds   set // by kind: the classes that its workers may run
	classes set // by worker: the classes of the copies that it runs or has run
	runners runners

	zoned   bool
	zones   int
	zoneOf  map[int32]int32 // by Problem.Zone: its number
	inZone  []int32         // by task and zone: copies on all workers
	zoneCap []int32         // by task: how many copies one zone may run
	relaxed bool            // default caps do not count
	caps    caps

	hubs    []hub
	ofKind  []int32 // by kind: its latest hub, plus one
	allHubs []int32
	fewHubs []int32 // memory of hubsOf
	below   []int32 // memory of hubsBelow
	ofHub   []int32 // the workers by hub
	hubAt   []int32 // by hub: where its workers begin in ofHub
	hubOf   map[hub]int32
	barred  []uint64 // forbidden pairs, in order
}

// runners lists, by class, the workers that run it or have run it, once someone asks.
type runners struct {
	known bool
	first []int32 // by class: the latest of its links, plus one
	links []link
}

// link is a worker in the list of a class. next is the next one of the class, plus one.
type link struct{ worker, next int32 }

func (r *runners) add(class, w int32) {
	if !r.known {
		return
	}
	r.links = append(r.links, link{w, r.first[class]})
	r.first[class] = int32(len(r.links))
}

// hub is what workers have in common. By weight they have the share in common too.
type hub struct {
	kind, zone, share int32
	next              int32 // the next one of the kind, plus one
}

// unlimited is a cap that never binds.
const unlimited = math.MaxInt32

// bind reads the rules of the problem.
func (s *state) bind() {
	s.zoned, s.relaxed, s.largest = false, false, 1
	s.numberZones()
	s.bindLabels()
	equal := !slices.ContainsFunc(s.Share, func(n int32) bool { return n != s.Share[0] })
	for w := range s.workers {
		at := &s.workers[w]
		at.room, at.share = unlimited, 1
		if s.MaxTasks != nil && s.MaxTasks[w] != 0 {
			at.room = max(0, s.MaxTasks[w])
		}
		if !equal {
			at.share = s.Share[w]
			s.largest = max(s.largest, at.share)
		}
	}
	if s.zones > 1 || s.MaxPerZone != nil {
		s.bindCaps()
	}
	s.bindHubs()
	s.barred = s.barred[:0]
	for _, p := range s.Forbidden {
		s.barred = append(s.barred, pairKey(p.Task, p.Worker))
	}
	slices.Sort(s.barred)
}

func pairKey(task, worker int32) uint64 { return uint64(task)<<32 | uint64(worker) }

// numberZones numbers the zones from 0, so that a high number costs nothing.
func (s *state) numberZones() {
	if s.zones = 1; s.Zone == nil {
		return
	}
	if s.zoneOf == nil {
		s.zoneOf = make(map[int32]int32)
	}
	clear(s.zoneOf)
	for w, z := range s.Zone {
		if _, known := s.zoneOf[z]; !known {
			s.zoneOf[z] = int32(len(s.zoneOf))
		}
		s.workers[w].zone = s.zoneOf[z]
	}
	s.zones = max(1, len(s.zoneOf))
}

// bindLabels makes the bits of which kinds may run which classes.
func (s *state) bindLabels() {
	s.labels = slices.ContainsFunc(s.May, func(kinds []int32) bool { return kinds != nil })
	if !s.labels {
		return
	}
	kinds := 1
	for _, k := range s.Kind {
		kinds = max(kinds, int(k)+1)
	}
	s.words = (len(s.May) + 63) / 64
	s.kinds, s.classes = sized(s.kinds, kinds*s.words), sized(s.classes, len(s.States)*s.words)
	for c, may := range s.May {
		at, bit := c/64, uint64(1)<<(c%64)
		if may == nil {
			for k := range kinds {
				s.kinds[k*s.words+at] |= bit
			}
			continue
		}
		for _, k := range may {
			if int(k) < kinds {
				s.kinds[int(k)*s.words+at] |= bit
			}
		}
	}
}

// bindHubs finds the hub of each worker.
func (s *state) bindHubs() {
	s.hubs = s.hubs[:0]
	if len(s.workers) == 0 || !s.labels && !s.zoned && (s.Share == nil || s.Weight == nil) {
		s.hubs = append(s.hubs, hub{share: 1})
		return
	}
	if s.hubOf == nil {
		s.hubOf = make(map[hub]int32)
	}
	clear(s.hubOf)
	if s.labels {
		s.ofKind = sized(s.ofKind, len(s.kinds)/max(1, s.words))
	}
	for w := range s.workers {
		h := hub{}
		if s.labels && s.Kind != nil {
			h.kind = s.Kind[w]
		}
		if s.zoned {
			h.zone = s.zone(int32(w))
		}
		if s.Weight != nil {
			h.share = s.workers[w].share
		}
		i, known := s.hubOf[h]
		if !known {
			i = int32(len(s.hubs))
			s.hubOf[h] = i
			if s.labels {
				h.next, s.ofKind[h.kind] = s.ofKind[h.kind], i+1
			}
			s.hubs = append(s.hubs, h)
		}
		s.workers[w].hub = i
	}
}

// listHubs lists the workers of each hub.
func (s *state) listHubs() {
	s.hubAt, s.ofHub = sized(s.hubAt, len(s.hubs)+2), roomy(s.ofHub, len(s.workers))
	for w := range s.workers {
		s.hubAt[s.workers[w].hub+2]++
	}
	s.allHubs = s.allHubs[:0]
	for h := range s.hubs {
		s.hubAt[h+1] += s.hubAt[h]
		s.allHubs = append(s.allHubs, int32(h))
	}
	for w := range s.workers {
		at := &s.hubAt[s.workers[w].hub+1]
		s.ofHub[*at] = int32(w)
		*at++
	}
}

// hubsOf returns the hubs whose labels admit a class, if they are few, or all hubs. The memory is used again.
func (s *state) hubsOf(class int32) (hubs []int32, few bool) {
	if !s.labels || s.May[class] == nil || 4*len(s.May[class]) > len(s.hubs) {
		return s.allHubs, false
	}
	s.fewHubs = s.fewHubs[:0]
	for _, k := range s.May[class] {
		if int(k) < len(s.ofKind) {
			for h := s.ofKind[k]; h > 0; h = s.hubs[h-1].next {
				s.fewHubs = append(s.fewHubs, h-1)
			}
		}
	}
	return s.fewHubs, true
}

// hubsBelow returns the hubs to which w may give a copy and where one more costs less than gain, in their order, if
// they are few. The memory is used again.
func (s *state) hubsBelow(w int32, gain cost) (hubs []int32, few bool) {
	o, asked := &s.order, 0
	s.below = s.below[:0]
	for class := range s.classesOf(w).members {
		hubs, few := s.hubsOf(class)
		if asked += len(hubs) + 1; !few || 4*asked > len(s.hubs) {
			return nil, false
		}
		s.below = append(s.below, hubs...)
	}
	s.below = slices.DeleteFunc(s.below, func(h int32) bool { return o.index[h] == 0 || !o.keys[h].cost().less(gain) })
	slices.SortFunc(s.below, func(a, b int32) int {
		x, y := o.keys[a], o.keys[b]
		return cmp.Or(x.cost().compare(y.cost()), cmp.Compare(x.tie, y.tie))
	})
	return slices.Compact(s.below), true
}

// runnersFor appends the workers that run a class which a hub admits, some more than once, to a list, if they are
// no more than most.
func (s *state) runnersFor(hub int32, most int, list []int32) (workers []int32, few bool) {
	r := &s.runners
	if !r.known {
		r.known, r.first, r.links = true, sized(r.first, len(s.May)), r.links[:0]
		for w := range int32(len(s.workers)) {
			for class := range s.classesOf(w).members {
				r.add(class, w)
			}
		}
	}
	for class := range s.admitted(s.hubs[hub].kind).members {
		for i := r.first[class]; i > 0 && len(list) <= most; i = r.links[i-1].next {
			list = append(list, r.links[i-1].worker)
		}
	}
	return list, len(list) <= most
}

// members returns the workers of a hub.
func (s *state) members(hub int32) []int32 { return s.ofHub[s.hubAt[hub]:s.hubAt[hub+1]] }

// caps finds how many copies of a task one zone may run by default (P13).
type caps struct {
	able  []int32   // by class and zone: the workers that may run it and do not drain
	known [][]int32 // by class and copies wanted: the cap, or 0
}

// bindCaps finds the caps of all tasks.
func (s *state) bindCaps() {
	classes := max(1, len(s.May))
	c := &s.caps
	c.able, c.known = sized(c.able, classes*s.zones), slices.Grow(c.known[:0], classes)[:classes]
	for w, st := range s.States {
		if st == Draining {
			continue
		}
		for class := range classes {
			if !s.labels || s.kindAdmits(s.kind(w), int32(class)) {
				c.able[class*s.zones+int(s.zone(int32(w)))]++
			}
		}
	}
	for class := range c.known {
		c.known[class] = c.known[class][:0]
	}
	s.zoneCap = roomy(s.zoneCap, len(s.Want))
	for t, want := range s.Want {
		rule := s.capRule(int32(t))
		switch {
		case rule > 0:
			s.zoneCap[t] = rule
			s.zoned = s.zoned || rule < want || slices.Contains(s.States, Frozen)
		case rule < 0 || want < 2:
			s.zoneCap[t] = unlimited
		default:
			s.zoneCap[t] = c.of(s.class(int32(t)), want, s.zones)
			s.zoned = s.zoned || s.zoneCap[t] < unlimited
		}
	}
	if s.zoned {
		s.inZone = sized(s.inZone, len(s.Want)*s.zones)
	}
}

// of returns the default cap.
func (c *caps) of(class, want int32, zones int) int32 {
	const remembered = 256
	known := &c.known[class]
	if want > remembered {
		return c.leastCap(c.able[int(class)*zones:][:zones], want)
	}
	for len(*known) <= int(want) {
		*known = append(*known, 0)
	}
	if (*known)[want] == 0 {
		(*known)[want] = c.leastCap(c.able[int(class)*zones:][:zones], want)
	}
	return (*known)[want]
}

// leastCap returns the least cap with which all copies fit that have a worker, and at least their
// number by the zones that count: those with half the mean of workers, and the two largest.
func (c *caps) leastCap(able []int32, want int32) int32 {
	total, used, first, second := int32(0), int32(0), int32(0), int32(0) // the two largest
	for _, n := range able {
		total, used = total+n, used+min(n, 1)
		first, second = max(first, n), max(second, min(first, n))
	}
	if used < 2 {
		return unlimited
	}
	count := int32(0)
	for _, n := range able {
		if n > 0 && (2*n*used >= total || n >= second) {
			count++
		}
	}
	if 2*second*used < total { // not all zones as large as the second count, but one
		count = 2
	}
	for most := (want-1)/count + 1; ; most++ {
		fits := int32(0)
		for _, n := range able {
			fits += min(n, most)
		}
		if fits >= min(want, total) {
			return most
		}
	}
}

// capRule returns the MaxPerZone of t.
func (s *state) capRule(t int32) int32 {
	if s.MaxPerZone == nil {
		return 0
	}
	return s.MaxPerZone[t]
}

func (s *state) class(t int32) int32 {
	if s.Class == nil || s.May == nil {
		return 0
	}
	return s.Class[t]
}

func (s *state) kind(w int) int32 {
	if s.Kind == nil {
		return 0
	}
	return s.Kind[w]
}

func (s *state) zone(w int32) int32 { return s.workers[w].zone }

// classesOf returns the classes that w runs or has run.
func (s *state) classesOf(w int32) set { return s.classes[int(w)*s.words:][:s.words] }

// admitted returns the classes that workers of a kind may run.
func (s *state) admitted(kind int32) set { return s.kinds[int(kind)*s.words:][:s.words] }

func (s *state) kindAdmits(kind, class int32) bool {
	return s.kinds[int(kind)*s.words+int(class)/64]>>(class%64)&1 != 0
}

// mayGive reports whether w may have a copy whose labels the hub admits.
func (s *state) mayGive(w, hub int32) bool {
	return !s.labels || s.classesOf(w).meets(s.admitted(s.hubs[hub].kind))
}

// admitsClass reports whether the labels of a hub admit t.
func (s *state) admitsClass(t, hub int32) bool {
	return !s.labels || s.kindAdmits(s.hubs[hub].kind, s.class(t))
}

// admits reports whether rules let the workers of a hub gain a copy of t that is now on worker
// from, or on None.
func (s *state) admits(t, hub, from int32) bool {
	if !s.admitsClass(t, hub) {
		return false
	}
	if !s.zoned || s.relaxed && s.capRule(t) == 0 {
		return true
	}
	z := s.hubs[hub].zone
	n := s.inZone[int(t)*s.zones+int(z)]
	if from != None && s.zone(from) == z {
		n--
	}
	return n < s.zoneCap[t]
}

// can reports whether w may gain a copy of t that is now on worker from, or on None. Whether it
// has room is another question.
func (s *state) can(t, w, from int32) bool {
	return s.admits(t, s.workers[w].hub, from) && s.fits(t, w)
}

// fits is can for a task that the hub of w admits. A copy that returns to where it runs is no gain.
func (s *state) fits(t, w int32) bool {
	if s.runs(t, w) {
		return false
	}
	if s.workers[w].state == Open && (len(s.barred) == 0 || !s.isBarred(t, w)) {
		return true
	}
	return s.workers[w].takesPart() && s.goneFrom(t, w) != noRef
}

func (s *state) isBarred(t, w int32) bool {
	_, found := slices.BinarySearch(s.barred, pairKey(t, w))
	return found
}
