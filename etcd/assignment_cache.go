package etcd

// The communicator's copy of the members, assignments, claims and refusals, and the
// result of a write that follows from it. This file makes no calls to etcd.

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
)

// assignmentCache holds the state of all workers. Only the mirror's goroutine writes
// to it.
type assignmentCache struct {
	layout keys.Layout
	leader string // the leader's key
	epoch  int64  // its create revision

	// mu guards the fields below, and every worker state. It is never held during an
	// external call or a wait.
	mu      sync.Mutex
	workers map[string]*workerState
	led     bool  // the leader's key exists
	over    error // why the cache is no longer valid; nil: valid
}

// workerState is the state of one worker's name.
type workerState struct {
	member int64 // create revision of the member's key; 0: not a member
	lease  int64 // the member's
	rev    int64 // of the last change in this state
	states map[string]taskState
	listed []string      // result of List; nil: not computed yet
	change chan struct{} // closed at the next change
}

// taskState is the state of one task at one worker.
type taskState struct {
	assigned int64     // mod revision of the assigned key; 0: absent
	since    time.Time // when that revision was first seen
	claim    int64     // create revision of the active key; 0: absent
	starting bool      // claimed, but not started yet
	refused  int64     // the mod revision of the assigned key that was refused last
	reason   string    // of that refusal
}

// held reports whether the task may be running there, or may still be started.
func (s taskState) held() bool { return s.assigned != 0 || s.claim != 0 }

func newAssignmentCache(layout keys.Layout, leader string, epoch int64) *assignmentCache {
	return &assignmentCache{layout: layout, leader: leader, epoch: epoch, workers: make(map[string]*workerState)}
}

// kept reports whether the cache needs the value of a key.
func (c *assignmentCache) kept(key string) bool {
	kind, _, _, _ := c.layout.Parse(key)
	return kind == keys.Member || kind == keys.Active || kind == keys.Refused
}

// apply applies changes from the mirror.
func (c *assignmentCache) apply(at mirror.At, changes []mirror.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := make(map[*workerState]bool)
	for _, ch := range changes {
		if ch.Key == c.leader {
			c.led = ch.New != nil && ch.New.Create == c.epoch
			continue
		}
		kind, worker, task, _ := c.layout.Parse(ch.Key)
		switch kind {
		case keys.Member, keys.Assigned, keys.Active, keys.Refused:
		default:
			continue
		}
		s := c.workerState(worker)
		changed[s] = true
		if kind == keys.Member {
			s.member, s.lease = 0, 0
			if ch.New != nil {
				s.member, s.lease = ch.New.Create, decode[memberValue](ch.New.Value).Lease
			}
			continue
		}
		s.take(kind, task, ch.New)
	}
	if !c.led {
		c.stop(fmt.Errorf("%w: leader's key is gone", orchestrator.ErrDeposed))
	}
	for s := range changed {
		s.rev = at.Revision
		s.wake()
	}
}

// take updates the state of a task from the new value of a key.
func (s *workerState) take(kind keys.Kind, task string, kv *mirror.KV) {
	state := s.states[task]
	held := state.held()
	switch {
	case kind == keys.Assigned && kv == nil:
		state.assigned = 0
	case kind == keys.Assigned:
		state.assigned, state.since = kv.Mod, time.Now()
	case kind == keys.Active && kv == nil:
		state.claim, state.starting = 0, false
	case kind == keys.Active:
		state.claim, state.starting = kv.Create, decode[claim](kv.Value).Starting
	case kv == nil:
		state.refused, state.reason = 0, ""
	default:
		r := decode[refusal](kv.Value)
		state.refused, state.reason = r.Assigned, r.Reason
	}
	if state.held() || state.refused != 0 {
		s.states[task] = state
	} else {
		delete(s.states, task)
	}
	if state.held() != held {
		s.listed = nil
	}
}

// workerState returns the state of a worker's name. States are never deleted, so
// there is one for every name seen during this leadership.
func (c *assignmentCache) workerState(worker string) *workerState {
	s := c.workers[worker]
	if s == nil {
		s = &workerState{states: make(map[string]taskState), change: make(chan struct{})}
		c.workers[worker] = s
	}
	return s
}

func (s *workerState) wake() {
	close(s.change)
	s.change = make(chan struct{})
}

// end invalidates the cache.
func (c *assignmentCache) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop(cause)
}

// stop invalidates the cache. Only the first cause counts. The caller holds mu.
func (c *assignmentCache) stop(cause error) {
	if c.over != nil {
		return
	}
	c.over = cause
	for _, s := range c.workers {
		s.wake()
	}
}

// ended returns why the cache is no longer valid, or nil.
func (c *assignmentCache) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// view is a call's view of its worker.
type view struct {
	member int64
	lease  int64
	rev    int64
	states map[string]taskState // of the requested tasks
	change <-chan struct{}      // closed at the next change
}

// look returns the state of a worker and of the given tasks.
func (c *assignmentCache) look(worker string, tasks []string) (view, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		return view{}, c.over
	}
	s := c.workerState(worker)
	v := view{member: s.member, lease: s.lease, rev: s.rev, states: make(map[string]taskState, len(tasks)), change: s.change}
	for _, task := range tasks {
		v.states[task] = s.states[task]
	}
	return v, nil
}

// list returns the tasks that a worker holds, sorted. It returns the very same slice
// while they do not change.
func (c *assignmentCache) list(w WorkerID) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		return nil, c.over
	}
	s := c.workerState(w.Name)
	if s.member != w.Incarnation {
		return nil, gone(w)
	}
	if s.listed == nil {
		s.listed = make([]string, 0, len(s.states))
		for task, state := range s.states {
			if state.held() {
				s.listed = append(s.listed, task)
			}
		}
		slices.Sort(s.listed)
	}
	return s.listed, nil
}

// unclaimed returns the unclaimed tasks that were assigned to a worker before the
// given time, with the revisions of their assignments.
func (c *assignmentCache) unclaimed(worker string, before time.Time) map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var tasks map[string]int64
	for task, state := range c.workerState(worker).states {
		if state.assigned == 0 || state.claim != 0 || state.since.After(before) {
			continue
		}
		if tasks == nil {
			tasks = make(map[string]int64)
		}
		tasks[task] = state.assigned
	}
	return tasks
}

// resultBefore reports whether a write has its result before it is made, and which. The
// state is no older than the term, and only this leader can have assigned anything
// since.
//
// A write that seems to be done already is made again, because only a write proves
// that the leader still leads.
func resultBefore(op orchestrator.Op, s taskState) (settled bool, err error) {
	switch {
	case op == orchestrator.OpRemove:
		return false, nil
	case op != orchestrator.OpAdd:
		return true, fmt.Errorf("%w: %v is neither Add nor Remove", orchestrator.ErrRejected, op)
	case s.claim != 0 && s.assigned == 0:
		return true, fmt.Errorf("%w: task has not stopped", orchestrator.ErrStopping)
	}
	return false, nil
}

// resultAfter reports whether a write has its result, and which, from a state as of the
// revision seen. The write was made at the revision made. found is the claim that a
// Remove found when it was made, 0 for none.
//
// A state older than the write may miss a claim made just before, and may show an
// assignment deleted just before. A Remove waits for both, so that its result is
// true and List agrees.
func resultAfter(op orchestrator.Op, made, found, seen int64, s taskState) (settled bool, err error) {
	if op == orchestrator.OpRemove {
		// An assignment or claim made after the write is not the one to remove.
		return seen >= found && (s.assigned == 0 || s.assigned > made) && (s.claim == 0 || s.claim > made), nil
	}
	switch {
	case seen < made:
		return false, nil
	case s.assigned != 0 && s.claim != 0:
		return !s.starting, nil
	case s.assigned != 0:
		return false, nil
	case s.claim != 0:
		return true, fmt.Errorf("%w: task was taken away again", orchestrator.ErrStopping)
	case s.refused == made:
		return true, fmt.Errorf("%w: %s", orchestrator.ErrRejected, s.reason)
	}
	return true, errUnclaimed
}

// errUnclaimed is the result of an Add whose assignment is gone and was never
// claimed.
var errUnclaimed = fmt.Errorf("%w: not claimed in time, or worker gone", orchestrator.ErrRejected)

// resultAtEnd returns the result of a write that was made, but had no result by the
// end of its call.
func resultAtEnd(op orchestrator.Op, task string, cause error) error {
	if op == orchestrator.OpRemove {
		return fmt.Errorf("%w: task %s has not stopped", orchestrator.ErrStopping, task)
	}
	return fmt.Errorf("task %s has not started: %w", task, cause)
}

// resultOfError returns the result of a write whose transaction failed. A missing lease
// means certainly not done, because etcd checks the lease before it changes
// anything.
func resultOfError(w WorkerID, err error) error {
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return gone(w)
	}
	return err
}
