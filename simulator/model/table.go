package model

// publish is the effect of a Sync on the records of its sender: one atomic write. It
// returns false if the Sync fails, or does nothing but read (B7).
func (c *config) publish(x *member, call syncCall) bool {
	kindOfSync := call.kind & kinds
	if call.kind&foreign != 0 && c.on(callNamesServer) {
		return false
	}
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
	switch {
	case int(s.server) >= m.losses:
	case m.restores() && s.copied == 0:
		m.copies()
	case !m.restores() || s.epoch != 0:
		m.tableLosses()
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
		x.flags |= x.flags & (recorded | removed) << toSaved
		if x.has(recorded) {
			x.savedOrder, x.savedReport = x.order, x.report
		}
	}
}

// restores reports whether a loss brings an earlier state back.
func (c *config) restores() bool { return c.store == atomic || c.has(fallsBack) }

// tableLosses adds that the store falls back to its saved copy, or that a piecewise one
// loses the table's record and none or all of the others. With partialLoss any of the
// others are lost, too. The table has another Server then.
func (m *moves) tableLosses() {
	there := uint8(0)
	for i := range m.ids {
		x := &m.from.members[i]
		if x.has(saved) || !m.restores() && (x.has(recorded) || x.order.version != 0) {
			there |= 1 << i
		}
	}
	for gone := range uint8(1 << m.ids) {
		if gone&^there != 0 || gone != 0 && !m.has(partialLoss) && (m.restores() || gone != there) {
			continue
		}
		n := m.add(tableLost, 0, int(gone), true)
		n.server++
		n.confirmed, n.epoch, n.copied, n.copiedEpoch = 0, n.copiedEpoch, 0, 0
		if m.store == piecewise && m.on(epochEnds) {
			n.epoch = 0
		}
		for i := range m.ids {
			m.lose(&n.members[i], gone>>i&1 != 0)
		}
	}
}

// lose is what a loss of the table means for one member.
func (c *config) lose(x *member, gone bool) {
	for _, call := range []*syncCall{&x.flight, &x.late} {
		if call.kind != 0 {
			call.kind |= foreign
		}
	}
	x.flags &^= confirms
	x.evicting = 0
	if c.restores() {
		x.flags = x.flags&^(recorded|removed|saved|savedGone) | x.flags>>toSaved&(recorded|removed)
		x.order, x.report = x.savedOrder, x.savedReport
		x.savedOrder, x.savedReport = order{}, report{}
	}
	if gone {
		x.flags &^= recorded
		x.order = order{}
	}
}
