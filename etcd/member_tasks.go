package etcd

// The tasks of one membership. claimState is a step machine without I/O: the watch,
// the worker and the writer report events by its methods, and next returns the action
// that is due. taskRunner carries out the actions.

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
	"github.com/f8949c05/orchestrator/internal/backoff"
	"github.com/f8949c05/orchestrator/worker"
)

// phase is the progress of a member with a task.
type phase uint8

const (
	idle      phase = iota // no claim
	claiming               // the claim is being written
	blocked                // the claim cannot be made
	refusing               // the assignment is being deleted unclaimed
	claimed                // the claim was made, the task not started
	starting               // the worker is starting the task
	started                // the worker has answered
	running                // the worker has the task
	stopping               // the worker is stopping the task
	stopped                // the worker does not have the task
	releasing              // the claim is being deleted
)

// action is a result of next. If it has an outcome, the caller reports it to the
// claimState.
type action uint8

const (
	nothing   action = iota
	doClaim          // write a claim for the assignment claimState.basis
	doRefuse         // delete that assignment, with claimState.failure as the reason
	doStart          // start the task on the worker
	doCancel         // cancel that call: its outcome no longer matters
	doConfirm        // write that the task was started; has no outcome
	doStop           // stop the task on the worker
	doRelease        // delete the claim; with claimState.failure, the assignment too
)

// claimState is the member's state of one task. The zero claimState is that of an
// unknown task.
type claimState struct {
	phase     phase
	assigned  int64 // mod revision of the assignment, as last seen; 0: none
	foreign   bool  // the assignment is for another membership
	basis     int64 // the assignment last claimed or deleted
	claim     int64 // create revision of the claim; 0: none
	cancelled bool  // doCancel was returned
	failure   error // why the task is refused
}

func (s *claimState) assign(mod int64, foreign bool) { s.assigned, s.foreign = mod, foreign }

// made reports that the claim was made.
func (s *claimState) made(claim int64) { s.phase, s.claim = claimed, claim }

// missed reports that the assignment of basis is gone, and that there is no claim.
func (s *claimState) missed() { s.phase, s.failure = idle, nil }

// refused reports that the claim cannot be made.
func (s *claimState) refused(reason error) { s.phase, s.failure = blocked, reason }

// answered reports the outcome of doStart. After doCancel, an error is not a failure
// of the worker.
func (s *claimState) answered(err error) {
	s.phase = started
	if !s.cancelled {
		s.failure = err
	}
}

// left reports that the task of a claim has asked to run elsewhere, and has stopped.
func (s *claimState) left(claim int64, reason error) {
	if s.phase == running && s.claim == claim {
		s.phase, s.failure = stopped, reason
	}
}

// ended reports that the worker does not have the task.
func (s *claimState) ended() { s.phase = stopped }

// released reports that the claim was deleted.
func (s *claimState) released() { s.phase, s.claim, s.cancelled, s.failure = idle, 0, false, nil }

// forgotten reports whether the claimState can be deleted.
func (s *claimState) forgotten() bool { return s.phase == idle && s.assigned == 0 }

// next advances the claimState and returns the action that is due. closing is the
// reason not to claim more tasks; nil means that the member is not closing.
func (s *claimState) next(closing error) action {
	wanted := s.assigned != 0 && !s.foreign
	switch s.phase {
	case idle:
		return s.take(closing)
	case blocked:
		s.phase = refusing
		return doRefuse
	case claimed:
		if wanted {
			s.phase = starting
			return doStart
		}
		s.phase = releasing
		return doRelease
	case starting:
		// Do not stop the task yet: the start may still be on its way, and take
		// effect after the worker has answered that nothing runs.
		if !wanted && !s.cancelled {
			s.cancelled = true
			return doCancel
		}
	case started:
		if wanted && s.failure == nil && !s.cancelled {
			s.phase = running
			return doConfirm
		}
		// Stop the task whatever the outcome of the start, to be certain.
		s.phase = stopping
		return doStop
	case running:
		if !wanted {
			s.phase = stopping
			return doStop
		}
	case stopped:
		s.phase = releasing
		if !wanted {
			s.failure = nil // the assignment is gone, so no one reads a refusal
		}
		if s.failure != nil {
			s.basis = s.assigned // this assignment is deleted with the claim
		}
		return doRelease
	}
	return nothing
}

// take is next for phase idle. It ignores an assignment that was dealt with, even if
// the watch still shows it.
func (s *claimState) take(closing error) action {
	if s.assigned == 0 || s.assigned == s.basis {
		return nothing
	}
	s.basis = s.assigned
	if s.foreign || closing != nil {
		s.phase, s.failure = refusing, closing
		return doRefuse
	}
	s.phase = claiming
	return doClaim
}

// taskRunner runs the tasks of one membership. All that it starts ends with ctx.
type taskRunner struct {
	id      identity
	worker  *worker.Worker[string]
	writer  *writer
	reader  reader
	log     *slog.Logger
	ctx     context.Context // the membership's
	started sync.WaitGroup  // its goroutines

	// mu guards the fields below. It is never held during an external call or a
	// wait.
	mu      sync.Mutex
	tasks   map[string]*runningTask
	claims  int           // tasks that are claimed
	closing error         // why no more tasks are claimed; nil: not closing
	empty   chan struct{} // closed when the taskRunner is closing and has no tasks
}

// reader reads the contents of tasks.
type reader interface {
	// read returns the content of a task, no older than the call. It fails only if
	// ctx ends.
	read(ctx context.Context, task string) (content, error)
	// follow passes every content newer than was to the worker, until ctx ends.
	follow(ctx context.Context, task string, was content)
}

// runningTask is the state of one task.
type runningTask struct {
	claimState
	cancelStart context.CancelFunc // cancels the call that starts the task
	unfollow    context.CancelFunc // stops following the task's content
}

// watched applies changes of the member's assignments.
func (r *taskRunner) watched(_ mirror.At, changes []mirror.Change) {
	for _, c := range changes {
		kind, _, task, _ := r.id.layout.Parse(c.Key)
		if kind != keys.Assigned {
			continue
		}
		r.event(task, func(t *runningTask) {
			if c.New == nil {
				t.assign(0, false)
			} else {
				t.assign(c.New.Mod, decode[assignment](c.New.Value).Member != r.id.member)
			}
		})
	}
}

// answered applies the result of a claimOp that the writer has written.
func (r *taskRunner) answered(c claimOp, result claimResult) {
	if c.reason != nil {
		r.log.Info("task refused", "worker", r.id.name, "task", c.task, "reason", c.reason)
	}
	r.event(c.task, func(t *runningTask) {
		switch {
		case c.kind == doClaim && result.claim != 0:
			t.made(result.claim)
			r.claims++
		case c.kind == doClaim && result.blocked != nil:
			t.refused(result.blocked)
		case c.kind == doClaim, c.kind == doRefuse:
			t.missed()
		case c.kind == doRelease:
			t.released()
			r.claims--
		}
	})
}

// event applies an event to a task, and carries out the action that results.
func (r *taskRunner) event(task string, happened func(*runningTask)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tasks[task]
	if t == nil {
		t = &runningTask{}
		r.tasks[task] = t
	}
	happened(t)
	r.do(task, t)
	if t.forgotten() {
		delete(r.tasks, task)
	}
	r.signalEmpty()
}

// do carries out the task's next action without waiting. The caller holds mu.
func (r *taskRunner) do(task string, t *runningTask) {
	switch a := t.next(r.closing); a {
	case nothing:
	case doCancel:
		t.cancelStart()
	case doStart:
		r.start(task, t)
	case doStop:
		t.unfollow()
		r.started.Go(func() { r.stop(task) })
	default:
		if a == doRelease && t.unfollow != nil {
			t.unfollow()
		}
		r.writer.add(claimOp{kind: a, task: task, basis: t.basis, claim: t.claim, reason: t.failure})
	}
}

// start reads the content of a claimed task and starts the task on the worker.
func (r *taskRunner) start(task string, t *runningTask) {
	ctx, cancelStart := context.WithCancel(r.ctx)
	following, unfollow := context.WithCancel(r.ctx)
	t.cancelStart, t.unfollow = cancelStart, unfollow
	claim := t.claim
	r.started.Go(func() {
		defer cancelStart()
		c, err := r.reader.read(ctx, task)
		if err == nil {
			r.started.Go(func() { r.reader.follow(following, task, c) })
			err = r.worker.AddWith(ctx, task, worker.Grant{
				Content: c.value, Version: c.version, Token: uint64(claim), Scope: r.id.cluster,
			})
		}
		if err == nil {
			r.log.Info("task started", "worker", r.id.name, "task", task)
		}
		r.event(task, func(t *runningTask) { t.answered(err) })
		if why := r.worker.Rescheduled(following, task); why != nil {
			r.event(task, func(t *runningTask) { t.left(claim, why) })
		}
	})
}

// stop stops a task on the worker. It returns when the task has stopped, or when the
// membership ends, which stops all tasks too.
func (r *taskRunner) stop(task string) {
	for r.ctx.Err() == nil {
		err := r.worker.Remove(r.ctx, task)
		if err == nil {
			r.log.Info("task stopped", "worker", r.id.name, "task", task)
			r.event(task, func(t *runningTask) { t.ended() })
			return
		}
		r.log.Debug("task has not stopped, retrying", "worker", r.id.name, "task", task, "err", err)
		backoff.Sleep(r.ctx, 100*time.Millisecond)
	}
}

// load returns the number of claimed tasks.
func (r *taskRunner) load() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.claims
}

// close makes the taskRunner claim no more tasks. The channel that it returns is
// closed when no task is left.
func (r *taskRunner) close(reason error) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closing = reason
	r.signalEmpty()
	return r.empty
}

// signalEmpty closes empty if the taskRunner is closing and has no tasks. The caller
// holds mu.
func (r *taskRunner) signalEmpty() {
	if r.closing == nil || len(r.tasks) > 0 {
		return
	}
	select {
	case <-r.empty:
	default:
		close(r.empty)
	}
}
