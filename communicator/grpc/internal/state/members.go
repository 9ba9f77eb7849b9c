package state

// Members and their leases.

import (
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
)

// Check returns an error if a requested membership is invalid, whatever the
// state.
func (r *Membership) Check(by Rules) error {
	if err := r.WorkerID.Check(); err != nil {
		return err
	}
	if err := identity.CheckAddress(r.Address); err != nil {
		return fmt.Errorf("worker %q: %w", r.Name, err)
	}
	if r.Lease < by.LeaseMin || r.Lease > by.LeaseMax {
		return fmt.Errorf("%w: worker %q wants a lease of %v (worker.WithLease): the manager grants %v to %v (WithLeases)",
			orchestrator.ErrInvalid, r.Name, r.Lease, by.LeaseMin, by.LeaseMax)
	}
	return r.Settings.Check()
}

// Start records that workers can reach the manager from now on. Each stored member
// gets one whole lease from now, because it may have sent its last heartbeat just
// before the previous manager ended.
func (s *State) Start(now time.Time) {
	s.started = true
	for name, m := range s.live {
		if m.heard.IsZero() {
			m.until = now.Add(s.Members[name].Lease)
		}
	}
}

// MayRegister returns the error with which a registration would be refused now, or
// nil.
func (s *State) MayRegister(now time.Time, w WorkerID) error {
	if s.ended.has(w) {
		return fmt.Errorf("worker %q: %w", w.Name, ErrMembershipOver)
	}
	kept := s.Members[w.Name]
	switch {
	case kept == nil || s.over(now, w.Name):
		return nil
	case kept.WorkerID == w:
		return s.mayRenew(kept)
	}
	return fmt.Errorf("%w: another process is worker %q, at %s, for at least another %v",
		ErrNameTaken, w.Name, kept.Address, s.live[w.Name].until.Sub(now).Round(time.Millisecond))
}

// Reached reports whether a worker is a member at the given address, has been heard
// since the start, and answers calls.
func (s *State) Reached(asked Membership) bool {
	kept := s.Members[asked.Name]
	if kept == nil || kept.WorkerID != asked.WorkerID || kept.Address != asked.Address {
		return false
	}
	m := s.live[asked.Name]
	return !m.heard.IsZero() && m.failing.IsZero()
}

// Register makes a worker a member, or renews its lease. The caller has just called
// the worker at its address, or Reached reports true. That call carries no term. A
// compromised worker could answer only such calls, so the call does not reset the
// failures that mayRenew checks.
func (s *State) Register(now time.Time, asked Membership) error {
	s.expireOne(now, asked.Name)
	if err := s.MayRegister(now, asked.WorkerID); err != nil {
		return err
	}
	kept := s.Members[asked.Name]
	if kept != nil {
		// A process that asks for a different lease may act on either one.
		asked.Lease = max(asked.Lease, kept.Lease)
	}
	if kept == nil || !kept.equal(&asked) {
		set(s.Members, s.change.Members, asked.Name, &asked)
	}
	m := s.live[asked.Name]
	if m == nil {
		m = &liveness{heard: now} // never counted in unheard
		s.live[asked.Name] = m
	}
	s.hear(now, m, asked.Lease)
	return nil
}

// mayRenew returns an error if calls to a member have failed for so long that its lease
// is not renewed. Only a call that gets through changes that.
func (s *State) mayRenew(kept *Membership) error {
	m := s.live[kept.Name]
	if lasted := m.failed.Sub(m.failing); !m.failing.IsZero() && lasted >= s.Unreachable {
		return fmt.Errorf("worker %q at %s %w: no call has succeeded for %v; its lease is not renewed",
			kept.Name, kept.Address, ErrUnreachable, lasted.Round(time.Millisecond))
	}
	return nil
}

// Heartbeat renews the lease of a member. It reports whether it changes anything
// that is stored.
func (s *State) Heartbeat(now time.Time, w WorkerID, draining bool) (changes bool, err error) {
	kept := s.Members[w.Name]
	if kept == nil || kept.WorkerID != w || s.over(now, w.Name) {
		err := fmt.Errorf("worker %q: this incarnation is %w", w.Name, ErrNotMember)
		if s.ended.left(w) {
			err = fmt.Errorf("%w: %w", err, ErrLeft)
		}
		return false, err
	}
	if err := s.mayRenew(kept); err != nil {
		return false, err
	}
	changes = kept.Draining != draining
	if changes {
		next := *kept
		next.Draining = draining
		set(s.Members, s.change.Members, w.Name, &next)
	}
	s.hear(now, s.live[w.Name], kept.Lease)
	return changes, nil
}

func (s *State) hear(now time.Time, m *liveness, lease time.Duration) {
	if m.heard.IsZero() {
		s.unheard--
	}
	if m.heard.Before(now) {
		m.heard = now
	}
	if until := now.Add(lease); m.until.Before(until) {
		m.until = until
	}
}

// Alone reports whether every other member drains. It is true if there is no other
// member.
func (s *State) Alone(now time.Time, name string) bool {
	for other, kept := range s.Members {
		if other != name && !s.draining(kept) && !s.over(now, other) {
			return false
		}
	}
	return true
}

// Leave ends a membership, if there is one. The worker runs no tasks any more.
func (s *State) Leave(w WorkerID) {
	s.ended.add(w, true)
	if kept := s.Members[w.Name]; kept != nil && kept.WorkerID == w {
		s.end(kept)
	}
}

// Expire ends the memberships whose leases have expired, and returns the earliest
// end of the others. Zero means that no lease can expire before a worker registers.
func (s *State) Expire(now time.Time) (next time.Time) {
	for _, name := range sorted(s.Members) {
		if s.expireOne(now, name) {
			continue
		}
		if until := s.live[name].until; !until.IsZero() && (next.IsZero() || until.Before(next)) {
			next = until
		}
	}
	return next
}

func (s *State) expireOne(now time.Time, name string) bool {
	if !s.over(now, name) {
		return false
	}
	s.end(s.Members[name])
	return true
}

// over reports whether the lease of the member with this name has expired.
func (s *State) over(now time.Time, name string) bool {
	m := s.live[name]
	return m != nil && !m.until.IsZero() && !now.Before(m.until)
}

func (s *State) end(kept *Membership) {
	s.ended.add(kept.WorkerID, false)
	if s.live[kept.Name].heard.IsZero() {
		s.unheard--
	}
	delete(s.live, kept.Name)
	set(s.Members, s.change.Members, kept.Name, nil)
}

// Called records whether a worker has answered a call, with whatever answer.
func (s *State) Called(now time.Time, w WorkerID, answered bool) {
	kept := s.Members[w.Name]
	if kept == nil || kept.WorkerID != w {
		return
	}
	m := s.live[w.Name]
	if answered {
		m.failing, m.failed = time.Time{}, time.Time{}
		return
	}
	if m.failing.IsZero() {
		m.failing = now
	}
	m.failed = now
}

// Seen returns when a member was last heard, when its lease expires, and since when
// calls to it fail; zero times for another worker.
func (s *State) Seen(w WorkerID) (heard, until, failing time.Time) {
	if kept := s.Members[w.Name]; kept == nil || kept.WorkerID != w {
		return heard, until, failing
	}
	m := s.live[w.Name]
	return m.heard, m.until, m.failing
}

// Left reports whether a former member has called Leave.
func (s *State) Left(w WorkerID) bool { return s.ended.left(w) }

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

func (e *ended) find(w WorkerID) *endedOne {
	all := e.of[w.Name]
	if i := slices.IndexFunc(all, func(one endedOne) bool { return one.incarnation == w.Incarnation }); i >= 0 {
		return &all[i]
	}
	return nil
}

func (e *ended) has(w WorkerID) bool { return e.find(w) != nil }

func (e *ended) left(w WorkerID) bool {
	one := e.find(w)
	return one != nil && one.left
}

func (e *ended) add(w WorkerID, left bool) {
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

// WorkerID identifies one incarnation of a named worker.
type WorkerID struct {
	Name        string
	Incarnation uint64 // unique to the process and its lease; never 0
}

// Check returns an error if no worker can have this identity. It wraps
// [orchestrator.ErrInvalid].
func (w WorkerID) Check() error {
	if err := identity.CheckName("worker", w.Name); err != nil {
		return err
	}
	if w.Incarnation == 0 {
		return fmt.Errorf("%w: worker %q without an incarnation", orchestrator.ErrInvalid, w.Name)
	}
	return nil
}
