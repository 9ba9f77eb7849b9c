package replica

// The decisions of a replica. Pure: times are arguments.

import (
	"fmt"
	"slices"
	"time"
)

// protocol decides what a replica publishes and asks for with each Sync, and whether it
// leads.
type protocol struct {
	self     Member
	left     []uint64 // former IDs that the table may still have
	view     View
	synced   bool // a Sync of this ID has succeeded
	observed observer
	// campaign is the Server of the View on which the last campaign was based. It is won
	// only there: another Server may lack members that have joined since.
	campaign string
	led      uint64    // the last epoch that the replica has led; it leads none twice
	ledSince time.Time // when that began
	leads    *leading  // nil: it does not lead
	// passiveUntil is when the replica becomes a candidate like any other again.
	passiveUntil time.Time
}

// leading is a period of leadership.
type leading struct {
	epoch  uint64
	server string // of the View that elected the leader (A9)
	since  time.Time
}

// health is what a leader knows of its Source and of the members, from its calls.
type health struct {
	told     time.Time         // when the Source first answered; zero: not yet
	answered map[uint64]answer // the last answered List of each member
}

// answer is the last answered List of a member.
type answer struct {
	began time.Time
	// unsure reports that a start or a stop was sent since, and may have been carried out.
	unsure bool
}

const (
	// maxLeft bounds the former IDs in an update. A lost one is evicted like the
	// record of a crashed process.
	maxLeft = 64
	// passiveLeases is how many leases a replica stays passive.
	passiveLeases = 10
)

// patience is how long a leader with this lease waits for the first answer of its Source,
// and calls a member that does not answer: four calls, with the default timeout. So two
// leaders in a row may fail, and a third one leads within four leases.
func patience(lease time.Duration) time.Duration { return lease + lease/3 }

// update returns what the next Sync publishes and asks for. seen is the highest epoch that
// the worker has seen, and random a random number.
func (p *protocol) update(now time.Time, seen uint64, random uint32, h health) Update {
	p.self.Heartbeat++
	if seen <= maxSeen { // otherwise a caller made it up, and in the table it would last
		p.self.Epoch = max(p.self.Epoch, seen)
	}
	p.self.Passive = now.Before(p.passiveUntil)
	u := Update{Self: p.self, Left: slices.Clone(p.left), Epoch: p.view.Epoch}
	if !p.view.Confirmed && p.observed.settled(now, p.self.Lease) {
		u.Confirm = p.observed.server
	}
	if p.leads != nil {
		u.Evict, u.Retire = p.dead(), p.uncallable(now, h)
	} else if p.vacant(now) {
		u.Campaign, p.campaign = p.nextEpoch(now, random), p.view.Server
	}
	return u
}

// nextEpoch returns the epoch of a campaign (B3). It is above every epoch that this replica
// or a member has seen, by 2³² or more: so many terms fit between two epochs, and the sum
// of epoch and term number rises from one leader to the next. The time lets epochs rise
// even if no member knows the last one, as long as there was no more than one election in
// 72 minutes on average (2³² µs). The random part makes two campaigns differ of which the
// table has lost the first.
func (p *protocol) nextEpoch(now time.Time, random uint32) uint64 {
	highest := max(p.view.Epoch, p.self.Epoch)
	for _, m := range p.view.Members {
		highest = max(highest, m.Epoch)
	}
	return max(highest+1<<32, uint64(max(now.UnixMicro(), 0))) + uint64(random)
}

// received records the View of a Sync of u that lasted from began to now.
func (p *protocol) received(v View, began, now time.Time) {
	p.view, p.synced, p.left = v, true, nil
	p.self.Epoch = max(p.self.Epoch, v.Epoch)
	p.observed.observe(v, began, now)
}

// elected reports whether the last View makes this replica lead an epoch that it has not
// led yet.
func (p *protocol) elected() bool {
	return p.synced && p.view.Leader == p.self.ID && p.view.Server == p.campaign &&
		p.view.Epoch > p.led && !p.self.Draining && p.self.Role.Leads()
}

// lead records that the replica leads from now on.
func (p *protocol) lead(now time.Time) {
	p.leads = &leading{epoch: p.view.Epoch, server: p.view.Server, since: now}
	p.led, p.ledSince = p.view.Epoch, now
}

// mustStop returns why the replica must not lead any longer; empty: it may.
func (p *protocol) mustStop() string {
	switch {
	case p.leads == nil:
		return ""
	case p.view.Server != p.leads.server:
		return "the table is another one" // A9
	case p.view.Epoch != p.leads.epoch || p.view.Leader != p.self.ID:
		return "another replica was elected"
	case p.self.Draining:
		return "the replica drains"
	}
	return ""
}

// unfit returns why the replica should not lead any longer, if another candidate could
// do better (A7); empty: it leads on.
func (p *protocol) unfit(now time.Time, h health) string {
	if p.leads == nil || !p.otherCandidate() {
		return ""
	}
	if h.told.IsZero() {
		if now.Sub(p.leads.since) >= patience(p.self.Lease) {
			return "the source of the tasks has not answered"
		}
		return ""
	}
	if answering, others := p.answering(now, h); 2*answering < others {
		return fmt.Sprintf("%d of %d other members answer", answering, others)
	}
	return ""
}

// pass makes the replica passive: it leads again only if no other candidate can.
func (p *protocol) pass(now time.Time) { p.passiveUntil = now.Add(passiveLeases * p.self.Lease) }

// rejoin starts over under another ID.
func (p *protocol) rejoin(id uint64) {
	p.left = append(p.left, p.self.ID)
	p.left = p.left[max(0, len(p.left)-maxLeft):]
	p.self.ID, p.self.Heartbeat, p.synced = id, 0, false
	p.leads = nil
}

// vacant reports whether the replica should campaign (A3).
func (p *protocol) vacant(now time.Time) bool {
	if !p.synced || !p.view.Confirmed || p.self.Draining || !p.self.Role.Leads() || p.self.Passive && p.otherCandidate() {
		return false
	}
	leader, ok := p.observed.alive(p.view.Leader)
	switch {
	case !ok, leader.Draining:
		return true
	case leader.ID == p.self.ID:
		// It stopped leading. What ended that may last: one campaign a heartbeat.
		return p.leads == nil && now.Sub(p.ledSince) >= p.self.Lease/12
	case leader.Passive:
		return !p.self.Passive
	}
	return false
}

// otherCandidate reports whether another member lives that could lead.
func (p *protocol) otherCandidate() bool {
	for id, s := range p.observed.seen {
		m := s.member
		if id != p.self.ID && !s.dead && m.Role.Leads() && !m.Draining && !m.Passive {
			return true
		}
	}
	return false
}

// dead returns the members that are dead by observation, each with its heartbeat.
func (p *protocol) dead() map[uint64]uint64 {
	dead := make(map[uint64]uint64)
	for id, s := range p.observed.seen {
		if id != p.self.ID && s.dead {
			dead[id] = s.member.Heartbeat
		}
	}
	return dead
}

// unanswered returns how long a member has not answered this leader. The leader calls a
// member once it has seen it and knows the tasks.
func unanswered(now time.Time, s sighting, h health) time.Duration {
	since := s.first
	for _, t := range []time.Time{h.told, h.answered[s.member.ID].began} {
		if t.After(since) {
			since = t
		}
	}
	return now.Sub(since)
}

// answering counts the other members that live and run tasks, and those of them that
// answer, or were not called for long enough to tell.
func (p *protocol) answering(now time.Time, h health) (answering, others int) {
	for id, s := range p.observed.seen {
		if id == p.self.ID || s.dead || !s.member.Role.Works() {
			continue
		}
		others++
		if unanswered(now, s, h) < patience(p.self.Lease) {
			answering++
		}
	}
	return answering, others
}

// uncallable returns the members that Sync and do not answer this leader (A10): those that
// have never answered it, which may run anything, and those that may have carried out a
// start or a stop since they answered. No task is started elsewhere that such a member may
// run, and one that it has stopped runs nowhere.
func (p *protocol) uncallable(now time.Time, h health) []uint64 {
	if h.told.IsZero() {
		return nil
	}
	if answering, others := p.answering(now, h); 2*answering < others && p.otherCandidate() {
		return nil // the fault may be the leader's
	}
	var ids []uint64
	for id, s := range p.observed.seen {
		a, ok := h.answered[id]
		if ok && !a.unsure || id == p.self.ID || s.dead || !s.member.Role.Works() {
			continue
		}
		if unanswered(now, s, h) >= patience(max(s.member.Lease, p.self.Lease)) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// alone reports whether no other member that lives could take tasks (A6).
func (p *protocol) alone() bool {
	for id, s := range p.observed.seen {
		if id != p.self.ID && !s.dead && s.member.Role.Works() && !s.member.Draining {
			return false
		}
	}
	return true
}

// pending reports whether the next update asks for something that the last one, asked,
// did not, so that it should be sent at once.
func (p *protocol) pending(now time.Time, h health, asked Update) bool {
	next := *p // update changes only the copy
	u := next.update(now, p.self.Epoch, 0, h)
	campaign := u.Campaign > 0 && p.view.Leader != p.self.ID && (asked.Campaign == 0 || asked.Epoch != u.Epoch)
	if campaign || u.Confirm != asked.Confirm || u.Self.Passive != asked.Self.Passive {
		return true
	}
	for id, heartbeat := range u.Evict {
		if before, ok := asked.Evict[id]; !ok || before != heartbeat {
			return true
		}
	}
	return false
}
