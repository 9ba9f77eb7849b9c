package etcd

// What the communicator knows: the members, and what is assigned, claimed and
// refused, as the mirror delivered it. No call to etcd is made here.

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
)

// board is the state of all workers. One goroutine, the mirror's, writes it.
type board struct {
	layout keys.Layout
	leader string // the key of the leadership that the board belongs to
	epoch  int64  // its create revision

	// mu guards what follows, and every slot. It is never held over a call to
	// the outside, nor over a wait.
	mu    sync.Mutex
	slots map[string]*slot
	led   bool  // the leader's key is there
	over  error // why nothing further is delivered, or must be believed; nil: it goes on
}

// slot is what is known of one worker's name.
type slot struct {
	member int64 // create revision of the member's key; 0: no member
	lease  int64 // of the member
	rev    int64 // of the last change here
	spots  map[string]spot
	listed []string      // what List returns; nil: to be made anew
	change chan struct{} // closed at the next change
}

// spot is what is known of one task at one worker.
type spot struct {
	assigned int64     // mod revision of the assigned key; 0: absent
	since    time.Time // when that revision was seen first
	claim    int64     // create revision of the active key; 0: absent
	starting bool      // what is claimed has not been started yet
	refused  int64     // the mod revision of the assigned key that the last refusal was about
	reason   string    // of that refusal
}

// held reports whether the task may be running there, or may yet be started.
func (s spot) held() bool { return s.assigned != 0 || s.claim != 0 }

func newBoard(layout keys.Layout, leader string, epoch int64) *board {
	return &board{layout: layout, leader: leader, epoch: epoch, slots: make(map[string]*slot)}
}

// kept says whose values the board needs of the mirror.
func (b *board) kept(key string) bool {
	kind, _, _, _ := b.layout.Parse(key)
	return kind == keys.Member || kind == keys.Active || kind == keys.Refused
}

// apply takes in what the mirror delivers.
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
		b.stop(fmt.Errorf("%w: the leader's key is gone", orchestrator.ErrDeposed))
	}
	for s := range changed {
		s.rev = at.Revision
		s.wake()
	}
}

// take changes the spot of a task to what a key says now.
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

// slot returns the slot of a worker's name. Slots are never given up: there are
// as many as names were ever seen while this leader leads.
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

// end notes why nothing further will be delivered.
func (b *board) end(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop(cause)
}

// stop is end with the lock held. The first cause counts.
func (b *board) stop(cause error) {
	if b.over != nil {
		return
	}
	b.over = cause
	for _, s := range b.slots {
		s.wake()
	}
}

// ended returns why nothing that the board says must be believed any more.
func (b *board) ended() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over
}

// view is what a call sees of its worker.
type view struct {
	member int64
	lease  int64
	rev    int64
	spots  map[string]spot // of the tasks asked for
	change <-chan struct{} // closed when it has changed
}

// look returns what is known of a worker and of some tasks there.
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

// list returns what a worker holds, sorted, and the very same slice while that
// does not change.
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

// unclaimed returns the tasks that were assigned to a worker longer ago than
// that and have not been claimed, with their revisions.
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
