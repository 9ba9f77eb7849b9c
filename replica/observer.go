package replica

// What a replica has observed of the others, by its own clock. Pure: times are
// arguments.

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// observer decides which members are dead, by the rule of the contract: a member is dead if its
// heartbeat has not risen from when the observer first saw it until the observer began
// the Sync that still shows it, and that took at least the member's lease.
//
// The member counts from when it sent the heartbeat, which was earlier, and stops after
// nine tenths of its lease. So it has stopped by then, if the clocks of the two run at
// rates that differ by less than a tenth.
type observer struct {
	seen   map[uint64]sighting
	server string    // of the last View
	since  time.Time // when the first View of server was received
	lease  time.Duration
}

// sighting is what the observer knows of one member.
type sighting struct {
	member Member
	first  time.Time // when the observer first saw the member
	since  time.Time // when the View that first showed the member's heartbeat was received
	dead   bool
}

// observe records a View that was received by a Sync from began to received.
func (o *observer) observe(v View, began, received time.Time) {
	if v.Server != o.server {
		o.server, o.since = v.Server, received
	}
	o.lease = max(o.lease, v.Lease)
	next := make(map[uint64]sighting, len(v.Members))
	for _, m := range v.Members {
		o.lease = max(o.lease, m.Lease)
		s, ok := o.seen[m.ID]
		switch {
		case !ok:
			s = sighting{first: received, since: received}
		case s.member.Heartbeat != m.Heartbeat:
			s.since, s.dead = received, false
		default:
			s.dead = began.Sub(s.since) >= m.Lease
		}
		s.member = m
		next[m.ID] = s
	}
	o.seen = next
}

// members returns the members of the last View, in the order of their IDs.
func (o *observer) members() []sighting {
	return slices.SortedFunc(maps.Values(o.seen), func(a, b sighting) int {
		return cmp.Compare(a.member.ID, b.member.ID)
	})
}

// alive returns a member if it is in the last View and not dead.
func (o *observer) alive(id uint64) (Member, bool) {
	s, ok := o.seen[id]
	return s.member, ok && !s.dead
}

// settled reports whether a Sync that begins now may confirm the server: every replica
// that lives has published its record there since the server was first seen. own is the
// caller's lease.
func (o *observer) settled(now time.Time, own time.Duration) bool {
	return o.server != "" && now.Sub(o.since) >= max(o.lease, own)
}

// next returns when a Sync can first show something that time alone decides: the death
// of a member, or that the server may be confirmed.
func (o *observer) next(own time.Duration, confirmed bool) (at time.Time, ok bool) {
	earlier := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	for _, s := range o.seen {
		if !s.dead {
			earlier(s.since.Add(s.member.Lease))
		}
	}
	if o.server != "" && !confirmed {
		earlier(o.since.Add(max(o.lease, own)))
	}
	return at, ok
}
