package replica

import (
	"cmp"
	"slices"
	"time"
)

// watchers is the number of candidates beside the leader that watch all heartbeats.
const watchers = 4

// election decides what a replica publishes, whether it campaigns, and whether it may
// lead. Times are the replica's own; it makes no call.
type election struct {
	self     Member
	left     []uint64 // former IDs of which everything has stopped
	observed observer
	head     View // the last one
	synced   bool // a Sync of this ID was acknowledged
	leads    bool // in epoch led

	led        uint64    // the epoch that was led last
	campaign   string    // the Server of the last campaign
	campaigned time.Time // in the present epoch, or when the replica stopped leading; zero: not
	// lacking is since when the leader of the present epoch has been seen without an
	// answer of its Source; zero if it has one.
	lacking time.Time
	vacant  time.Time // since when there is a reason to campaign; zero if there is none
	watches bool      // it watches all heartbeats (A4)
}

// update returns what the next Sync publishes and asks for. random is below 2^32.
func (e *election) update(now time.Time, random uint32) Update {
	e.self.Heartbeat++
	u := Update{Member: e.self, Left: e.left, Epoch: e.head.Epoch}
	u.Self, u.Server = e.self.ID, e.head.Server
	u.Confirm = e.synced && !e.head.Confirmed && now.Sub(e.observed.since) >= e.observed.lease // B7
	if e.shouldCampaign(now) {
		u.Campaign, e.campaign, e.campaigned = e.nextEpoch(now, random), e.head.Server, now
	}
	return u
}

// shouldCampaign reports whether to campaign now (A3): at most once a heartbeat, and a
// quarter of a lease later if four candidates joined earlier.
func (e *election) shouldCampaign(now time.Time) bool {
	if e.vacant.IsZero() || now.Sub(e.campaigned) < e.self.Lease/12 {
		return false
	}
	return e.isAmongFirst(true) || now.Sub(e.vacant) >= e.self.Lease/4
}

// isAmongFirst reports whether fewer than four candidates beside the leader joined before
// this one. A dead one does not count among those that watch. It counts among those that
// campaign at once, or a death would promote a candidate that has watched no member.
func (e *election) isAmongFirst(dead bool) bool {
	n := 0
	for _, s := range e.observed.members() {
		switch {
		case s.member.ID == e.self.ID:
			return n < watchers
		case s.member.Role.leads() && s.member.ID != e.head.Leader && (dead || !s.dead):
			n++
		}
	}
	return n < watchers
}

// due returns when a reading of all heartbeats can first show another death that matters to
// the replica: of any member if it watches all, otherwise of the leader.
func (e *election) due() (at time.Time, ok bool) {
	for id, s := range e.observed.seen {
		if id == e.self.ID || !s.lives() || !e.watches && id != e.head.Leader {
			continue
		}
		if end := s.since.Add(s.member.lease()); (!ok || end.Before(at)) && e.observed.looked.Before(end) {
			at, ok = end, true
		}
	}
	return at, ok
}

// nextEpoch returns the epoch of a campaign, or 0 if none is left (B3).
func (e *election) nextEpoch(now time.Time, random uint32) uint64 {
	h := max(e.head.Epoch, e.head.Seen, e.self.Epoch)
	next := max(h+epochStep, 64*uint64(max(now.UnixMicro(), 0))) + uint64(random)
	if h >= MaxEpoch || next >= MaxEpoch {
		return 0
	}
	return next
}

// saw records an epoch or a version, unless no member can have it.
func (e *election) saw(n uint64) {
	if n < MaxSeen {
		e.self.Epoch = max(e.self.Epoch, n)
	}
}

// received records the View of a call that began at the given time. all: it was asked for
// all heartbeats.
func (e *election) received(v *View, all bool, began, now time.Time) {
	e.observed.longer(e.self.Lease)
	if v.Full && !e.leads {
		e.observed.forget(v.Members)
	}
	e.observed.observe(v, all, began, now)
	s, ok := e.observed.alive(v.Leader)
	if v.Epoch != e.head.Epoch || v.Server != e.head.Server {
		e.lacking, e.campaigned = time.Time{}, time.Time{}
	}
	mark(&e.lacking, ok && !s.member.Answered, now)
	e.head = *v
	e.saw(v.Epoch)
	e.watches = e.leads || e.self.Role.leads() && e.isAmongFirst(false)
	mark(&e.vacant, e.isVacant(now), now)
}

// mark keeps in since from when on something has held; zero: it does not hold.
func mark(since *time.Time, holds bool, now time.Time) {
	if !holds {
		*since = time.Time{}
	} else if since.IsZero() {
		*since = now
	}
}

// isVacant reports whether there is a reason to campaign (A3).
func (e *election) isVacant(now time.Time) bool {
	if !e.mayLead() || !e.head.Confirmed || e.leads {
		return false
	}
	s, ok := e.observed.alive(e.head.Leader)
	switch {
	case !ok, s.member.Draining, e.head.Epoch < e.self.Epoch:
		return true
	case e.head.Leader == e.self.ID: // it has stopped leading: an epoch is led once
		return e.head.Epoch <= e.led || e.head.Server != e.campaign
	}
	return e.self.Answered && e.isLacking(now)
}

// mayLead reports whether the replica is a candidate.
func (e *election) mayLead() bool {
	return e.synced && !e.self.Draining && e.self.Role.leads()
}

// isLacking reports whether the leader has had no answer of its Source for a third of a
// lease (A3, A7).
func (e *election) isLacking(now time.Time) bool {
	return !e.lacking.IsZero() && now.Sub(e.lacking) >= e.self.Lease/3
}

// wantsSource reports whether the Source should run (A7).
func (e *election) wantsSource(now time.Time) bool {
	return e.leads || e.mayLead() && e.isLacking(now)
}

// elected reports whether the replica may begin to lead the epoch of the last View.
func (e *election) elected() bool {
	h := &e.head
	return e.mayLead() && !e.leads && h.Confirmed && h.Leader == e.self.ID && h.Server == e.campaign &&
		h.Epoch > e.led && h.Epoch < MaxEpoch
}

// deposed returns why a leader must stop, or "" (A9). The lease is the worker's affair.
func (e *election) deposed() string {
	switch {
	case !e.leads:
		return ""
	case e.head.Server != e.campaign:
		return "the table is another one"
	case e.head.Epoch != e.led || e.head.Leader != e.self.ID:
		return "another replica was elected"
	case e.self.Epoch > e.led:
		return "a record has a version above all that this leader has written"
	case e.self.Draining:
		return "the replica is draining"
	}
	return ""
}

// rejoin begins another life, under a new ID (A5). stored: something of the former ID may
// be in the table.
func (e *election) rejoin(id uint64, stored bool) {
	if stored {
		e.left = append(e.left, e.self.ID)
		e.left = e.left[max(0, len(e.left)-maxLeft):]
	}
	e.self.ID, e.self.Heartbeat, e.self.Joined = id, 0, 0
	e.synced, e.leads, e.vacant, e.lacking = false, false, time.Time{}, time.Time{}
}

// evict returns the members to remove, with their heartbeats: the dead ones (A2), and those
// that have had no record for the longest lease (B6).
func (e *election) evict(now time.Time) map[uint64]uint64 {
	evict := make(map[uint64]uint64)
	for id, s := range e.observed.seen {
		switch {
		case !s.missing.IsZero() && now.Sub(s.missing) >= e.observed.lease:
			evict[id] = 0
		case s.missing.IsZero() && s.dead && id != e.self.ID:
			evict[id] = s.beat
		}
	}
	return evict
}

// isAlone reports whether no other live member could take tasks, or none could lead (A6).
func (e *election) isAlone() bool {
	worker, candidate := false, false
	for id, s := range e.observed.seen {
		if id != e.self.ID && s.lives() && !s.member.Draining {
			worker = worker || s.member.Role.works()
			candidate = candidate || s.member.Role.leads()
		}
	}
	return !worker || !candidate
}

// foreign returns a live member of another service that joined earlier, or nil.
func (e *election) foreign() *sighting {
	for _, s := range e.observed.members() {
		if m := &s.member; m.ID == e.self.ID {
			return nil
		} else if !s.dead && e.self.Service != "" && m.Service != e.self.Service && m.Service != "" {
			return s
		}
	}
	return nil
}

// observer holds what a replica has observed of the members, by its own monotonic clock.
type observer struct {
	seen   map[uint64]*sighting
	server string
	since  time.Time     // when the first View of server was received
	lease  time.Duration // the longest that was ever seen, in any Server
	looked time.Time     // when the last reading of all heartbeats began
}

// sighting is what was observed of one member.
type sighting struct {
	member Member
	beat   uint64
	since  time.Time // when the View that first showed the heartbeat was received
	read   time.Time // when the last reading that showed it began
	moved  bool      // the heartbeat has moved since it was first seen
	dead   bool
	// missing is when the first View was received that showed neither a record nor a
	// removal of the member (B6); zero: it has a record.
	missing time.Time
}

// observe records a View of a call that began and was answered at the given times. all: it
// was asked for all heartbeats.
func (o *observer) observe(v *View, all bool, began, received time.Time) {
	if v.Server != o.server {
		o.server, o.since = v.Server, received
	}
	o.longer(v.Lease)
	for _, m := range v.Members {
		o.longer(m.lease())
		s := o.seen[m.ID]
		if s == nil {
			s = &sighting{beat: m.Heartbeat, since: received, read: began}
			if beat, ok := v.Beats[m.ID]; ok { // the record may have an earlier one
				s.beat = beat
			}
			o.seen[m.ID] = s
		}
		s.member, s.missing = m, time.Time{}
	}
	for _, ordered := range v.Orders {
		if v.Full && o.seen[ordered.Member] == nil {
			o.seen[ordered.Member] = &sighting{missing: received}
		}
	}
	for _, id := range v.Gone {
		delete(o.seen, id)
	}
	for id, s := range o.seen {
		beat, ok := v.Beats[id]
		switch {
		case ok:
			s.look(beat, began, received)
		case s.missing.IsZero() && (all || id == v.Leader): // its record was deleted by hand
			s.missing = received
		}
	}
	if all {
		o.looked = began
	}
}

// forget drops the members without a record in a full View. An earlier View may have shown the removal, and
// none shows it again.
func (o *observer) forget(members []Member) {
	was := o.seen
	o.seen = make(map[uint64]*sighting, len(members))
	for _, m := range members {
		if s := was[m.ID]; s != nil {
			o.seen[m.ID] = s
		}
	}
}

// longer records a lease, unless it is 0. Any other one out of range counts as the longest.
func (o *observer) longer(d time.Duration) {
	if d != 0 {
		o.lease = max(o.lease, (&Member{Lease: d}).lease())
	}
}

// look records a heartbeat. A member is dead when its heartbeat has not moved for a lease:
// from when the observer first saw it to the begin of the reading that still shows it.
func (s *sighting) look(beat uint64, began, received time.Time) {
	if beat != s.beat {
		s.beat, s.member.Heartbeat, s.since, s.moved, s.dead = beat, beat, received, true, false
	} else if began.Sub(s.since) >= s.member.lease() {
		s.dead = true
	}
	s.read = began
}

// lives reports whether the member has a record and is not dead.
func (s *sighting) lives() bool { return !s.dead && s.missing.IsZero() }

// isSilent reports whether the member has no record, or its heartbeat had not risen for a
// quarter of the lease when it was last read (A10).
func (s *sighting) isSilent() bool {
	return !s.missing.IsZero() || s.read.Sub(s.since) >= s.member.lease()/4
}

// alive returns the sighting of a member that lives.
func (o *observer) alive(id uint64) (*sighting, bool) {
	s := o.seen[id]
	return s, s != nil && s.lives()
}

// members returns the members that have a record, in the order in which they joined.
func (o *observer) members() []*sighting {
	all := make([]*sighting, 0, len(o.seen))
	for _, s := range o.seen {
		if s.missing.IsZero() {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *sighting) int {
		return cmp.Or(cmp.Compare(a.member.Joined, b.member.Joined), cmp.Compare(a.member.ID, b.member.ID))
	})
	return all
}
