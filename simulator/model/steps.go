package model

// kind is the kind of a step.
type kind uint8

// texts has a sentence for each kind. Words in braces are filled in.
var texts []string

func newKind(text string) kind {
	texts = append(texts, text)
	return kind(len(texts) - 1)
}

// The kinds of steps: of members, of leaders, of the table.
var (
	joins          = newKind("{m} joins and sends its first Sync{answered}")
	sendsReport    = newKind("{m} sends a Sync: {report}{answered}")
	sendsBare      = newKind("{m} sends a Sync without a report{answered}")
	syncAnswered   = newKind("{m} gets the answer of its Sync")
	syncUnanswered = newKind("{m} gets no answer to its Sync, which arrived")
	syncLost       = newKind("{m} gets no answer to its Sync, which was lost")
	syncGivenUp    = newKind("{m} gives up its Sync, which may arrive late")
	lateSync       = newKind("a late Sync of {m} arrives")
	readsOrder     = newKind("{m} reads its order {order}")
	readsOrderLate = newKind("{m} reads its order {order}, and gets the answer later")
	readsTable     = newKind("{m} reads that the epoch is {epoch}")
	actsOnReading  = newKind("{m} gets the answer of a reading: order {reading}")
	startsTask     = newKind("{m} starts {task}")
	stopsTask      = newKind("{m} has stopped {task}")
	refusesTask    = newKind("{m} refuses {task}")
	ends           = newKind("{m} ends: it has stopped everything")
	isRemoved      = newKind("the record of {m} is removed")
	isObserved     = newKind("{m} is dead by observation; alive: {alive}")
	isEvicted      = newKind("the eviction of {m} arrives; record there: {recorded}")

	prepares        = newKind("{l} reads the table, and has not claimed it")
	claims          = newKind("{l} claims the table")
	sendsOrder      = newKind("{l} sends order {sent} for {m}")
	sendsFirstBatch = newKind("{l} sends its first batch{batch}")
	batchWritten    = newKind("order {pending} for {m} takes effect")
	lateBatch       = newKind("a late copy of order {late} for {m} takes effect")
	batchFails      = newKind("order {pending} for {m} fails")
	stopsLeading    = newKind("{l} stops leading")
	readsRecords    = newKind("{l} reads one kind of records")

	copied         = newKind("(the table may fall back to what it is now)")
	tableLost      = newKind("the table loses data{gone}: Server {server}")
	tableConfirmed = newKind("Confirm takes effect")
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
