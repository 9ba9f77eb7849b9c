package model

// memberSteps adds what member i can do, and what can happen to it.
func (m *moves) memberSteps(i int) {
	m.syncs(i)
	if m.store == atomic {
		m.readsInOneStep(i)
	} else {
		m.readsInTwoSteps(i)
	}
	m.taskSteps(i)
	if m.from.members[i].phase == serving && !m.has(plannerOnly) {
		m.end(&m.add(ends, i, 0, true).members[i]) // it leaves, or its lease ends
	}
	m.removals(i)
}

// Syncs

// syncs adds the Syncs that member i may send, and the fates of those under way.
func (m *moves) syncs(i int) {
	s, x := m.from, &m.from.members[i]
	if x.flight.kind == 0 && (x.phase == serving || x.phase == lapsed) {
		timed := m.has(heartbeats | lateSyncs)
		counts := s.confirmed == 0 && !x.has(confirms)
		if timed || counts || !x.has(recorded) || !x.report.says(m.present(x)) {
			m.sync(sendsReport, i, withReport)
		}
		if m.has(bareSyncs) && x.has(believes) && (m.has(heartbeats) || s.confirmed == 0) {
			m.sync(sendsBare, i, bare)
		}
	}
	if x.flight.kind != 0 {
		m.land(m.add(syncAnswered, i, 0, false), i, true)
		m.land(m.add(syncUnanswered, i, 0, true), i, false)
		if x.phase != ended {
			m.abandon(&m.add(syncLost, i, 0, true).members[i])
		}
		if m.has(lateSyncs) && x.late.kind == 0 {
			m.giveUp(&m.add(syncGivenUp, i, 0, true).members[i])
		}
	}
	if x.late.kind != 0 {
		n := &m.add(lateSync, i, 0, true).members[i]
		m.publish(n, x.late)
		n.late = syncCall{}
	}
}

// sync adds a Sync of member i. Without slowSyncs it has its effect in the same step.
func (m *moves) sync(k kind, i int, kindOfSync uint8) {
	n := m.add(k, i, 0, false)
	m.compose(n, i, kindOfSync)
	if m.has(slowSyncs) {
		return
	}
	m.land(n, i, true)
	n = m.add(syncUnanswered, i, 0, true)
	m.compose(n, i, kindOfSync)
	m.land(n, i, false)
	if m.has(lateSyncs) {
		n = m.add(syncGivenUp, i, 0, true)
		m.compose(n, i, kindOfSync)
		m.giveUp(&n.members[i])
	}
}

// compose puts a Sync of member i on its way. The first one makes the member.
func (c *config) compose(s *state, i int, kindOfSync uint8) {
	x := &s.members[i]
	if x.phase == free {
		*x = member{phase: joining}
	}
	r := c.present(x)
	r.heartbeat = 1 + max(x.report.heartbeat, x.late.report.heartbeat, x.acked, x.evicting, x.savedReport.heartbeat)
	x.flight = syncCall{kindOfSync, r}
	if c.losses > 0 && x.phase != joining && x.viewServer != s.server+1 {
		x.flight.kind |= foreign
	}
}

// present is the report that a member would send now.
func (c *config) present(x *member) report {
	also := x.running
	if !c.on(reportStopping) {
		also &= x.accepted.tasks
	}
	if c.on(reportAccepted) {
		also |= x.accepted.tasks &^ x.refusing
	}
	r := report{applied: x.accepted.version, also: also &^ (x.view.tasks & x.accepted.tasks), refused: x.refusing}
	if c.on(refuseStale) && x.view.version <= x.accepted.version {
		r.refused |= x.view.tasks &^ (x.accepted.tasks | x.running)
	}
	return r
}

// land is the effect of the Sync of member i that is under way, and its answer.
func (c *config) land(s *state, i int, answered bool) {
	x := &s.members[i]
	call := x.flight
	x.flight = syncCall{}
	kindOfSync := call.kind & kinds
	if !c.publish(x, call) {
		switch {
		case !answered || call.kind&foreign != 0 && c.on(callNamesServer):
			c.abandon(x)
		case kindOfSync == bare && !x.has(removed):
			x.flags &^= believes
		default:
			c.end(x)
		}
		return
	}
	carries := kindOfSync == withReport || x.report.says(call.report)
	if carries || !c.on(resendReport) {
		x.flags |= confirms
	}
	if !answered {
		c.abandon(x)
		return
	}
	if kindOfSync == withReport && call.report.says(c.present(x)) {
		x.flags |= believes
	}
	if !carries && c.on(resendReport) {
		x.flags &^= believes
		return
	}
	if x.phase == ended {
		return
	}
	if x.phase == joining {
		x.view, x.viewServer = x.order, s.server+1
	}
	x.phase, x.acked = serving, call.report.heartbeat
}

// abandon is what the end of a Sync without an answer means for its sender.
func (c *config) abandon(x *member) {
	x.flight = syncCall{}
	if x.phase == joining {
		c.end(x) // it tries again under another ID
	}
}

// giveUp makes the Sync under way a late one.
func (c *config) giveUp(x *member) {
	x.late = x.flight
	c.abandon(x)
}

// end stops all tasks of a member, for ever.
func (c *config) end(x *member) {
	x.phase, x.running, x.refusing, x.accepted, x.view, x.viewServer = ended, 0, 0, order{}, order{}, 0
}

// Readings

// fresh reports whether a member may act on an order of that version.
func (c *config) fresh(x *member, v uint8) bool {
	return v != 0 && (v > x.accepted.version || !c.on(newestOnly) && v != x.accepted.version)
}

// unseen reports whether the order in the table is not the one of the member's View.
func unseen(s *state, x *member) bool { return x.view != x.order || x.viewServer != s.server+1 }

// see makes the order in the table the one of the member's View. The member continues a
// task that it names, whatever its version (O1).
func see(s *state, x *member) {
	x.view, x.viewServer = x.order, s.server+1
	x.accepted.tasks |= x.order.tasks & x.running
}

func accept(x *member, o order) {
	x.accepted, x.refusing = o, 0
	x.flags &^= believes
}

// The stages of a reading.
const (
	half = 1 // piecewise: one of its two records is read
	full = 2 // and the Server of the reading added: it can be acted on
)

// readsInOneStep adds the readings of an atomic store.
func (m *moves) readsInOneStep(i int) {
	s, x := m.from, &m.from.members[i]
	if x.phase != serving {
		return
	}
	if m.fresh(x, x.order.version) || unseen(s, x) {
		n := m.add(readsOrder, i, 0, false)
		y := &n.members[i]
		see(n, y)
		if m.startable(y, y.order, s.epoch) {
			accept(y, y.order)
		}
	}
	if m.has(slowReads) && x.readStage == 0 && m.fresh(x, x.order.version) {
		y := &m.add(readsOrderLate, i, 0, true).members[i]
		y.readStage, y.reading = full+s.server, y.order
	}
	m.lateAnswer(i)
}

// lateAnswer adds that a member acts on the answer of an earlier reading.
func (m *moves) lateAnswer(i int) {
	x := &m.from.members[i]
	if x.phase != serving || x.readStage < full {
		return
	}
	y := &m.add(actsOnReading, i, 0, false).members[i]
	of := x.readStage - full + 1
	if m.fresh(x, x.reading.version) && (!m.on(givenUpReading) || x.viewServer == 0 || x.viewServer == of) {
		accept(y, x.reading)
	}
	y.readStage, y.reading = 0, order{}
}

// startable reports whether a member acts on an order, by the epoch that it has read: one
// of another epoch stays unread until its leader has given it another version (O6).
func (c *config) startable(x *member, o order, epoch uint8) bool {
	e := epochOf(o.version)
	current := e == epoch || e > epoch && !c.on(exactEpoch)
	compares := c.on(orderEpoch) && (c.store == piecewise || c.adopts())
	return c.fresh(x, o.version) && (current || !compares)
}

// readsInTwoSteps adds the readings of a piecewise store: the order, then the table.
func (m *moves) readsInTwoSteps(i int) {
	s, x := m.from, &m.from.members[i]
	m.lateAnswer(i)
	if x.phase != serving || x.readStage >= full {
		return
	}
	if !m.on(tableSecond) {
		m.readsTableFirst(i)
		return
	}
	if m.fresh(x, x.order.version) && (x.readStage == 0 || x.reading.version != x.order.version) || unseen(s, x) {
		n := m.add(readsOrder, i, 0, false)
		y := &n.members[i]
		see(n, y)
		y.readStage, y.reading = 0, order{}
		if m.fresh(y, y.order.version) {
			y.readStage, y.reading = half, y.order
		}
	}
	if x.readStage == half {
		y := &m.add(readsTable, i, 0, false).members[i]
		ok := m.startable(x, x.reading, s.epoch)
		switch {
		case ok && m.has(slowReads):
			y.readStage = full + s.server
			return
		case ok:
			accept(y, x.reading)
		}
		y.readStage, y.reading = 0, order{}
	}
}

// readsTableFirst is readsInTwoSteps in the wrong sequence.
func (m *moves) readsTableFirst(i int) {
	x := &m.from.members[i]
	if x.readStage == 0 {
		y := &m.add(readsTable, i, 0, false).members[i]
		y.readStage, y.reading.version = half, m.from.epoch
		return
	}
	n := m.add(readsOrder, i, 0, false)
	y := &n.members[i]
	see(n, y)
	y.readStage, y.reading = 0, order{}
	if m.startable(x, x.order, x.reading.version) {
		accept(y, x.order)
	}
}

// Tasks

// taskSteps adds the starts, stops and refusals of member i.
func (m *moves) taskSteps(i int) {
	x := &m.from.members[i]
	for t := range m.tasks {
		b := uint8(1) << t
		ordered := x.phase == serving && x.accepted.tasks&b != 0 && x.running&b == 0
		if ordered && (x.refusing&b == 0 || !m.on(refusedStays)) {
			n := m.add(startsTask, i, t, false)
			y := &n.members[i]
			y.running |= b
			y.refusing &^= b
			if !m.on(reportAccepted) {
				y.flags &^= believes
			}
			if m.has(tokens) {
				n.issueToken(i)
			}
		}
		if ordered && m.has(refusals) && x.refusing&b == 0 {
			y := &m.add(refusesTask, i, t, true).members[i]
			y.refusing |= b
			y.flags &^= believes
		}
		if x.alive() && x.running&b != 0 && x.accepted.tasks&b == 0 {
			y := &m.add(stopsTask, i, t, false).members[i]
			y.running &^= b
			y.flags &^= believes
		}
	}
}

// issueToken is the start of the task by member i: its token is the version of the
// order, and must be above those of all other members.
func (s *state) issueToken(i int) {
	x := &s.members[i]
	if !x.has(lastToRun) && x.accepted.version <= s.token {
		s.tokenFell = 1
	}
	for j := range s.members {
		s.members[j].flags &^= lastToRun
	}
	x.flags |= lastToRun
	s.token = max(s.token, x.accepted.version)
}
