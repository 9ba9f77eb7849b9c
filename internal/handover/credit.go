package handover

// What receivers may take: their credit, and the moves that wait for it.

// undecided gives back the place that a move took at its receiver.
func (m *Machine) undecided(w int32) {
	m.workers[w].underway--
	m.hunger(w)
	m.wake(w)
}

func (m *Machine) failedMove(w int32) {
	s := &m.workers[w]
	if s.credit == 0 {
		s.barred = true
	}
	s.credit = 0
	m.hunger(w)
}

// hunger has the moves parked at a receiver looked at again.
func (m *Machine) hunger(w int32) {
	s := &m.workers[w]
	if !s.hungry && !s.parked.empty() {
		s.hungry = true
		m.hungry.push(w)
	}
}

// offer has one of the moves parked at receiver w begin, if w has credit for it
// and the worker that its first write goes to is idle. Those of busy workers go
// back to their queues on the way and reserve nothing: a slow source holds up
// only its own moves. What may begin no more is dropped.
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
			m.hunger(w)
			return
		}
	}
}
