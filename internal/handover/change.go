package handover

// A change on its way, and the change that has to make room for it.

// phase is the progress of a change.
type phase uint8

const (
	waiting phase = iota // nothing sent
	first                // the first write is in flight
	second               // the first was acknowledged; the second is queued or in flight
	back                 // the give-back is queued or in flight
	over
)

type change struct {
	Change
	phase   phase
	outcome Outcome
	skip    Skip
	gone    bool    // its stop was acknowledged, and it is not given back
	used    bool    // another change has taken its room
	waiters []int32 // the changes whose start waits for that
}

func (c *change) isMove() bool { return c.From != None && c.To != None }

// waits makes the start of change i wait if another change has to make room for it first, and
// reports whether it does. If that room will not come, the change is dropped.
func (m *Machine) waits(i int32) bool {
	c := &m.changes[i]
	if c.After == 0 || c.phase == waiting && c.Loose {
		return false
	}
	giver := &m.changes[c.After-1]
	switch {
	case giver.gone:
		giver.used = true
		return false
	case giver.phase != over:
		giver.waiters = append(giver.waiters, i)
	case c.phase == waiting:
		m.drop(i, NoRoom)
	default:
		c.skip = NoRoom
		m.unsent--
		m.freePlace(c.To)
		m.failedMove(c.To) // it has not shown that it takes a task (T8)
		m.giveBack(i)
	}
	return true
}

// release queues the changes that wait for change i again.
func (m *Machine) release(i int32) {
	waiters := m.changes[i].waiters
	m.changes[i].waiters = nil
	for _, j := range waiters {
		w := m.target(j)
		if m.changes[j].phase == waiting {
			m.enqueue(j)
		} else {
			m.workers[w].continuing.push(j)
		}
		m.wake(w)
	}
}
