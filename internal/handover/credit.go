package handover

// The credit of receivers, and the moves that wait for it.

// undecided frees the place that a move took at its receiver.
func (m *Machine) undecided(w int32) {
	m.workers[w].underway--
	m.markCreditable(w)
	m.wake(w)
}

func (m *Machine) failedMove(w int32) {
	s := &m.workers[w]
	if s.credit == 0 {
		s.blocked = true
	}
	s.credit = 0
	m.markCreditable(w)
}

// markCreditable queues a receiver whose parked moves may begin.
func (m *Machine) markCreditable(w int32) {
	s := &m.workers[w]
	if !s.creditable && !s.parked.empty() {
		s.creditable = true
		m.creditable.push(w)
	}
}

// offer lets one of the moves parked at receiver w begin, if w has credit and the worker
// of the move's first write is idle. On the way, moves of busy workers return to their
// queues without reserving credit, so that a slow source delays only its own moves, and
// moves that may no longer begin are dropped.
func (m *Machine) offer(w int32) {
	s := &m.workers[w]
	for !s.parked.empty() {
		i := s.parked.front()
		if why := m.mayBeginMove(&m.changes[i]); why != NotSkipped {
			s.parked.pop()
			m.drop(i, why)
			continue
		}
		if !s.hasCredit() {
			return
		}
		s.parked.pop()
		at := m.target(i)
		m.workers[at].of(&m.changes[i]).moves.push(i)
		if !m.workers[at].busy {
			m.wake(at)
			m.markCreditable(w)
			return
		}
	}
}
