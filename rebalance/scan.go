package rebalance

// Step 1: the copies that run, those that are missing, and those that are too many.

import (
	"math"
	"slices"
)

// scan is the step that finds the copies that run.
type scan struct {
	*draft
	surplus *surplus

	meetList func(again set, w int32, list []int32) int // single: meet, and what it fetches; may be nil
}

// counts holds what the scan finds.
type counts struct {
	single bool // no task is wanted more than once, and more: see beginSingle
	met    set  // single: the tasks of which a copy was met, or none is wanted

	// By task, unless single is set.
	tasks   []task
	frozen  []int32 // copies on frozen workers; valid if there are any
	drained []int32 // copies on draining workers that are not pinned; valid if there are any
	stays   []int32 // copies on quarantined workers, later those that they end with; pinned on draining ones

	staying     bool  // stays is in use
	wanted      int   // the sum of Want, from demand on of need
	least, most int32 // the lowest and the highest of Want
	missing     int   // how many copies the open workers lack initially
	hasSurplus  bool  // some task has surplus copies on open workers
}

// task holds what every step reads of a task, in one word.
type task struct {
	seen int32 // the last worker whose list named it, plus one
	// How many copies the open workers lack: of Want, and from demand on of need. It is
	// negative for a surplus, which trim removes.
	lack int32
}

// run counts the copies of each task, and the load of each worker. One pass
// over the lists.
func (sc *scan) run() error {
	if err := sc.begin(); err != nil {
		return err
	}
	if sc.single {
		return sc.scanSingle()
	}
	all := int32(0) // negative once a task has too many
	states, tasks, allFlags, offset, load := sc.States, sc.tasks, sc.flags, sc.offset, sc.load
	for w, list := range sc.Running {
		flags := allFlags[offset[w]:][:len(list)]
		repeats, at := 0, 0
		if states[w] == Open {
			var lacks int32
			repeats, lacks, at = tally(tasks, list, flags, int32(w)+1)
			all |= lacks
		} else {
			repeats, at = tallyTo(sc.countOf(int32(w)), tasks, list, flags, int32(w)+1)
		}
		if at < len(list) {
			return sc.noTask(w, at)
		}
		load[w] = int32(len(list) - repeats)
	}
	sc.hasSurplus = all < 0
	return nil
}

// begin sets all counts to zero.
func (sc *scan) begin() error {
	sc.staying = sc.has[Quarantined] || sc.has[Draining] && sc.Pinned != nil
	if sc.single = sc.beginSingle(); sc.single {
		return nil
	}
	for _, of := range []struct {
		isUsed bool
		count  *[]int32
	}{{sc.has[Frozen], &sc.frozen}, {sc.has[Draining], &sc.drained}, {sc.staying, &sc.stays}} {
		if of.isUsed {
			*of.count = sized(*of.count, len(sc.Want))
		}
	}
	return sc.wants()
}

// wants makes every task lack all of its wanted copies.
func (sc *scan) wants() error {
	sc.tasks = slices.Grow(sc.tasks[:0], len(sc.Want))[:len(sc.Want)]
	tasks := sc.tasks
	sum, least, most := 0, int32(math.MaxInt32), int32(0)
	for t, want := range sc.Want {
		tasks[t] = task{lack: want}
		sum += int(want)
		least, most = min(least, want), max(most, want)
	}
	if least < 0 {
		t := slices.Index(sc.Want, least)
		return invalid("Want[%d] is %d", t, least)
	}
	sc.wanted, sc.least, sc.most = sum, least, most
	return nil
}

// noTask returns the error for a worker that lists a number of no task.
func (sc *scan) noTask(w, at int) error {
	return invalid("Running[%d][%d] is %d, there are %d tasks", w, at, sc.Running[w][at], len(sc.Want))
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

// isEven reports whether the loads of open workers are even. At least one worker is open.
func (sc *scan) isEven() bool {
	load := sc.load
	least, most := load[sc.open[0]], load[sc.open[0]]
	for _, w := range sc.open {
		least, most = min(least, load[w]), max(most, load[w])
	}
	return most-least <= 1
}

// isComplete reports whether all workers are open, every task has its copies, and there are
// no others.
func (sc *scan) isComplete() bool {
	if sc.has[Frozen] || sc.has[Draining] || sc.has[Quarantined] || len(sc.open) == 0 {
		return false
	}
	return !sc.hasSurplus && len(sc.drops) == 0 && sc.running() == sc.wanted
}

// stopUnexpected drops the copies of unexpected tasks. If there are any, one pass
// over the lists.
func (sc *scan) stopUnexpected() {
	if sc.least > 0 || sc.single {
		return // no task is unexpected, or meetAgain has dropped the copies
	}
	found := false
	for t, want := range sc.Want {
		if want == 0 && sc.answering(int32(t)) > 0 {
			found = true
			break
		}
	}
	if !found {
		return
	}
	for w, list := range sc.Running {
		if sc.States[w] == Frozen {
			continue
		}
		at := sc.offset[w]
		for k, t := range list {
			if !sc.isExpected(t) && sc.flags[at+int32(k)] == kept {
				sc.lose(t, int32(w), at+int32(k))
			}
		}
	}
}

// gaps lists the missing copies, and finds the tasks that have too many copies on open
// workers. O(tasks), unless the scan has found neither.
func (sc *scan) gaps() {
	sc.pending, sc.missing = sc.pending[:0], 0
	lack := sc.wanted - sc.running() // the missing copies without the surplus ones
	if !sc.hasSurplus && lack == 0 {
		return
	}
	sc.pending = slices.Grow(sc.pending, min(max(lack, 0), len(sc.Want)))
	if sc.single {
		sc.gapsSingle()
		return
	}
	sc.surplus.reset()
	sc.hasSurplus = false
	for t, s := range sc.tasks {
		switch {
		case s.lack == 0:
		case s.lack > 0:
			sc.pending = append(sc.pending, pending{int32(t), s.lack})
			sc.missing += int(s.lack)
		case sc.least > 0 || sc.isExpected(int32(t)):
			sc.surplus.add(int32(t), -s.lack)
			sc.hasSurplus = true
		}
	}
}

// Step 1 of the ordinary case: no task is wanted more than once, every worker is open, and
// nothing is forbidden or pinned. Then the scan needs one bit for each task: whether a
// copy of it was met. The bits of a million tasks fit into the first-level cache, and
// their words do not. The plan is the same as that of the general scan.

// beginSingle reports whether this is the ordinary case, and prepares for it. O(tasks).
func (sc *scan) beginSingle() bool {
	if len(sc.open) < len(sc.States) || len(sc.open) == 0 || len(sc.Forbidden) > 0 || sc.Pinned != nil {
		return false
	}
	tasks := len(sc.Want)
	met := sc.met.emptied(tasks)
	sc.met = met
	sc.wanted, sc.least, sc.most = tasks, 1, 1
	for k := range met {
		wants := sc.Want[k*64 : min(k*64+64, tasks)]
		switch differing(wants) {
		case 0:
		case 1:
			sc.least = 0
			for i, n := range wants {
				if n == 0 {
					met.add(int32(k*64 + i)) // the first copy is one too many
					sc.wanted--
				}
			}
		default:
			return false
		}
	}
	if tasks%64 != 0 {
		met[tasks/64] |= ^uint64(0) << (tasks % 64) // numbers of no task
	}
	return true
}

// differing returns the bits in which some of the numbers, at most 64, differ from 1.
func differing(wants []int32) int32 {
	bits := int32(0)
	if len(wants) == 64 {
		all := (*[64]int32)(wants) // spares the checks of indexes
		for i := 0; i < 64; i += 4 {
			bits |= (all[i] ^ 1) | (all[i+1] ^ 1) | (all[i+2] ^ 1) | (all[i+3] ^ 1)
		}
		return bits
	}
	for _, n := range wants {
		bits |= n ^ 1
	}
	return bits
}

// scanSingle is scan for the ordinary case. One pass over the lists, and another one if a
// task was met again.
func (sc *scan) scanSingle() error {
	tasks := len(sc.Want)
	sc.surplus.reset()
	sc.surplus.copies = sc.surplus.copies[:0]
	met, again, load := sc.met, sc.surplus.over.set, sc.load
	for w, list := range sc.Running {
		at := 0
		if sc.meetList != nil {
			at = sc.meetList(again, int32(w), list)
		} else {
			at = meet(met, again, list, tasks)
		}
		if at < len(list) {
			return sc.noTask(w, at)
		}
		load[w] = int32(len(list))
	}
	sc.hasSurplus = !again.isEmpty()
	if sc.hasSurplus {
		sc.meetAgain()
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

// meetAndFetch is meet, and fetches what belongs to each task. What belongs to a million tasks is in
// a distant cache: a loop that does little else lets the processor wait for many at a time.
//
//go:noinline
func meetAndFetch[E any](met, again set, list []int32, of, fetched []E) int {
	fetched = fetched[:len(list)]
	for k, t := range list {
		i := uint(uint32(t))
		if i >= uint(len(of)) {
			return k
		}
		fetched[k] = of[i]
		word, bit := &met[i/64], uint64(1)<<(i%64)
		was := *word
		*word = was | bit
		if was&bit != 0 {
			again[i/64] |= bit
		}
	}
	return len(list)
}

// fetch returns what belongs to the tasks of a list. It reuses the memory of fetched.
//
//go:noinline
func fetch[E any](list []int32, of, fetched []E) []E {
	fetched = slices.Grow(fetched[:0], len(list))[:len(list)]
	for k, t := range list {
		fetched[k] = of[t]
	}
	return fetched
}

// meetAgain visits the tasks that were met again: it finds repeated names, drops copies
// of unexpected tasks, and collects the copies of the others.
func (sc *scan) meetAgain() {
	d := sc.draft
	o := sc.surplus
	o.over.number()
	o.excess = sized(o.excess, o.over.count)
	o.listed = o.listed.emptied(o.over.count)
	o.first, o.linked = o.first[:0], false
	anyExpected := d.least > 0
	for w, list := range d.Running {
		first, drops := len(o.copies), len(d.drops)
		o.first = append(o.first, int32(first))
		o.found = findAll(o.over.set, list, o.found)
		repeats := int32(0)
		for _, k := range o.found {
			t, at := list[k], d.offset[w]+k
			number := o.over.of(t)
			switch {
			case o.listed.has(number):
				d.flags[at] = repeated
				repeats++
				continue
			case anyExpected || d.isExpected(t):
				o.excess[number]++
				o.copies = append(o.copies, surplusCopy{number, at})
			default:
				d.lose(t, int32(w), at)
			}
			o.listed.add(number)
		}
		d.load[w] -= repeats
		for _, c := range o.copies[first:] {
			o.listed.remove(c.number)
		}
		for _, x := range d.drops[drops:] {
			o.listed.remove(o.over.of(x.task))
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
	d.hasSurplus = o.total > 0
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
func (sc *scan) gapsSingle() {
	sc.met.others(func(t int32) { sc.pending = append(sc.pending, pending{t, 1}) })
	sc.missing = len(sc.pending)
}
