package wire

import (
	"cmp"
	"slices"
	"time"
)

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
	if o.seen == nil {
		o.seen = make(map[uint64]*sighting)
	}
	o.longer(v.Lease)
	for _, m := range v.Members {
		o.longer(m.lease())
		s := o.seen[m.ID]
		if s == nil {
			s = &sighting{beat: m.Heartbeat, since: received, read: began}
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

// longer records a lease. 0 is none; any other one out of range counts as the longest.
func (o *observer) longer(d time.Duration) {
	if d != 0 {
		o.lease = max(o.lease, (&Member{Lease: d}).lease())
	}
}

// look records a heartbeat. A member is dead when its heartbeat has not moved for a lease:
// from when the observer first saw it to the begin of the reading that still shows it.
func (s *sighting) look(beat uint64, began, received time.Time) {
	if beat != s.beat {
		s.beat, s.since, s.moved, s.dead = beat, received, true, false
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

// settled reports whether the present Server has been seen for the longest lease (B7).
func (o *observer) settled(now time.Time) bool {
	return o.server != "" && now.Sub(o.since) >= o.lease
}
