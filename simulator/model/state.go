package model

import (
	"bytes"
	"unsafe"
)

// The sizes of a state. A configuration uses a part of it.
const (
	maxMembers = 3
	maxLeaders = 3
	maxTasks   = 2
)

// version returns an epoch and the number of a batch in one byte. Zero is no version.
// Leader k has epoch k+1, so each epoch is led once.
func version(epoch, batch uint8) uint8 { return epoch<<4 | batch }

func epochOf(version uint8) uint8 { return version >> 4 }

// order is the order record of one member: a bit for each task that it shall run.
type order struct{ version, tasks uint8 }

// report is what a member publishes. The heartbeat goes with it.
type report struct{ applied, also, refused, heartbeat uint8 }

// says reports whether two reports say the same; heartbeats may differ.
func (r report) says(other report) bool {
	r.heartbeat = other.heartbeat
	return r == other
}

// syncCall is a Sync under way, or says that none is: then its kind is 0.
type syncCall struct {
	kind   uint8 // withReport or bare, with foreign added
	report report
}

const (
	withReport = 1
	bare       = 2 // a heartbeat alone
	kinds      = 3
	foreign    = 4 // names another Server than the table's
)

// batch is what a leader sent for one member. If the version is 0, it sent nothing.
type batch struct {
	order    order
	server   uint8 // 1 + the Server that it names
	replaces uint8 // piecewise: the version of the record that it may replace
}

// intent is what one leader has sent for one member.
type intent struct {
	sent      uint8           // 1: something
	newest    order           // the last of it
	since     [maxTasks]uint8 // of a task that newest lacks: the first version without it
	pending   batch           // not answered
	late      batch           // a copy under way
	early     order           // read before the reports, with ordersFirst
	earlyWord report          // read before the orders, with reportsFirst
}

// member is one ID: what the member knows, and what the table has of it.
type member struct {
	phase, flags uint8

	accepted          order // the newest order that it acts on; its version is Applied
	running, refusing uint8 // tasks
	view              order // its order as last read, accepted or not
	viewServer        uint8 // 1 + the Server of that View
	reading           order // read, and not yet acted on
	readStage         uint8 // of that reading
	acked             uint8 // the last heartbeat that was acknowledged to it
	flight, late      syncCall

	order    order // in the table
	report   report
	evicting uint8 // the heartbeat that an eviction under way names

	savedOrder  order // in the copy to which the table may fall back
	savedReport report

	intents [maxLeaders]intent
}

// The phases of a member.
const (
	free    = iota
	joining // its first Sync has no answer
	serving
	lapsed // its lease ended, and it continues under the same ID: only without A5
	ended  // all its tasks have stopped, for ever
)

// The flags of a member.
const (
	recorded  = 1 << iota // its record is in the table
	removed               // the table remembers that it was removed
	confirms              // a Sync of it counts for the Confirm of this Server
	believes              // it believes that its report is in the table
	saved                 // recorded, in the saved copy
	savedGone             // removed, in the saved copy
	lastToRun             // with tokens: the last member that started the task
)

// toSaved is the distance of the flags of the saved copy from those of the table.
const toSaved = 4

func (x *member) has(flag uint8) bool { return x.flags&flag != 0 }

func (x *member) alive() bool { return x.phase >= joining && x.phase <= lapsed }

// leader is the life of one epoch.
type leader struct{ phase, server, batches, expects, begun, read uint8 }

// The phases of a leader.
const (
	waiting   = iota
	candidate // it has read, and has not claimed: only without O6
	leads
	done
)

// state is one state of the whole system. It is comparable, and has no padding.
type state struct {
	server, confirmed, epoch uint8 // of the table; server counts the losses
	copied, copiedEpoch      uint8 // there is a saved copy; its epoch
	token, tokenFell         uint8 // the highest token so far; a later one was not higher
	leaders                  [maxLeaders]leader
	members                  [maxMembers]member
}

func (x *member) bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(x)), unsafe.Sizeof(*x)) }

// canonical gives all states that differ only in what can have no effect, or in the
// numbers of members, one form.
func (c *config) canonical(s *state) {
	c.reduce(s)
	c.sort(s)
}

// sort orders the members by their bytes.
func (c *config) sort(s *state) {
	for a := 1; a < c.ids; a++ {
		for b := a; b > 0 && bytes.Compare(s.members[b].bytes(), s.members[b-1].bytes()) < 0; b-- {
			s.members[b], s.members[b-1] = s.members[b-1], s.members[b]
		}
	}
}

// reduce clears what can have no effect.
func (c *config) reduce(s *state) {
	for k := range c.leaders {
		d := &s.leaders[k]
		if d.phase == leads && c.powerless(s, k) {
			d.phase = done
		}
		if d.phase == done {
			*d = leader{phase: done}
		}
	}
	for i := range c.ids {
		x := &s.members[i]
		if x.phase == free {
			continue
		}
		c.reduceIntents(s, x)
		c.reduceMember(s, x)
		c.rankHeartbeats(x)
	}
}

// powerless reports whether nothing can take effect that leader k still writes.
func (c *config) powerless(s *state, k int) bool {
	stops := c.on(leaderStops)
	if c.store == piecewise {
		return false
	}
	return stops && s.leaders[k].server != s.server ||
		c.on(batchEpoch) && c.on(batchServer) && s.epoch != uint8(k+1) && (stops || c.losses == 0)
}

func (c *config) reduceIntents(s *state, x *member) {
	for k := range c.leaders {
		n, over := &x.intents[k], s.leaders[k].phase == done
		if over {
			*n = intent{pending: n.pending, late: n.late}
		}
		left := x.phase == ended && !x.has(recorded|saved) && c.store == atomic
		if left || over && c.dead(s, k, n.pending, x) {
			n.pending = batch{}
		}
		if x.phase == ended || c.dead(s, k, n.late, x) {
			n.late = batch{}
		}
	}
}

// dead reports whether a batch of leader k for x can never take effect.
func (c *config) dead(s *state, k int, b batch, x *member) bool {
	more := int(s.server) < c.losses // a loss may bring an earlier record back
	if c.store == piecewise {
		return c.on(compareSwap) && x.order.version != b.replaces && (!more || b.replaces != 0)
	}
	if c.on(batchServer) {
		if b.server != s.server+1 {
			return true
		}
		more = false
	}
	return !more && (c.on(batchEpoch) && s.epoch != uint8(k+1) && s.leaders[k].phase != candidate ||
		c.on(noLaterBatch) && x.has(recorded) && b.order.version <= x.order.version)
}

func (c *config) reduceMember(s *state, x *member) {
	if x.phase == ended {
		x.accepted, x.view, x.viewServer, x.reading, x.readStage = order{}, order{}, 0, order{}, 0
		x.running, x.refusing, x.acked = 0, 0, 0
		x.flags &^= confirms | believes | lastToRun
		if !c.has(heartbeats) {
			x.flight = syncCall{}
		}
		if !x.has(recorded|saved) && x.flight.kind == 0 && x.late.kind == 0 {
			*x = member{}
			return
		}
	}
	if !x.has(recorded) {
		x.report, x.evicting = report{}, 0
	}
	if !c.has(bareSyncs) {
		x.flags &^= believes
	}
	if s.confirmed == 1 {
		x.flags &^= confirms
	}
}

// rankHeartbeats replaces the heartbeats of a member by their ranks, because only
// their order has an effect.
func (c *config) rankHeartbeats(x *member) {
	all := [...]*uint8{&x.report.heartbeat, &x.flight.report.heartbeat, &x.late.report.heartbeat, &x.acked, &x.evicting, &x.savedReport.heartbeat}
	var lower uint64 // the values, as a set
	for _, h := range all {
		if !c.has(heartbeats | lateSyncs) {
			*h = 0
		}
		lower |= 1 << *h
	}
	for _, h := range all {
		rank := uint8(0)
		for v := uint8(1); v <= *h; v++ {
			rank += uint8(lower >> v & 1)
		}
		*h = rank
	}
}
