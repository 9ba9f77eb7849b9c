package handover

import "slices"

// Room says where starts need room. A place is what holds a limited number of copies, such as
// a worker, or a zone for the copies of one task.
//
// A start takes its room when it is sent, and the stop of a move that stops first takes it for
// the start. Only an acknowledged stop makes room. A start that was not certainly refused keeps
// its room. A give-back needs none.
type Room struct {
	// Free is, by place, how many more copies fit. It is negative if there are too many.
	Free []int32
	// Takes and Gives hold, by change, up to two places in which its start takes room and its
	// stop makes room; the others are None.
	Takes, Gives [][2]int32
}

// rooms is the room of a machine, and the changes that wait for it.
type rooms struct {
	Room

	taken []bool // by change: its start has room
	// loose: the move may stop before its start has room, because another change that it
	// waits for needs the room of its stop.
	loose   []bool
	waiters [][]int32 // by place: changes, those that have begun first
}

// Limit makes starts wait for room. It keeps r. Call it before Next.
func (m *Machine) Limit(r Room) {
	m.room = &rooms{
		Room: r, taken: make([]bool, len(m.changes)), loose: make([]bool, len(m.changes)),
		waiters: make([][]int32, len(r.Free)),
	}
}

// takeRoom takes the room for the start of change i, and reports whether the change may
// continue. If there is no room, the change waits for it. begins: its first write is next.
func (m *Machine) takeRoom(i int32, begins bool) bool {
	r := m.room
	switch {
	case r == nil, begins && r.loose[i]:
		return true
	case r.taken[i]:
		if !slices.ContainsFunc(r.Takes[i][:], func(p int32) bool { return p != None && r.Free[p] < 0 }) {
			return true
		}
		m.releaseRoom(i) // a give-back has filled the place since
	}
	for _, p := range r.Takes[i] {
		if p == None || r.Free[p] > 0 {
			continue
		}
		if begins {
			r.waiters[p] = append(r.waiters[p], i)
		} else {
			r.waiters[p] = slices.Insert(r.waiters[p], 0, i)
		}
		m.passOn(i)
		return false
	}
	for _, p := range r.Takes[i] {
		if p != None {
			r.Free[p]--
		}
	}
	r.taken[i] = true
	return true
}

// releaseRoom releases what the start of change i has taken, because it will not happen.
func (m *Machine) releaseRoom(i int32) {
	r := m.room
	if r == nil {
		return
	}
	if w := m.changes[i].To; w != None {
		m.markCreditable(w) // moves may have waited for this start
	}
	if r.taken[i] {
		r.taken[i] = false
		m.makeRoom(r.Takes[i])
		return
	}
	m.passOn(i)
}

// makeRoom makes room for one copy in each place.
func (m *Machine) makeRoom(places [2]int32) {
	for _, p := range places {
		if p != None {
			m.room.Free[p]++
			m.wakeWaiter(p)
		}
	}
}

// passOn lets other changes have the room that change i does not take: it may have been woken
// for it.
func (m *Machine) passOn(i int32) {
	for _, p := range m.room.Takes[i] {
		if p != None {
			m.wakeWaiter(p)
		}
	}
}

// wakeWaiter queues the first change that waits for a place, if there is room.
func (m *Machine) wakeWaiter(p int32) {
	r := m.room
	if r.Free[p] <= 0 || len(r.waiters[p]) == 0 {
		return
	}
	i := r.waiters[p][0]
	r.waiters[p] = r.waiters[p][1:]
	m.requeue(i)
}

// requeue queues a change that waited for room at the worker of its next write.
func (m *Machine) requeue(i int32) {
	w := m.target(i)
	if m.changes[i].phase == waiting {
		m.enqueue(i)
	} else {
		m.workers[w].continuing.push(i)
	}
	m.wake(w)
}

// recordRoom records what an answer to a write means for the room. It comes before the answer
// changes the phase.
func (m *Machine) recordRoom(write Write, a Result) {
	r, i := m.room, write.Change
	switch {
	case r == nil:
	case !write.Start && a == Done, write.Back && a == Refused:
		m.makeRoom(r.Gives[i])
	case write.Start && !write.Back && a == Refused, !write.Start && m.changes[i].phase == first:
		m.releaseRoom(i)
	}
}

// takeBack takes the room of a give-back, even without any.
func (m *Machine) takeBack(i int32) {
	if m.room == nil {
		return
	}
	for _, p := range m.room.Gives[i] {
		if p != None {
			m.room.Free[p]--
		}
	}
}

// pruneRoom drops the changes that wait for room and whose next write may no longer be sent.
func (m *Machine) pruneRoom() {
	if m.room == nil {
		return
	}
	for p := range m.room.waiters {
		for _, i := range m.takeWaiters(int32(p)) {
			switch why := m.mayBegin(&m.workers[m.target(i)]); {
			case m.changes[i].phase != waiting && m.dropContinuing(i):
			case m.changes[i].phase == waiting && why != NotSkipped:
				m.drop(i, why)
			default:
				m.room.waiters[p] = append(m.room.waiters[p], i)
			}
		}
	}
}

// takeWaiters removes all changes that wait for a place, and returns them.
func (m *Machine) takeWaiters(p int32) []int32 {
	all := m.room.waiters[p]
	m.room.waiters[p] = nil
	return all
}

// endWaiting is called when no write is in flight and none can be sent. If moves that stop first
// wait for each other's room in a circle, one of them may begin. Otherwise no room can come any
// more: stopped tasks are given back, and the other changes that wait are dropped. It reports
// whether it did anything.
func (m *Machine) endWaiting() bool {
	if m.room == nil || m.inFlight > 0 {
		return false
	}
	for p := range m.room.waiters {
		if m.room.Free[p] > 0 && len(m.room.waiters[p]) > 0 { // the change woken for it waits for credit
			m.wakeWaiter(int32(p))
			return true
		}
	}
	if i, p := m.circle(); i != None {
		// A change that comes last does not begin where a stopped task waits for its start. Here
		// that task waits for it.
		for _, all := range m.room.waiters {
			for _, j := range all {
				m.changes[j].Last = false
			}
		}
		m.room.loose[i] = true
		m.room.waiters[p] = slices.DeleteFunc(m.room.waiters[p], func(j int32) bool { return j == i })
		m.requeue(i)
		return true
	}
	ended := false
	for p := range m.room.waiters {
		for _, i := range m.takeWaiters(int32(p)) {
			ended = true
			if m.changes[i].phase == waiting {
				m.drop(i, NoRoom)
				continue
			}
			m.changes[i].skip = NoRoom
			m.unsent--
			m.freePlace(m.changes[i].To)
			m.failedMove(m.changes[i].To) // it has not shown that it takes a task (T8)
			m.giveBack(i)
		}
	}
	return ended
}

// circle returns a move that stops first and waits for room, with its place, if it and others
// wait for each other's. It prefers one that comes last: if its stop fails again, no other task
// was stopped for it. Moves that start first may be part of the circle. circle looks at one
// move that makes room in each place.
func (m *Machine) circle() (move, place int32) {
	r := m.room
	giver := slices.Repeat([]int32{None}, len(r.Free)) // by place: a waiting move that makes room there
	at := make([]int32, len(r.Free))                   // where that move waits
	for p, all := range r.waiters {
		for _, i := range all {
			c := &m.changes[i]
			if !c.isMove() || c.phase != waiting {
				continue
			}
			for _, q := range r.Gives[i] {
				if q != None && (giver[q] == None || m.changes[giver[q]].StartFirst && !c.StartFirst) {
					giver[q], at[q] = i, int32(p)
				}
			}
		}
	}
	seen := make([]int, len(giver)) // the walk that saw a place
	for start := range giver {
		p, walk := int32(start), start+1
		for giver[p] != None && seen[p] == 0 {
			seen[p] = walk
			p = at[p]
		}
		if giver[p] == None || seen[p] != walk {
			continue
		}
		move = None
		for q, more := p, true; more; q, more = at[q], at[q] != p {
			if c := &m.changes[giver[q]]; !c.StartFirst && (move == None || c.Last) {
				move, place = giver[q], at[q]
			}
		}
		if move != None {
			return move, place
		}
	}
	return None, None
}
