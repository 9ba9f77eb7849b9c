package etcd

// What a member does about one task: a step machine without I/O. What happens is
// put into the seat by the methods named after it, and next then says what is
// to be done.

// phase is how far a member is with a task.
type phase uint8

const (
	idle     phase = iota // nothing is claimed
	claiming              // the claim is being written
	blocked               // it cannot be
	refusing              // the assignment is being deleted unclaimed
	claimed               // nothing has been done about the claim yet
	starting              // the worker has been told to start the task
	started               // it has answered
	running               // it has the task
	stopping              // it has been told to stop the task
	stopped               // it has, or never had it
	leaving               // the claim is being deleted
)

// action is what next asks for. Where it has an outcome, that is put into the
// seat when it is known.
type action uint8

const (
	nothing   action = iota
	doClaim          // write a claim on the assignment of seat.basis
	doRefuse         // delete that assignment, for the reason of seat.failure
	doStart          // have the worker start the task
	doHurry          // end that call: its outcome does not matter any more
	doConfirm        // write that the task was started; it has no outcome
	doStop           // have the worker stop the task
	doLeave          // delete the claim; with seat.failure, the assignment too
)

// seat is what a member knows of one task. The zero seat is that of a task it
// never heard of.
type seat struct {
	phase    phase
	assigned int64 // mod revision of the assignment, as the watch showed it last; 0: none
	foreign  bool  // that was made for another membership
	basis    int64 // the assignment that was claimed, or deleted, last
	claim    int64 // create revision of the claim; 0: none
	hurried  bool  // doHurry was asked for
	failure  error // why the task is not taken
}

func (s *seat) assign(mod int64, foreign bool) { s.assigned, s.foreign = mod, foreign }

// made says that a claim is there.
func (s *seat) made(claim int64) { s.phase, s.claim = claimed, claim }

// missed says that the assignment of basis is gone, and that nothing is claimed.
func (s *seat) missed() { s.phase, s.failure = idle, nil }

// refused says that the claim cannot be made.
func (s *seat) refused(reason error) { s.phase, s.failure = blocked, reason }

// answered says what came of doStart. Where that was hurried, an error is no
// failure of the worker's.
func (s *seat) answered(err error) {
	s.phase = started
	if !s.hurried {
		s.failure = err
	}
}

// ended says that the worker does not have the task.
func (s *seat) ended() { s.phase = stopped }

// left says that nothing is claimed any more.
func (s *seat) left() { s.phase, s.claim, s.hurried, s.failure = idle, 0, false, nil }

// forgotten reports whether nothing is left to remember.
func (s *seat) forgotten() bool { return s.phase == idle && s.assigned == 0 }

// next takes the step that is due, and returns what has to be done for it. A
// member that closes claims nothing more, for that reason.
func (s *seat) next(closing error) action {
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
		// To stop it now would be a mistake: the worker may not have heard of it
		// yet, and start it after it has said that nothing runs.
		if !wanted && !s.hurried {
			s.hurried = true
			return doHurry
		}
	case started:
		if wanted && s.failure == nil && !s.hurried {
			s.phase = running
			return doConfirm
		}
		// Whatever came of the start: this makes certain.
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
			s.failure = nil // nobody asks any more
		}
		if s.failure != nil {
			s.basis = s.assigned // which is deleted with the claim
		}
		return doLeave
	}
	return nothing
}

// take is next where nothing is under way. An assignment that was dealt with is
// not taken up again, though the watch may still show it.
func (s *seat) take(closing error) action {
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
