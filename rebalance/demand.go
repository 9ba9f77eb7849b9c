package rebalance

// How many copies of each task, and on each worker, the plan ends with, and which
// copies are pinned.

// demand is the step that decides how many copies the plan ends with.
type demand struct {
	*draft
	targeted, needed []int32 // memory of target and need, if they differ from Want
}

// needs holds what the demand step and the quarantine step decide.
type needs struct {
	// By task.
	target []int32 // copies that the workers that are not frozen end with
	need   []int32 // copies that the open workers end with
	pinned []int32 // pinned on open workers
	barred []int32 // open workers without a copy that may not gain one

	// By worker.
	limit []int32 // copies to end with
	base  []int32 // limit without the extra unit that some have
	fixed []int32 // pinned copies

	level   int32 // the load that every open worker ends with, or one more
	extra   int32 // how many end with one more
	waiting int   // pinned copies on draining workers
	isShort bool  // some task has fewer places than copies to run
}

// prepare counts the copies that cannot gain a place or move, and decides the targets.
func (d *demand) prepare() {
	d.forbidden()
	d.targets()
	d.pin()
}

// forbidden sorts the forbidden pairs by worker, and counts for each task the
// open workers that have no copy and may gain none. O(tasks + pairs), and a pass
// over the lists of the workers in them.
func (d *demand) forbidden() {
	d.forbid.reset()
	if len(d.Forbidden) == 0 {
		return
	}
	d.barred = sized(d.barred, len(d.Want))
	d.forbid.fill(len(d.States), d.Forbidden)
	for _, w := range d.open {
		row := d.forbid.row(w)
		if len(row) == 0 {
			continue
		}
		round := d.mark()
		for k, t := range d.Running[w] {
			if d.flags[d.offset[w]+int32(k)].runs() {
				d.marks[t] = round
			}
		}
		for _, t := range row {
			if d.marks[t] != round { // neither held nor counted before
				d.marks[t] = round
				d.barred[t]++
			}
		}
	}
}

// targets decides how many copies of each task the workers that are not frozen run: as
// many as are wanted beside the frozen copies. A wanted copy that answers does not stop
// because of a frozen one (P4).
func (d *demand) targets() {
	d.target = d.Want
	if !d.has[Frozen] {
		return
	}
	d.targeted = append(d.targeted[:0], d.Want...)
	d.target = d.targeted
	for t, frozen := range d.frozen {
		if want := d.Want[t]; frozen > 0 && want > 0 {
			d.target[t] = max(want-frozen, min(want, d.answering(int32(t))))
		}
	}
}

// decide decides how many copies of each task, and how many in all, each open worker ends
// with.
func (d *demand) decide() {
	d.needOpen()
	d.levels()
}

// needOpen decides how many copies of each task the open workers run.
func (d *demand) needOpen() {
	d.need, d.isShort = d.Want, false
	if !d.has[Frozen] && !d.staying && len(d.Forbidden) == 0 && int(d.most) <= len(d.open) {
		return
	}
	d.needed = append(d.needed[:0], d.target...)
	d.need = d.needed
	if d.staying {
		for t, stays := range d.stays {
			d.need[t] = max(0, d.need[t]-stays) // copies of unexpected tasks count too
		}
	}
	places := int32(len(d.open))
	wanted, all := 0, int32(0)
	for t, need := range d.need {
		if len(d.Forbidden) > 0 {
			places = d.places(int32(t))
		}
		if need > places {
			need, d.isShort = places, true
			d.need[t] = need
		}
		wanted += int(need)
		s := &d.tasks[t]
		s.lack += need - d.Want[t]
		all |= s.lack
	}
	d.wanted, d.hasSurplus = wanted, all < 0
}

// pin marks the pinned copies, which count in the load and do not move, and counts them
// by task and by worker. Those on draining workers count as copies that stay. O(tasks +
// workers + pinned copies), and a pass over each list with a pinned task that it names
// twice.
func (d *demand) pin() {
	if d.Pinned == nil {
		return
	}
	d.pinned = sized(d.pinned, len(d.Want))
	d.fixed = sized(d.fixed, len(d.States))
	isSurplus := false
	for w, n := range d.Pinned {
		if n == 0 || d.States[w] == Frozen {
			continue
		}
		list := d.Running[w]
		first, flags, again := len(list)-int(n), d.flags[d.offset[w]:], uint32(0)
		pinAt := func(k int) {
			t := list[k]
			flags[k] = pinned
			d.pinned[t]++
			d.fixed[w]++
			isSurplus = isSurplus || d.pinned[t] > d.target[t]
		}
		for k := first; k < len(list); k++ {
			switch flags[k] {
			case kept:
				pinAt(k)
			case repeated:
				if again == 0 {
					again = d.mark()
				}
				d.marks[list[k]] = again
			}
		}
		if again == 0 {
			continue
		}
		for k, t := range list[:first] { // the first position of a repeated task
			if d.marks[t] == again && flags[k] == kept {
				pinAt(k)
			}
		}
	}
	if isSurplus {
		d.stopPinned()
	}
	for w, n := range d.fixed {
		if n == 0 || d.States[w] == Open {
			continue
		}
		for k, t := range d.Running[w] {
			if d.flags[d.offset[w]+int32(k)] != pinned {
				continue
			}
			d.pinned[t]--
			if d.States[w] == Draining {
				d.drained[t]--
				d.stays[t]++
				d.waiting++
			}
		}
	}
}

// stopPinned drops the pinned copies that exceed the target even if all others stop:
// first on draining workers, last on open ones, and in each state first on the fullest.
func (d *demand) stopPinned() {
	workers := d.scratch[:0]
	for w, n := range d.fixed {
		if n > 0 {
			workers = append(workers, int32(w))
		}
	}
	d.scratch = workers
	d.byLoad(workers)
	for _, s := range [...]State{Draining, Quarantined, Open} {
		for _, w := range workers {
			if d.States[w] != s {
				continue
			}
			for k, t := range d.Running[w] {
				at := d.offset[w] + int32(k)
				if d.flags[at] != pinned || d.pinned[t] <= d.target[t] {
					continue
				}
				d.lose(t, w, at)
				d.pinned[t]--
				d.fixed[w]--
				if s == Open {
					d.tasks[t].lack++
				} else {
					d.countOf(w)[t]--
				}
			}
		}
	}
}

// fill distributes n copies over workers as evenly as floors and ceilings allow: each
// worker gets level, or its bound nearest to level, and extra of those below their
// ceilings get one more. If the workers take less than n in all, level is n.
//
// It finds the level by binary search, in O(workers · log n).
func fill(floors, ceilings []int32, n int) (level, extra int32) {
	poured := func(level int) int {
		sum := 0
		for w, least := range floors {
			sum += min(max(level, int(least)), int(ceilings[w]))
		}
		return sum
	}
	low, high := 0, n+1 // poured(low) <= n; at high it is more, or no level is
	for high-low > 1 {
		if mid := (low + high) / 2; poured(mid) <= n {
			low = mid
		} else {
			high = mid
		}
	}
	if poured(low+1) > n {
		extra = int32(n - poured(low))
	}
	return int32(low), extra
}

// levels decides with how many copies each open worker ends, without the extra units. A
// worker with more pinned copies than the level keeps these.
func (d *demand) levels() {
	d.level, d.extra = d.levelOf(d.wanted)
	for _, w := range d.open {
		d.base[w] = max(d.level, d.pinnedOn(w))
		d.limit[w] = d.base[w]
	}
}
