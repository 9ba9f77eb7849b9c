package handover

// The end of what may be sent, in three steps, and what is dropped then.

// CloseBegin says that no change may begin any more.
func (m *Machine) CloseBegin() {
	m.noBegin = true
	m.wakeAll()
}

// CloseSecond says that no second half of a move may be sent any more: a task
// that was stopped for it is given back.
func (m *Machine) CloseSecond() {
	m.noBegin, m.noSecond = true, true
	m.wakeAll()
}

// CloseBack says that nothing may be sent any more.
func (m *Machine) CloseBack() {
	m.noBegin, m.noSecond, m.noBack = true, true, true
	m.wakeAll()
}

// wakeAll has every queue looked at once more.
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

// prune drops from a worker's queues what may not be sent any more: a worker
// whose call is stuck would keep it until the end of the term.
func (m *Machine) prune(w int32) {
	s := &m.workers[w]
	for range s.carry.len() {
		i := s.carry.pop()
		if !m.dropCarry(i) {
			s.carry.push(i)
		}
	}
	why := m.mayBegin(s)
	if why == NotSkipped {
		return
	}
	for _, p := range []*pending{&s.fresh, &s.last} {
		for !p.alone.empty() {
			m.drop(p.alone.pop(), why)
		}
		for !p.moves.empty() {
			m.drop(p.moves.pop(), why)
		}
	}
}
