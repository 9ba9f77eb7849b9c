package model

// kind is the kind of a step.
type kind uint8

const (
	joins kind = iota
	sendsReport
	sendsBare
	syncAnswered
	syncUnanswered
	syncLost
	syncGivenUp
	lateSync
	readsOrder
	readsTable
	actsOnReading
	startsTask
	stopsTask
	refusesTask
	ends
	isRemoved
	isObserved
	isEvicted
	prepares
	claims
	sendsOrder
	sendsFirstBatch
	batchWritten
	lateBatch
	batchFails
	stopsLeading
	readsRecords
	copied
	tableLost
	tableConfirmed
)

// step is one step of one actor.
type step struct {
	kind kind
	who  uint8 // the member or the leader
	arg  uint8 // a member, a task or a set of tasks or members
}

// move is a step and the state after it.
type move struct {
	step  step
	fault bool // liveness does not rely on it
	to    state
}

// moves lists what can happen next in the state from.
type moves struct {
	*config
	from *state
	list []move
}

// add adds a move and returns its state, a copy of from to be changed. It is valid
// until the next call of add.
func (m *moves) add(k kind, who, arg int, fault bool) *state {
	m.list = append(m.list, move{step{k, uint8(who), uint8(arg)}, fault, *m.from})
	return &m.list[len(m.list)-1].to
}

// steps returns all moves from s. The result is valid until the next call.
func (m *moves) steps(s *state) []move {
	m.from, m.list = s, m.list[:0]
	alive, slot := 0, -1
	for i := range m.ids {
		switch {
		case s.members[i].alive():
			alive++
		case s.members[i].phase == free && slot < 0:
			slot = i
		}
	}
	if alive < m.processes && slot >= 0 {
		m.sync(joins, slot, withReport)
	}
	for i := range m.ids {
		if s.members[i].phase != free {
			m.memberSteps(i)
		}
	}
	for k := range m.leaders {
		m.leaderSteps(k)
	}
	m.tableSteps()
	return m.list
}
