package handover

import "fmt"

// Machine decides which write of a term may be sent next. It is not for
// concurrent use.
type Machine struct {
	changes []change
	workers []worker
	batch   bool

	ready      queue // idle workers that may have a write to send
	creditable queue // receivers whose parked moves may begin
	later      queue // workers that have only changes with Last to send

	// unsent counts the changes that wait or are queued, and inFlight those whose write
	// was sent and not answered.
	unsent, inFlight          int
	noBegin, noSecond, noBack bool
}

// New returns a machine for changes between a number of workers. order holds each worker
// that is involved once, those served first at the front. With batch, a call carries all
// writes that its worker may be sent at that moment.
//
// The machine keeps no reference to changes and order.
func New(changes []Change, workers int, order []int32, batch bool) *Machine {
	m := &Machine{
		changes: make([]change, len(changes)),
		workers: make([]worker, workers),
		batch:   batch,
		unsent:  len(changes),
	}
	for i, c := range changes {
		m.changes[i] = change{Change: c}
	}
	// Stops come before starts: a full worker may have to stop a task before it can
	// start another.
	for _, stops := range []bool{true, false} {
		for i, c := range changes {
			switch {
			case (c.To == None) != stops:
			case c.Skip != NotSkipped:
				m.drop(int32(i), c.Skip)
			default:
				m.enqueue(int32(i))
			}
		}
	}
	for _, w := range order {
		m.wake(w)
	}
	return m
}

// enqueue queues a change that has not begun at the worker of its first write.
func (m *Machine) enqueue(i int32) {
	c := &m.changes[i]
	if q := m.workers[m.target(i)].queueOf(c); c.isMove() {
		q.moves.push(i)
	} else {
		q.single.push(i)
	}
}

// target returns the worker of the next write of change i.
func (m *Machine) target(i int32) int32 {
	c := &m.changes[i]
	switch {
	case c.From == None:
		return c.To
	case c.To == None, c.phase == back:
		return c.From
	case c.StartFirst == (c.phase < second):
		return c.To
	}
	return c.From
}

func (m *Machine) wake(w int32) {
	s := &m.workers[w]
	if !s.busy && !s.listed {
		s.listed = true
		m.ready.push(w)
	}
}

// Next returns a call that may be made now. It reports false if no call may be made until
// an answer arrives. The caller owns the call's slice.
func (m *Machine) Next() (Call, bool) {
	for {
		// Parked moves are offered one by one, and only after every idle worker has
		// taken its writes. Then an offered move begins immediately, so that the
		// receiver's credit is accurate.
		for m.ready.empty() {
			if m.creditable.empty() {
				call, ok := m.nextLast()
				if ok || m.ready.empty() && m.creditable.empty() {
					return call, ok
				}
				continue
			}
			// With batches all that have credit are offered first, so that a source gets one call.
			for n := m.creditable.len(); n > 0; n-- {
				w := m.creditable.pop()
				m.workers[w].creditable = false
				if m.offer(w); !m.batch {
					break
				}
			}
		}
		w := m.ready.pop()
		s := &m.workers[w]
		s.listed = false
		if s.busy {
			continue
		}
		if writes := m.take(w); len(writes) > 0 {
			return m.send(w, writes), true
		}
		if !s.last.empty() && !s.waits {
			s.waits = true
			m.later.push(w)
		}
	}
}

// nextLast returns a call with changes that come last. They are sent when no other write
// can be sent now. Waiting until all others have begun could take too long, because a
// worker that hangs delays its writes until its timeout.
func (m *Machine) nextLast() (Call, bool) {
	for !m.later.empty() {
		w := m.later.pop()
		s := &m.workers[w]
		s.waits = false
		if s.busy || s.underway > 0 {
			continue // it returns here when it is idle and no stopped task waits for it
		}
		if writes := m.begin(w, &s.last, nil); len(writes) > 0 {
			return m.send(w, writes), true
		}
	}
	return Call{}, false
}

func (m *Machine) send(w int32, writes []Write) Call {
	m.workers[w].busy = true
	m.unsent -= len(writes)
	m.inFlight += len(writes)
	return Call{Worker: w, Writes: writes}
}

// take removes from w's queues the writes that may be sent now: one, or all with batches.
func (m *Machine) take(w int32) []Write {
	var writes []Write
	s := &m.workers[w]
	full := func() bool { return !m.batch && len(writes) > 0 }

	for !full() && !s.continuing.empty() {
		i := s.continuing.pop()
		if m.dropContinuing(i) {
			continue
		}
		c := &m.changes[i]
		if c.phase == second && w == c.To && m.waits(i) {
			continue
		}
		writes = append(writes, Write{Change: i, Start: w == c.To || c.phase == back, Back: c.phase == back})
	}
	return m.begin(w, &s.fresh, writes)
}

// begin adds to writes the first writes of changes that wait for worker w.
func (m *Machine) begin(w int32, p *pending, writes []Write) []Write {
	s := &m.workers[w]
	full := func() bool { return !m.batch && len(writes) > 0 }
	for !full() && !p.single.empty() {
		i := p.single.pop()
		if why := m.mayBegin(s); why != NotSkipped {
			m.drop(i, why)
			continue
		}
		if w == m.changes[i].To && m.waits(i) {
			m.markCreditable(w) // the moves to here do not wait for it any more
			continue
		}
		m.changes[i].phase = first
		writes = append(writes, Write{Change: i, Start: w == m.changes[i].To})
	}
	for !full() && !p.moves.empty() {
		i := p.moves.pop()
		c := &m.changes[i]
		receiver := &m.workers[c.To]
		if why := m.mayBeginMove(c); why != NotSkipped {
			m.drop(i, why)
			continue
		}
		if m.waits(i) {
			continue
		}
		if !receiver.hasCredit() {
			receiver.parked.push(i)
			continue
		}
		receiver.underway++
		c.phase = first
		writes = append(writes, Write{Change: i, Start: w == c.To})
	}
	return writes
}

func (m *Machine) mayBegin(s *worker) Skip {
	switch {
	case m.noBack:
		return TermEnded
	case m.noBegin:
		return WindowClosed
	case s.timedOut:
		return WorkerTimedOut
	}
	return NotSkipped
}

func (m *Machine) mayBeginMove(c *change) Skip {
	if why := m.mayBegin(&m.workers[c.From]); why != NotSkipped {
		return why
	}
	if m.workers[c.To].blocked {
		return ReceiverFailed
	}
	return m.mayBegin(&m.workers[c.To])
}

// dropContinuing ends a begun move whose next write may no longer be sent, and reports
// whether it did.
func (m *Machine) dropContinuing(i int32) bool {
	c := &m.changes[i]
	switch {
	case c.phase == back && m.noBack:
		m.unsent--
		m.finish(i, OutUnstarted)
		return true
	case c.phase == back:
		return false
	case m.noBack:
		c.skip = TermEnded
	case m.noSecond:
		c.skip = WindowClosed
	case !c.StartFirst && m.workers[c.To].timedOut:
		c.skip = WorkerTimedOut
	default:
		return false
	}
	m.unsent--
	if c.StartFirst {
		m.finish(i, OutFailed)
		return true
	}
	m.freePlace(c.To)
	m.giveBack(i)
	return true
}

func (m *Machine) drop(i int32, why Skip) {
	m.unsent--
	m.changes[i].skip = why
	m.finish(i, OutSkipped)
}

func (m *Machine) finish(i int32, o Outcome) {
	m.changes[i].phase = over
	m.changes[i].outcome = o
	m.release(i)
}

// follow queues the next write of a begun move.
func (m *Machine) follow(i int32, p phase) {
	m.changes[i].phase = p
	m.unsent++
	w := m.target(i)
	m.workers[w].continuing.push(i)
	m.wake(w)
}

func (m *Machine) giveBack(i int32) {
	c := &m.changes[i]
	if c.used { // it takes its room back, or that of others
		for j := range m.changes {
			switch d := &m.changes[j]; {
			case d.phase >= second || d.To == None || d == c:
			case d.After == 0 && d.To == c.From:
				d.After = i + 1
			case d.After > 0:
				if giver := &m.changes[d.After-1]; giver.From == c.From || giver.Task == c.Task {
					d.After = i + 1
				}
			}
		}
	}
	c.gone = false
	if m.noBack {
		m.finish(i, OutUnstarted)
	} else {
		m.follow(i, back)
	}
}

// freePlace frees the place that a move took at its receiver.
func (m *Machine) freePlace(w int32) {
	m.workers[w].underway--
	m.markCreditable(w)
	m.wake(w)
}

func (m *Machine) failedMove(w int32) {
	s := &m.workers[w]
	if s.credit == 0 {
		s.blocked = true
	}
	s.credit, s.first = 0, 0
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

// FirstMoves lets n moves to each worker be under way before the worker has acknowledged
// a start (T8). The default is 1. It must be called before Next.
func (m *Machine) FirstMoves(n int) {
	for i := range m.workers {
		m.workers[i].first = n
	}
}

// offer lets one of the moves parked at receiver w begin, with batches as many as w has
// credit for, if the worker of the move's first write is idle. On the way, moves of busy
// workers return to their queues without reserving credit, so that a slow source delays only
// its own moves, and moves that may no longer begin are dropped.
func (m *Machine) offer(w int32) {
	s := &m.workers[w]
	for room := s.allowed() - s.underway; !s.parked.empty(); {
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
		m.workers[at].queueOf(&m.changes[i]).moves.push(i)
		if !m.workers[at].busy {
			m.wake(at)
			if room--; !m.batch || room <= 0 {
				m.markCreditable(w)
				return
			}
		}
	}
}

// Done records the results of a call's writes, in their order. timedOut: the call had no
// answer by its deadline. stuck: the call has not returned, and the worker is busy until
// [Machine.Returned].
func (m *Machine) Done(call Call, results []Result, timedOut, stuck bool) {
	s := &m.workers[call.Worker]
	s.busy = stuck
	s.credit, s.early = s.credit+s.early, 0
	m.inFlight -= len(call.Writes)
	if timedOut {
		s.timedOut = true
		m.prune(call.Worker)
	}
	for k, write := range call.Writes {
		m.answer(write, results[k], false)
	}
	m.markCreditable(call.Worker)
	m.wake(call.Worker)
}

// Answered records the answer to one write of a call whose other writes have none yet.
// The worker stays busy. [Machine.Done] then takes the call without that write.
//
// A start that it acknowledges adds to the worker's credit only when the call has
// returned: until then no second half of a move could be sent there.
func (m *Machine) Answered(write Write, a Result) {
	m.inFlight--
	m.answer(write, a, true)
}

// Returned records that the stuck call of a worker has returned.
func (m *Machine) Returned(w int32) {
	m.workers[w].busy = false
	m.wake(w)
}

// answer records the answer to a write. early: its call has not returned.
func (m *Machine) answer(write Write, a Result, early bool) {
	i := write.Change
	c := &m.changes[i]
	if !write.Start && a == Done {
		c.gone = true
		m.release(i)
	}
	if write.Start && a == Done {
		w := c.To
		if write.Back {
			w = c.From
		}
		if early {
			m.workers[w].early++
		} else {
			m.workers[w].credit++
			m.markCreditable(w)
		}
	}
	switch {
	case write.Back && a == Done:
		m.finish(i, OutReturned)
	case write.Back:
		m.finish(i, OutUnstarted)
	case !c.isMove():
		m.finish(i, outcomeOf(a))
	case c.phase == first && a == Done:
		if c.StartFirst {
			m.freePlace(c.To)
		}
		m.follow(i, second)
	case write.Start:
		m.freePlace(c.To)
		if a != Done {
			m.failedMove(c.To)
		}
		// A task may be given back only if its new worker certainly does not run it;
		// otherwise it could run twice.
		if a == Refused && !c.StartFirst {
			m.giveBack(i)
			return
		}
		m.finish(i, outcomeOf(a))
	default: // a stop
		if c.phase == first {
			m.freePlace(c.To)
		}
		m.finish(i, outcomeOf(a))
	}
}

func outcomeOf(a Result) Outcome {
	switch a {
	case Done:
		return OutDone
	case Refused:
		return OutFailed
	case Stopping:
		return OutStopping
	case Unknown:
		return OutUnknown
	}
	panic(fmt.Sprintf("handover: answer %d", a)) //nolint:forbidigo // an invariant is broken
}

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
	for i := range m.changes {
		m.release(int32(i))
	}
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

// Over reports whether no write is in flight and none will be sent.
func (m *Machine) Over() bool { return m.Left() == 0 }

// Left returns how many changes have not ended.
func (m *Machine) Left() int { return m.unsent + m.inFlight }

// Outcome returns the outcome of change i, and why it or its second half was not begun.
func (m *Machine) Outcome(i int) (Outcome, Skip) {
	c := &m.changes[i]
	return c.outcome, c.skip
}
