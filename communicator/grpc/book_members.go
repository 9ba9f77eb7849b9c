package grpc

// The book's members and their leases.

import (
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
)

// check returns an error if a requested membership is invalid, whatever the state of
// the book.
func (r *membership) check(by rules) error {
	if err := r.Worker.check(); err != nil {
		return err
	}
	if err := identity.CheckAddress(r.address); err != nil {
		return fmt.Errorf("worker %q: %w", r.Name, err)
	}
	if r.lease < by.leaseMin || r.lease > by.leaseMax {
		return fmt.Errorf("%w: worker %q wants a lease of %v (worker.WithLease): the manager grants %v to %v (WithLeases)",
			orchestrator.ErrInvalid, r.Name, r.lease, by.leaseMin, by.leaseMax)
	}
	return nil
}

func (w Worker) check() error {
	if err := identity.CheckName("worker", w.Name); err != nil {
		return err
	}
	if w.Incarnation == 0 {
		return fmt.Errorf("%w: worker %q without an incarnation", orchestrator.ErrInvalid, w.Name)
	}
	return nil
}

// start records that workers can reach the manager from now on. Each stored member
// gets one whole lease from now, because it may have sent its last heartbeat just
// before the previous manager ended.
func (b *book) start(now time.Time) {
	b.started = true
	for name, m := range b.live {
		if m.heard.IsZero() {
			m.until = now.Add(b.members[name].lease)
		}
	}
}

// mayRegister returns the error with which a registration would be refused now, or
// nil.
func (b *book) mayRegister(now time.Time, w Worker) error {
	if b.ended.has(w) {
		return fmt.Errorf("worker %q: %w", w.Name, errMembershipOver)
	}
	kept := b.members[w.Name]
	switch {
	case kept == nil || b.over(now, w.Name):
		return nil
	case kept.Worker == w:
		return b.mayRenew(kept)
	}
	return fmt.Errorf("%w: another process is worker %q, at %s, for at least another %v",
		errNameTaken, w.Name, kept.address, b.live[w.Name].until.Sub(now).Round(time.Millisecond))
}

// reached reports whether a worker is a member at the given address, has been heard
// since the start, and answers calls.
func (b *book) reached(asked membership) bool {
	kept := b.members[asked.Name]
	if kept == nil || kept.Worker != asked.Worker || kept.address != asked.address {
		return false
	}
	m := b.live[asked.Name]
	return !m.heard.IsZero() && m.failing.IsZero()
}

// register makes a worker a member, or renews its lease. The caller has just called
// the worker at its address, or reached reports true. That call belongs to no term, which
// a worker can tell, so it does not show that the calls of terms get through: see
// mayRenew.
func (b *book) register(now time.Time, asked membership) error {
	b.expireOne(now, asked.Name)
	if err := b.mayRegister(now, asked.Worker); err != nil {
		return err
	}
	kept := b.members[asked.Name]
	if kept != nil {
		// A process that asks for a different lease may act on either one.
		asked.lease = max(asked.lease, kept.lease)
	}
	if kept == nil || *kept != asked {
		set(b.members, b.change.members, asked.Name, &asked)
	}
	m := b.live[asked.Name]
	if m == nil {
		m = &member{heard: now} // never counted in unheard
		b.live[asked.Name] = m
	}
	b.hear(now, m, asked.lease)
	return nil
}

// mayRenew returns an error if calls to a member have failed for so long that its lease
// is not renewed. Only a call that gets through changes that.
func (b *book) mayRenew(kept *membership) error {
	m := b.live[kept.Name]
	if lasted := m.failed.Sub(m.failing); !m.failing.IsZero() && lasted >= b.unreachable {
		return fmt.Errorf("worker %q at %s %w: no call has succeeded for %v; its lease is not renewed",
			kept.Name, kept.address, errUnreachable, lasted.Round(time.Millisecond))
	}
	return nil
}

// heartbeat renews the lease of a member. It reports whether it changes anything
// that is stored.
func (b *book) heartbeat(now time.Time, w Worker, draining bool) (changes bool, err error) {
	kept := b.members[w.Name]
	if kept == nil || kept.Worker != w || b.over(now, w.Name) {
		err := fmt.Errorf("worker %q: this incarnation is %w", w.Name, errNotMember)
		if b.ended.left(w) {
			err = fmt.Errorf("%w: %w", err, errLeft)
		}
		return false, err
	}
	if err := b.mayRenew(kept); err != nil {
		return false, err
	}
	changes = kept.draining != draining
	if changes {
		next := *kept
		next.draining = draining
		set(b.members, b.change.members, w.Name, &next)
	}
	b.hear(now, b.live[w.Name], kept.lease)
	return changes, nil
}

func (b *book) hear(now time.Time, m *member, lease time.Duration) {
	if m.heard.IsZero() {
		b.unheard--
	}
	if m.heard.Before(now) {
		m.heard = now
	}
	if until := now.Add(lease); m.until.Before(until) {
		m.until = until
	}
}

// alone reports whether every other member drains. It is true if there is no other
// member.
func (b *book) alone(now time.Time, name string) bool {
	for other, kept := range b.members {
		if other != name && !b.draining(kept) && !b.over(now, other) {
			return false
		}
	}
	return true
}

// leave ends a membership, if there is one. The worker runs no tasks any more.
func (b *book) leave(w Worker) {
	b.ended.add(w, true)
	if kept := b.members[w.Name]; kept != nil && kept.Worker == w {
		b.end(kept)
	}
}

// expire ends the memberships whose leases have expired, and returns the earliest
// end of the others. Zero means that no lease can expire before a worker registers.
func (b *book) expire(now time.Time) (next time.Time) {
	for _, name := range sorted(b.members) {
		if b.expireOne(now, name) {
			continue
		}
		if until := b.live[name].until; !until.IsZero() && (next.IsZero() || until.Before(next)) {
			next = until
		}
	}
	return next
}

func (b *book) expireOne(now time.Time, name string) bool {
	if !b.over(now, name) {
		return false
	}
	b.end(b.members[name])
	return true
}

// over reports whether the lease of the member with this name has expired.
func (b *book) over(now time.Time, name string) bool {
	m := b.live[name]
	return m != nil && !m.until.IsZero() && !now.Before(m.until)
}

func (b *book) end(kept *membership) {
	b.ended.add(kept.Worker, false)
	if b.live[kept.Name].heard.IsZero() {
		b.unheard--
	}
	delete(b.live, kept.Name)
	set(b.members, b.change.members, kept.Name, nil)
}

// called records whether a worker has answered a call, with whatever answer.
func (b *book) called(now time.Time, w Worker, answered bool) {
	kept := b.members[w.Name]
	if kept == nil || kept.Worker != w {
		return
	}
	m := b.live[w.Name]
	if answered {
		m.failing, m.failed = time.Time{}, time.Time{}
		return
	}
	if m.failing.IsZero() {
		m.failing = now
	}
	m.failed = now
}

// The bounds of ended: names, and incarnations of each. So one name cannot displace
// the incarnations of another (R5).
const (
	endedNames = 10_000
	endedEach  = 16
)

// ended holds the incarnations whose memberships ended last. A late Register of such
// an incarnation must not make it a member again.
type ended struct {
	of   map[string][]endedOne // by name, oldest first
	ring []string              // the names
	next int                   // in ring
}

// endedOne is an incarnation whose membership has ended.
type endedOne struct {
	incarnation uint64
	left        bool // it has called Leave
}

func newEnded() ended { return ended{of: make(map[string][]endedOne)} }

func (e *ended) find(w Worker) *endedOne {
	all := e.of[w.Name]
	if i := slices.IndexFunc(all, func(one endedOne) bool { return one.incarnation == w.Incarnation }); i >= 0 {
		return &all[i]
	}
	return nil
}

func (e *ended) has(w Worker) bool { return e.find(w) != nil }

func (e *ended) left(w Worker) bool {
	one := e.find(w)
	return one != nil && one.left
}

func (e *ended) add(w Worker, left bool) {
	if e.has(w) {
		return
	}
	all := append(e.of[w.Name], endedOne{w.Incarnation, left})
	e.of[w.Name] = all[max(0, len(all)-endedEach):]
	switch {
	case len(all) > 1: // the name is in the ring
	case len(e.ring) < endedNames:
		e.ring = append(e.ring, w.Name)
	default:
		delete(e.of, e.ring[e.next])
		e.ring[e.next] = w.Name
		e.next = (e.next + 1) % endedNames
	}
}
