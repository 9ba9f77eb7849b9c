package rebalance

// Step 1: what runs. One pass over the lists.

import "slices"

// scan counts the copies that run.
type scan struct {
	single      bool // bits suffice: no task is wanted twice, and nothing tells workers apart
	met         set  // single: the tasks that have a copy, and those that are not wanted
	again       set  // single: the tasks that were met again
	repeats     bool // single: again has members
	counts      []tally
	surplus     bool    // not single: some task may have too many copies
	complete    bool    // every task has its copies
	frozen      []int32 // by task: copies on frozen workers; nil if no worker is frozen
	memory      []int32 // of frozen
	leastWanted int32   // the lowest number of copies wanted
	mostWanted  int32   // the highest one
}

// tally is what the scan counts of a task.
type tally struct {
	seen int32 // the last worker whose list named it, plus one
	lack int32 // how many of the copies wanted do not run on workers that are not frozen; negative for a surplus
}

// copies returns how many copies of t run on workers that are not frozen.
func (s *state) copies(t int32) int32 { return s.Want[t] - s.counts[t].lack }

// count counts copies and loads.
func (sc *scan) count(s *state) error {
	ones := areOne(s.Want)
	sc.leastWanted, sc.mostWanted, sc.frozen, sc.surplus, sc.repeats, sc.complete = 1, 1, nil, false, false, false
	sc.single = len(s.barred) == 0 && s.Pinned == nil && !s.zoned &&
		!slices.ContainsFunc(s.States, func(st State) bool { return st != Open }) &&
		(ones || !slices.ContainsFunc(s.Want, func(n int32) bool { return n < 0 || n > 1 }))
	if sc.single {
		if !ones {
			sc.leastWanted = 0
		}
		return sc.countSingle(s)
	}
	return sc.countEach(s)
}

func outOfRange(w, k int, t int32, tasks int) error {
	return invalid("Running[%d][%d] is %d, there are %d tasks", w, k, t, tasks)
}

// countSingle is count with a bit for each task.
func (sc *scan) countSingle(s *state) error {
	tasks := len(s.Want)
	sc.met, sc.again = sc.met.emptied(tasks), sc.again.emptied(tasks)
	if sc.leastWanted == 0 {
		for t, n := range s.Want {
			if n == 0 {
				sc.met.add(int32(t)) // so the first copy is one too many
			}
		}
	}
	if tasks%64 != 0 { // numbers of no task count as met
		sc.met[tasks/64] |= ^uint64(0) << (tasks % 64)
	}
	hit := uint64(0)
	for w, list := range s.Running {
		s.workers[w].load = int32(len(list))
		var k int
		var bits uint64
		switch {
		case !s.labels || s.Class == nil:
			k, bits = meet(sc.met, sc.again, list)
			if s.labels && len(list) > 0 {
				s.classesOf(int32(w)).add(0)
			}
		case s.words == 1:
			k, bits = meetClasses(sc.met, sc.again, list, s.Class, &s.classes[w])
		default:
			k, bits = meet(sc.met, sc.again, list)
			held := s.classesOf(int32(w))
			for _, t := range list[:k] {
				if int(t) < tasks {
					held.add(s.Class[t])
				}
			}
		}
		hit |= bits
		if k < len(list) {
			return outOfRange(w, k, list[k], tasks)
		}
	}
	if hit == 0 {
		return nil
	}
	sc.repeats = true
	return sc.countAgain(s)
}

// meet adds the tasks of a list to met, or to again if they are in met. It returns the place in
// the list at which it stopped, and some bits if any task was met again. A plan that changes
// little spends most of its time here. It is not inlined, so that its variables stay in registers.
//
//go:noinline
func meet(met, again set, list []int32) (int, uint64) {
	hit := uint64(0)
	for k, t := range list {
		i := uint(uint32(t))
		if i/64 >= uint(len(met)) {
			return k, hit
		}
		word, bit := &met[i/64], uint64(1)<<(i%64)
		was := *word
		*word = was | bit
		if was&bit != 0 {
			again[i/64] |= bit
			hit |= bit
		}
	}
	return len(list), hit
}

// meetClasses is meet, and collects the classes of the tasks, of which there are 64 at most.
//
//go:noinline
func meetClasses(met, again set, list, class []int32, held *uint64) (int, uint64) {
	hit, classes := uint64(0), uint64(0)
	for k, t := range list {
		i := uint(uint32(t))
		if i >= uint(len(class)) {
			return k, hit
		}
		classes |= 1 << (uint32(class[i]) % 64)
		word, bit := &met[i/64], uint64(1)<<(i%64)
		was := *word
		*word = was | bit
		if was&bit != 0 {
			again[i/64] |= bit
			hit |= bit
		}
	}
	*held = classes
	return len(list), hit
}

// countAgain finds repeated names and unexpected copies. It is a second pass over the lists.
func (sc *scan) countAgain(s *state) error {
	s.roomForMarks()
	m := &s.marks[0]
	for w, list := range s.Running {
		at := &s.workers[w]
		m.forget()
		for k, t := range list {
			if int(t) >= len(s.Want) {
				return outOfRange(w, k, t, len(s.Want))
			}
			if !sc.again.has(t) {
				continue
			}
			f := &s.flags[at.offset+int32(k)]
			switch {
			case m.stamps[t] == m.stamp:
				*f = repeated | gone
				at.load--
			case s.Want[t] == 0:
				*f = gone
				at.load--
			}
			m.stamps[t] = m.stamp
		}
	}
	return nil
}

// countEach is count with a count for each task.
func (sc *scan) countEach(s *state) error {
	sc.counts = roomy(sc.counts, len(s.Want))
	wanted, least, most := 0, int32(1), int32(1)
	for t, n := range s.Want {
		sc.counts[t] = tally{lack: n}
		wanted, least, most = wanted+int(n), min(least, n), max(most, n)
	}
	if least < 0 {
		t := slices.Index(s.Want, least)
		return invalid("Want[%d] is %d", t, least)
	}
	s.counts, sc.leastWanted, sc.mostWanted = sc.counts, least, most
	if slices.Contains(s.States, Frozen) {
		sc.memory = sized(sc.memory, len(s.Want))
		sc.frozen = sc.memory
	}
	signs := int32(0) // negative once a task has too many copies
	for w, list := range s.Running {
		at := &s.workers[w]
		flags := s.flags[at.offset:][:len(list)]
		at.load = int32(len(list))
		k, fewer, some := countCopies(sc.counts, list, flags, int32(w)+1)
		if k < len(list) {
			return outOfRange(w, k, list[k], len(s.Want))
		}
		signs |= some
		at.load -= fewer
		if s.zoned {
			zone, zones := s.inZone[s.zone(int32(w)):], s.zones
			for k, t := range list {
				if flags[k] == 0 { // not repeated
					zone[int(t)*zones]++
				}
			}
		}
		if at.state == Frozen || sc.leastWanted == 0 || s.labels {
			sc.revise(s, int32(w))
		}
	}
	sc.surplus = signs < 0
	for w := range s.workers {
		wanted -= int(s.workers[w].load)
	}
	sc.complete = wanted == 0 && sc.frozen == nil && !sc.surplus
	return nil
}

// countCopies counts the copies of a worker. It returns the place in the list at which it
// stopped, how many names were repeated, and a negative number if a task has too many copies. Like
// meet it is not inlined.
//
//go:noinline
func countCopies(counts []tally, list []int32, flags []flag, seen int32) (at int, fewer, signs int32) {
	for k, t := range list {
		i := uint(uint32(t))
		if i >= uint(len(counts)) {
			return k, fewer, signs
		}
		c := &counts[i]
		if c.seen == seen {
			flags[k] = repeated | gone
			fewer++
			continue
		}
		c.seen = seen
		c.lack--
		signs |= c.lack
	}
	return len(list), fewer, signs
}

// revise counts what sets the copies of w apart: it is frozen, a task is unexpected, labels bind.
func (sc *scan) revise(s *state, w int32) {
	at := &s.workers[w]
	for k, t := range s.Running[w] {
		f := &s.flags[at.offset+int32(k)]
		if *f != 0 {
			continue // repeated
		}
		if at.state == Frozen {
			sc.frozen[t]++
			sc.counts[t].lack++
			*f = pinned
		}
		if s.Want[t] == 0 && at.state != Frozen {
			*f = gone
			at.load--
			if s.zoned {
				s.inZone[int(t)*s.zones+int(s.zone(w))]--
			}
			continue
		}
		if s.labels {
			s.classesOf(w).add(s.class(t))
		}
	}
}

// areOne reports whether all numbers are 1.
func areOne(numbers []int32) bool {
	for len(numbers) >= 64 {
		all, bits := (*[64]int32)(numbers), int32(0) // spares the checks of indexes
		for i := 0; i < 64; i += 4 {
			bits |= (all[i] ^ 1) | (all[i+1] ^ 1) | (all[i+2] ^ 1) | (all[i+3] ^ 1)
		}
		if bits != 0 {
			return false
		}
		numbers = numbers[64:]
	}
	return !slices.ContainsFunc(numbers, func(n int32) bool { return n != 1 })
}
