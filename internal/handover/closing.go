package handover

// The three deadlines of a term, and the changes that they drop.

// CloseBegin lets no further change begin.
func (m *Machine) CloseBegin() {
	m.noBegin = true
	m.wakeAll()
}

// CloseSecond lets no further change begin and no second half of a move be sent. The
// task of a stopped move is given back.
func (m *Machine) CloseSecond() {
	m.noBegin, m.noSecond = true, true
	m.wakeAll()
}

// CloseBack lets no further write be sent.
func (m *Machine) CloseBack() {
	m.noBegin, m.noSecond, m.noBack = true, true, true
	m.wakeAll()
}

// wakeAll drops the writes that may no longer be sent, and wakes all workers.
func (m *Machine) wakeAll() {
	for w := range m.workers {
		for s := &m.workers[w]; !s.parked.empty(); {
			i := s.parked.pop()
			m.drop(i, m.mayBeginMove(&m.changes[i]))
		}
		m.prune(int32(w))
		m.wake(int32(w))
	}
}

// prune drops from a worker's queues the changes that may no longer be sent. Otherwise a
// worker with a stuck call would keep them until the end of the term.
func (m *Machine) prune(w int32) {
	s := &m.workers[w]
	for range s.continuing.len() {
		i := s.continuing.pop()
		if !m.dropContinuing(i) {
			s.continuing.push(i)
		}
	}
	why := m.mayBegin(s)
	if why == NotSkipped {
		return
	}
	for _, p := range []*pending{&s.fresh, &s.last} {
		for !p.single.empty() {
			m.drop(p.single.pop(), why)
		}
		for !p.moves.empty() {
			m.drop(p.moves.pop(), why)
		}
	}
}
