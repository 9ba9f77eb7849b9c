package etcd

// What a member does about one task: a step machine without I/O. The caller reports
// events by the methods of claimState, and calls next for the resulting action.

// phase is the progress of a member with a task.
type phase uint8

const (
	idle     phase = iota // no claim
	claiming              // the claim is being written
	blocked               // the claim cannot be made
	refusing              // the assignment is being deleted unclaimed
	claimed               // the claim was made, the task not started
	starting              // the worker is starting the task
	started               // the worker has answered
	running               // the worker has the task
	stopping              // the worker is stopping the task
	stopped               // the worker does not have the task
	leaving               // the claim is being deleted
)

// action is a result of next. If it has an outcome, the caller reports it to the
// claimState.
type action uint8

const (
	nothing   action = iota
	doClaim          // write a claim for the assignment claimState.basis
	doRefuse         // delete that assignment, with claimState.failure as the reason
	doStart          // start the task on the worker
	doHurry          // cancel that call: its outcome no longer matters
	doConfirm        // write that the task was started; has no outcome
	doStop           // stop the task on the worker
	doLeave          // delete the claim; with claimState.failure, the assignment too
)

// claimState is the member's state of one task. The zero claimState is that of an unknown task.
type claimState struct {
	phase    phase
	assigned int64 // mod revision of the assignment, as last seen; 0: none
	foreign  bool  // the assignment is for another membership
	basis    int64 // the assignment last claimed or deleted
	claim    int64 // create revision of the claim; 0: none
	hurried  bool  // doHurry was returned
	failure  error // why the task is refused
}

func (s *claimState) assign(mod int64, foreign bool) { s.assigned, s.foreign = mod, foreign }

// made reports that the claim was made.
func (s *claimState) made(claim int64) { s.phase, s.claim = claimed, claim }

// missed reports that the assignment of basis is gone, and that there is no claim.
func (s *claimState) missed() { s.phase, s.failure = idle, nil }

// refused reports that the claim cannot be made.
func (s *claimState) refused(reason error) { s.phase, s.failure = blocked, reason }

// answered reports the outcome of doStart. After doHurry, an error is not a failure
// of the worker.
func (s *claimState) answered(err error) {
	s.phase = started
	if !s.hurried {
		s.failure = err
	}
}

// ended reports that the worker does not have the task.
func (s *claimState) ended() { s.phase = stopped }

// left reports that the claim was deleted.
func (s *claimState) left() { s.phase, s.claim, s.hurried, s.failure = idle, 0, false, nil }

// forgotten reports whether the claimState can be deleted.
func (s *claimState) forgotten() bool { return s.phase == idle && s.assigned == 0 }

// next advances the claimState and returns the action that is due. closing is the reason
// not to claim more tasks; nil means that the member is not closing.
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
		s.phase = leaving
		return doLeave
	case starting:
		// Do not stop the task yet: the start may still be on its way, and take
		// effect after the worker has answered that nothing runs.
		if !wanted && !s.hurried {
			s.hurried = true
			return doHurry
		}
	case started:
		if wanted && s.failure == nil && !s.hurried {
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
		s.phase = leaving
		if !wanted {
			s.failure = nil // the assignment is gone, so no one reads a refusal
		}
		if s.failure != nil {
			s.basis = s.assigned // this assignment is deleted with the claim
		}
		return doLeave
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
