package etcd

// The communicator's copy of the members, assignments, claims and refusals, as the
// mirror delivers them. This file makes no calls to etcd.

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
)

// board is the state of all workers. Only the mirror's goroutine writes it.
type board struct {
	layout keys.Layout
	leader string // the leader's key
	epoch  int64  // its create revision

	// mu guards the fields below, and every slot. It is never held during an
	// external call or a wait.
	mu    sync.Mutex
	slots map[string]*slot
	led   bool  // the leader's key exists
	over  error // why the board is no longer valid; nil: valid
}

// slot is the state of one worker's name.
type slot struct {
	member int64 // create revision of the member's key; 0: not a member
	lease  int64 // the member's
	rev    int64 // of the last change in this slot
	spots  map[string]spot
	listed []string      // result of List; nil: not computed yet
	change chan struct{} // closed at the next change
}

// spot is the state of one task at one worker.
type spot struct {
	assigned int64     // mod revision of the assigned key; 0: absent
	since    time.Time // when that revision was first seen
	claim    int64     // create revision of the active key; 0: absent
	starting bool      // claimed, but not started yet
	refused  int64     // the mod revision of the assigned key that was refused last
	reason   string    // of that refusal
}

// held reports whether the task may be running there, or may still be started.
func (s spot) held() bool { return s.assigned != 0 || s.claim != 0 }

func newBoard(layout keys.Layout, leader string, epoch int64) *board {
	return &board{layout: layout, leader: leader, epoch: epoch, slots: make(map[string]*slot)}
}

// kept reports whether the board needs the value of a key.
func (b *board) kept(key string) bool {
	kind, _, _, _ := b.layout.Parse(key)
	return kind == keys.Member || kind == keys.Active || kind == keys.Refused
}

// apply applies changes from the mirror.
func (b *board) apply(at mirror.At, changes []mirror.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	changed := make(map[*slot]bool)
	for _, c := range changes {
		if c.Key == b.leader {
			b.led = c.New != nil && c.New.Create == b.epoch
			continue
		}
		kind, worker, task, _ := b.layout.Parse(c.Key)
		switch kind {
		case keys.Member, keys.Assigned, keys.Active, keys.Refused:
		default:
			continue
		}
		s := b.slot(worker)
		changed[s] = true
		if kind == keys.Member {
			s.member, s.lease = 0, 0
			if c.New != nil {
				s.member, s.lease = c.New.Create, decode[memberValue](c.New.Value).Lease
			}
			continue
		}
		s.take(kind, task, c.New)
	}
	if !b.led {
		b.stop(fmt.Errorf("%w: leader's key is gone", orchestrator.ErrDeposed))
	}
	for s := range changed {
		s.rev = at.Revision
		s.wake()
	}
}

// take updates the spot of a task from the new value of a key.
func (s *slot) take(kind keys.Kind, task string, kv *mirror.KV) {
	spot := s.spots[task]
	held := spot.held()
	switch {
	case kind == keys.Assigned && kv == nil:
		spot.assigned = 0
	case kind == keys.Assigned:
		spot.assigned, spot.since = kv.Mod, time.Now()
	case kind == keys.Active && kv == nil:
		spot.claim, spot.starting = 0, false
	case kind == keys.Active:
		spot.claim, spot.starting = kv.Create, decode[claim](kv.Value).Starting
	case kv == nil:
		spot.refused, spot.reason = 0, ""
	default:
		r := decode[refusal](kv.Value)
		spot.refused, spot.reason = r.Assigned, r.Reason
	}
	if spot.held() || spot.refused != 0 {
		s.spots[task] = spot
	} else {
		delete(s.spots, task)
	}
	if spot.held() != held {
		s.listed = nil
	}
}

// slot returns the slot of a worker's name. Slots are never deleted, so there is one
// for every name seen during this leadership.
func (b *board) slot(worker string) *slot {
	s := b.slots[worker]
	if s == nil {
		s = &slot{spots: make(map[string]spot), change: make(chan struct{})}
		b.slots[worker] = s
	}
	return s
}

func (s *slot) wake() {
	close(s.change)
	s.change = make(chan struct{})
}

// end invalidates the board.
func (b *board) end(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop(cause)
}

// stop invalidates the board. Only the first cause counts. The caller holds mu.
func (b *board) stop(cause error) {
	if b.over != nil {
		return
	}
	b.over = cause
	for _, s := range b.slots {
		s.wake()
	}
}

// ended returns why the board is no longer valid, or nil.
func (b *board) ended() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over
}

// view is a call's view of its worker.
type view struct {
	member int64
	lease  int64
	rev    int64
	spots  map[string]spot // of the requested tasks
	change <-chan struct{} // closed at the next change
}

// look returns the state of a worker and of the given tasks.
func (b *board) look(worker string, tasks []string) (view, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over != nil {
		return view{}, b.over
	}
	s := b.slot(worker)
	v := view{member: s.member, lease: s.lease, rev: s.rev, spots: make(map[string]spot, len(tasks)), change: s.change}
	for _, task := range tasks {
		v.spots[task] = s.spots[task]
	}
	return v, nil
}

// list returns the tasks that a worker holds, sorted. It returns the very same slice
// while they do not change.
func (b *board) list(w Worker) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over != nil {
		return nil, b.over
	}
	s := b.slot(w.Name)
	if s.member != w.Incarnation {
		return nil, gone(w)
	}
	if s.listed == nil {
		s.listed = make([]string, 0, len(s.spots))
		for task, spot := range s.spots {
			if spot.held() {
				s.listed = append(s.listed, task)
			}
		}
		slices.Sort(s.listed)
	}
	return s.listed, nil
}

// unclaimed returns the unclaimed tasks that were assigned to a worker before the
// given time, with the revisions of their assignments.
func (b *board) unclaimed(worker string, before time.Time) map[string]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	var tasks map[string]int64
	for task, spot := range b.slot(worker).spots {
		if spot.assigned == 0 || spot.claim != 0 || spot.since.After(before) {
			continue
		}
		if tasks == nil {
			tasks = make(map[string]int64)
		}
		tasks[task] = spot.assigned
	}
	return tasks
}
