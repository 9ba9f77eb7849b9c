package model

// leaderSteps adds what leader k can do, and what can happen to its batches.
func (m *moves) leaderSteps(k int) {
	s, d := m.from, &m.from.leaders[k]
	switch d.phase {
	case waiting:
		if !m.claimable(s, k) {
			break
		}
		n := m.add(claims, k, 0, m.led(s))
		n.epoch, n.leaders[k] = uint8(k+1), leader{phase: leads, server: n.server}
		if !m.on(claimFirst) {
			n := m.add(prepares, k, 0, true)
			n.leaders[k] = leader{phase: candidate, server: n.server, expects: n.epoch, begun: 1}
		}
	case candidate:
		if s.epoch == d.expects && s.server == d.server && s.confirmed == 1 {
			n := m.add(claims, k, 0, true)
			n.epoch, n.leaders[k].phase, n.leaders[k].expects = uint8(k+1), leads, 0
		}
		m.plans(k)
	case leads:
		early := m.has(reportsFirst | ordersFirst)
		switch {
		case early && d.read == 0:
		case m.adopts() && d.begun == 0:
			m.firstBatchOf(k)
		default:
			m.plans(k)
		}
		rules := s.epoch == uint8(k+1) && s.server == d.server && !m.below(s, k)
		m.add(stopsLeading, k, 0, rules).leaders[k].phase = done
		if early {
			m.readsEarly(k)
		}
	}
	if d.phase != candidate {
		for i := range m.ids {
			m.batchSteps(k, i)
		}
	}
}

// claimable reports whether the campaign of leader k would succeed.
func (c *config) claimable(s *state, k int) bool {
	if s.confirmed == 0 && c.on(confirmFirst) || uint8(k+1) <= s.epoch {
		return false
	}
	for j := range c.leaders {
		if !c.has(lowEpochs) && (j < k) == (s.leaders[j].phase == waiting) {
			return false // epochs are taken in turn
		}
	}
	return !c.on(epochAbove) || !c.below(s, k)
}

// below reports whether a record has an epoch above that of leader k.
func (c *config) below(s *state, k int) bool {
	for i := range c.ids {
		x := &s.members[i]
		if x.has(recorded) && max(epochOf(x.report.applied), epochOf(x.order.version)) > uint8(k+1) {
			return true
		}
	}
	return false
}

// led reports whether the table has a leader that leads.
func (c *config) led(s *state) bool {
	if s.epoch == 0 || s.confirmed == 0 {
		return false
	}
	d := &s.leaders[s.epoch-1]
	return d.phase == leads && d.server == s.server
}

// readsEarly adds that leader k reads one kind of records before the other.
func (m *moves) readsEarly(k int) {
	n := *m.from
	n.leaders[k].read = 1
	for i := range m.ids {
		x := &n.members[i]
		w := &x.intents[k]
		w.early, w.earlyWord = order{}, report{}
		switch {
		case !x.has(recorded):
		case m.has(reportsFirst):
			w.earlyWord = x.report
			w.earlyWord.heartbeat = 0
		default:
			w.early = x.order
		}
	}
	if n != *m.from {
		*m.add(readsRecords, k, 0, false) = n
	}
}

// known returns the records of a member as leader k has read them.
func (c *config) known(x *member, k int) (written order, said report) {
	written, said = x.order, x.report
	if c.has(ordersFirst) {
		written = x.intents[k].early
	}
	if c.has(reportsFirst) {
		said = x.intents[k].earlyWord
	}
	return written, said
}

// mayRun reports whether a member may run a task, for all that leader k knows (O3).
func (c *config) mayRun(x *member, k, task int) bool {
	b := uint8(1) << task
	if !x.has(recorded) {
		return false // it is gone
	}
	w := &x.intents[k]
	written, said := c.known(x, k)
	newest, since := written, written.version
	if w.sent != 0 && c.on(sentCounts) {
		newest, since = w.newest, w.since[task]
		ordered := written.tasks&b != 0
		if ordered && (said.refused&b == 0 || written.version > said.applied) {
			return true
		}
		if !ordered && epochOf(written.version) != uint8(k+1) && written.version > said.applied {
			return true // another leader's order to stop, unread
		}
	}
	if newest.tasks&b != 0 && said.refused&b != 0 && newest.version <= said.applied {
		return c.on(reportsCount) && said.also&b != 0
	}
	return newest.tasks&b != 0 && c.on(ordersCount) || said.applied < since && c.on(appliedCounts) ||
		said.also&b != 0 && c.on(reportsCount)
}

// runs reports whether a member runs a task or will start it, by its report alone.
func (c *config) runs(x *member, k, task int) bool {
	written, said := c.known(x, k)
	read := said.applied >= written.version && (written.tasks&^said.refused)>>task&1 != 0
	return x.has(recorded) && (read || said.also>>task&1 != 0)
}

// permits reports whether O3 lets leader k order a task for member i.
func (c *config) permits(s *state, k, i, task int) bool {
	x := &s.members[i]
	if c.runs(x, k, task) || !c.on(exceptReported) && c.mayRun(x, k, task) {
		return true
	}
	others := 0
	for j := range c.ids {
		if j != i && c.mayRun(&s.members[j], k, task) {
			others++
		}
	}
	return others < c.instances+c.surplus
}

// permitsAll reports whether O3 lets leader k order these tasks for member i.
func (c *config) permitsAll(s *state, k, i int, tasks uint8) bool {
	for t := range c.tasks {
		w := &s.members[i].intents[k]
		if (tasks&^w.newest.tasks)>>t&1 != 0 && !c.permits(s, k, i, t) {
			return false
		}
	}
	return true
}

// plans adds every order for one member that leader k may send.
func (m *moves) plans(k int) {
	s := m.from
	total := m.ordered(s, k)
	for i := range m.ids {
		x := &s.members[i]
		w := &x.intents[k]
		if !x.has(recorded) || w.pending.order.version != 0 && m.on(sameBatchAgain) || m.later(x, k) {
			continue
		}
		for tasks := range uint8(1 << m.tasks) {
			if w.sent != 0 && w.newest.tasks == tasks && (x.order.version == w.newest.version || w.pending.order.version != 0) ||
				w.sent == 0 && tasks == x.order.tasks && (x.order.version == 0 || !m.adopts() || !m.on(foundLater)) {
				continue // nothing to write
			}
			if !m.permitsAll(s, k, i, tasks) {
				continue
			}
			planned := m.planned(k, i, tasks, total)
			limit := m.batches
			if m.has(liveness) && planned {
				limit += extraBatches
			}
			if int(s.leaders[k].batches) >= limit || m.has(plannerOnly) && !planned {
				continue
			}
			n := m.add(sendsOrder, k, i, !planned)
			n.leaders[k].batches++
			m.write(n, k, i, tasks)
		}
	}
}

// extraBatches is how many more orders a leader may send to reach a good state.
const extraBatches = 3

// later reports whether x has an order of a later epoch, which leader k leaves alone.
func (c *config) later(x *member, k int) bool {
	return c.store == piecewise && c.on(laterEpoch) && epochOf(x.order.version) > uint8(k+1)
}

// current returns the tasks of a member's order as leader k knows it.
func (x *member) current(k int) uint8 {
	if w := &x.intents[k]; w.sent != 0 {
		return w.newest.tasks
	}
	return x.order.tasks
}

// ordered counts for each task the members that are ordered to run it.
func (c *config) ordered(s *state, k int) (total [maxTasks]int) {
	for t := range c.tasks {
		for j := range c.ids {
			if x := &s.members[j]; x.has(recorded) {
				total[t] += int(x.current(k) >> t & 1)
			}
		}
	}
	return total
}

// planned reports whether a planner that moves nothing without a reason sends this
// order. All other orders are faults for liveness.
func (m *moves) planned(k, i int, tasks uint8, total [maxTasks]int) bool {
	x := &m.from.members[i]
	if m.from.epoch != uint8(k+1) || m.from.leaders[k].phase != leads {
		return false
	}
	found := m.adopts() && m.on(foundLater) && x.intents[k].sent == 0
	for t := range m.tasks {
		had, has := x.current(k)>>t&1, tasks>>t&1
		excused := found || m.has(refusals) || x.report.refused>>t&1 != 0
		if has > had && total[t] >= m.instances || had > has && total[t] <= m.instances && !excused {
			return false
		}
	}
	return true
}

// write sends an order for member i in the name of leader k.
func (c *config) write(n *state, k, i int, tasks uint8) {
	x := &n.members[i]
	w := &x.intents[k]
	v := version(uint8(k+1), n.leaders[k].batches)
	for t := range c.tasks {
		b := uint8(1) << t
		switch {
		case tasks&b != 0:
			w.since[t] = 0
		case w.sent == 0 && x.order.tasks&b == 0:
			w.since[t] = x.order.version
		case w.sent == 0 || w.newest.tasks&b != 0:
			w.since[t] = v
		}
	}
	if w.pending.order.version != 0 { // only without B5
		w.late = w.pending
		w.late.replaces = never
	}
	w.sent, w.newest = 1, order{v, tasks}
	w.pending = batch{w.newest, n.server + 1, 0}
	if c.store == piecewise {
		w.pending = batch{w.newest, 0, x.order.version}
	}
}

// never is a version that no record has.
const never = 0xff

// firstBatchOf adds the first batch of leader k: it gives the orders of earlier epochs
// a version of its own (O6).
func (m *moves) firstBatchOf(k int) {
	s := m.from
	n := m.add(sendsFirstBatch, k, 0, s.epoch != uint8(k+1))
	n.leaders[k].begun = 1
	for i := range m.ids {
		x := &s.members[i]
		if !x.has(recorded) || x.order.version == 0 || m.later(x, k) {
			continue
		}
		keep := x.order.tasks
		for t := range m.tasks {
			if m.on(reconsider) && !m.permits(s, k, i, t) {
				keep &^= 1 << t
			}
		}
		n.leaders[k].batches = s.leaders[k].batches + 1
		m.write(n, k, i, keep)
	}
}

// batchSteps adds what can happen to the batches that leader k sent for member i.
func (m *moves) batchSteps(k, i int) {
	s, d, x := m.from, &m.from.leaders[k], &m.from.members[i]
	w := &x.intents[k]
	if x.phase == free {
		return
	}
	switch {
	case w.pending.order.version == 0:
	case m.effective(s, k, i, w.pending):
		if m.has(lateOrders) && w.late.order.version == 0 {
			y := &m.add(batchWritten, k, i, true).members[i]
			y.order, y.intents[k].late, y.intents[k].pending = w.pending.order, w.pending, batch{}
		}
		y := &m.add(batchWritten, k, i, false).members[i]
		y.order, y.intents[k].pending = w.pending.order, batch{}
	case d.phase == leads && m.store == piecewise: // a conflict
		m.add(batchFails, k, i, false).members[i].intents[k] = intent{early: w.early, earlyWord: w.earlyWord}
	case d.phase == leads && s.epoch == uint8(k+1) && m.led(s): // the member is gone
		m.add(batchFails, k, i, false).members[i].intents[k].pending = batch{}
	}
	if w.late.order.version != 0 && m.effective(s, k, i, w.late) {
		y := &m.add(lateBatch, k, i, true).members[i]
		y.order, y.intents[k].late = w.late.order, batch{}
	}
}

// effective reports whether a batch of leader k for member i takes effect now.
func (c *config) effective(s *state, k, i int, b batch) bool {
	x := &s.members[i]
	if c.store == piecewise {
		return x.has(recorded) && (!c.on(compareSwap) || x.order.version == b.replaces)
	}
	return x.has(recorded) && (!c.on(batchEpoch) || s.epoch == uint8(k+1)) &&
		(!c.on(batchServer) || b.server == s.server+1) && (!c.on(noLaterBatch) || b.order.version > x.order.version)
}
