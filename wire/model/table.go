package model

// publish is the effect of a Sync on the records of its sender: one atomic write. It
// returns false if the Sync fails.
func (c *config) publish(x *member, call syncCall) bool {
	kindOfSync := call.kind & kinds
	if x.has(removed) {
		return false
	}
	if !x.has(recorded) {
		if kindOfSync == bare || !c.on(unknownAnew) && x.phase == serving && !x.has(confirms) {
			return false
		}
		x.flags |= recorded
		x.report = call.report
		return true
	}
	if call.report.heartbeat > x.report.heartbeat || !c.on(heartbeatRises) || !c.has(heartbeats|lateSyncs) {
		if kindOfSync == withReport {
			x.report = call.report
		}
		x.report.heartbeat = call.report.heartbeat
	}
	return true
}

// removals adds the ways in which the record of member i leaves the table.
func (m *moves) removals(i int) {
	s, x := m.from, &m.from.members[i]
	if !x.has(recorded) {
		return
	}
	if x.phase == ended { // it left or, without heartbeats, it was evicted
		m.remove(&m.add(isRemoved, i, 0, !m.led(s)).members[i])
	}
	if !m.has(heartbeats) {
		return
	}
	if x.evicting == 0 && (s.confirmed == 1 || !m.on(confirmFirst)) {
		y := &m.add(isObserved, i, 0, true).members[i]
		y.evicting = x.report.heartbeat
		if x.alive() && x.acked <= x.report.heartbeat && m.on(selfFencing) {
			if m.on(freshID) || x.phase == joining {
				m.end(y)
			} else {
				y.phase, y.running = lapsed, 0
			}
		}
	}
	if x.evicting != 0 {
		y := &m.add(isEvicted, i, 0, false).members[i]
		if x.report.heartbeat == x.evicting || !m.on(compareEvicted) {
			m.remove(y)
		}
		y.evicting = 0
	}
}

// remove removes the record, the report and the order of a member.
func (c *config) remove(x *member) {
	x.flags &^= recorded
	if c.on(rememberEvicted) && c.has(heartbeats) {
		x.flags |= removed
	}
	x.order, x.evicting = order{}, 0
}

// tableSteps adds Confirm, and the losses of the table.
func (m *moves) tableSteps() {
	s := m.from
	if s.confirmed == 0 && m.confirmable(s) {
		n := m.add(tableConfirmed, 0, 0, false)
		n.confirmed = 1
		for k := range m.leaders { // a lease has passed since the loss (A9)
			d := &n.leaders[k]
			if m.on(leaderStops) && (d.phase == leads || d.phase == candidate) && d.server != n.server {
				d.phase = done
			}
		}
	}
	if int(s.server) >= m.losses {
		return
	}
	if m.store == piecewise {
		m.deletions()
		return
	}
	if s.copied == 0 {
		m.copies()
	} else if s.epoch != 0 {
		m.setbacks()
	}
}

func (m *moves) confirmable(s *state) bool {
	for i := range m.ids {
		x := &s.members[i]
		if (x.phase == serving || x.phase == lapsed) && !x.has(confirms) && m.on(confirmReports) {
			return false
		}
	}
	return true
}

// copies adds that the table as it is now is what a later loss brings back.
func (m *moves) copies() {
	for i := range m.ids {
		if m.has(liveness) && m.from.members[i].phase == ended {
			return // the saved copy would keep the ID, and IDs are bounded
		}
	}
	n := m.add(copied, 0, 0, true)
	n.copied, n.copiedEpoch = 1, n.epoch
	for i := range m.ids {
		x := &n.members[i]
		if x.has(removed) {
			x.flags |= savedGone
		}
		if x.has(recorded) {
			x.flags |= saved
			x.savedOrder, x.savedReport = x.order, x.report
		}
	}
}

// setbacks adds that the table falls back to its saved copy.
func (m *moves) setbacks() {
	kept := uint8(0)
	for i := range m.ids {
		if m.from.members[i].has(saved) {
			kept |= 1 << i
		}
	}
	for gone := range uint8(1 << m.ids) {
		if gone != 0 && !m.has(partialLoss) || gone&^kept != 0 {
			continue
		}
		n := m.loss(gone)
		n.epoch, n.copied, n.copiedEpoch = n.copiedEpoch, 0, 0
		for i := range m.ids {
			x := &n.members[i]
			flags := x.flags
			x.flags &^= recorded | removed | saved | savedGone
			x.order = order{}
			if flags&savedGone != 0 {
				x.flags |= removed
			}
			if flags&saved != 0 && gone>>i&1 == 0 {
				x.flags |= recorded
				x.order, x.report = x.savedOrder, x.savedReport
			}
			x.savedOrder, x.savedReport = order{}, report{}
		}
	}
}

// deletions adds that a piecewise store loses its table's record, and none or all of
// the others, or any of them with partialLoss.
func (m *moves) deletions() {
	there := uint8(0)
	for i := range m.ids {
		if x := &m.from.members[i]; x.has(recorded) || x.order.version != 0 {
			there |= 1 << i
		}
	}
	for gone := range uint8(1 << m.ids) {
		if gone != 0 && gone != there && !m.has(partialLoss) || gone&^there != 0 {
			continue
		}
		n := m.loss(gone)
		n.epoch = 0
		for i := range m.ids {
			if gone>>i&1 != 0 {
				n.members[i].flags &^= recorded
				n.members[i].order = order{}
			}
		}
	}
}

// loss adds a loss of the table, and gives it another Server.
func (m *moves) loss(gone uint8) *state {
	n := m.add(tableLost, 0, int(gone), true)
	n.server++
	n.confirmed = 0
	for i := range m.ids {
		x := &n.members[i]
		x.flags &^= confirms
		x.evicting = 0
		if x.flight.kind != 0 {
			x.flight.kind |= earlier | foreign
		}
	}
	return n
}
