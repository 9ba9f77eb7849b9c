package simulator

// What a leader may conclude from what it was told, by the rules of the
// contract and independently of the orchestrator: who is silent, and what those
// hold.

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// massLossHold is how long a mass loss keeps workers from being lost.
const massLossHold = 5 * time.Minute

// mind is what a leader knows.
type mind struct {
	seats   map[string]*seat
	parted  map[string]*seat // the last one of each name, also when it has no seat any more
	started bool             // there was a term with workers
	// seen are the tasks that some worker has listed, or has acknowledged the start
	// of; sure those of them that were expected all the time since.
	seen, sure map[string]bool
	massSince  time.Time
	// massBegan and massEnded are when it was last found that there is a mass
	// loss, and that there is none any more; massEnded is zero while there is one.
	massBegan, massEnded time.Time
}

// seat is what it knows of a worker, from when that became a member until it
// ceases to be.
type seat struct {
	place
	founder  bool
	heard    bool
	since    time.Time // its last answer, or else when it could first have been
	asked    time.Time // for that answer
	missed   bool      // a call to it has failed since, or taken too long
	patience bool      // it has answered the last term that waited for it, or is new
	failed   bool      // a List of this seat's has, or had no answer in time
	answered uint64    // the term of that answer
	state    orchestrator.State

	told map[string]bool // its last answer, and what was acknowledged since
	may  map[string]bool // what it may run
	sent map[string]bool // what of that was sent since its last answer
	ever map[string]bool // what it has listed or was sent since it became a member
	seen map[string]bool // that of the mind
	late *call           // an answer that the next term will take in
	// grudges is what is certainly held against it, by task, and tainted what it has
	// failed to start and was not seen to run since. closed says that it is avoided as
	// a whole, until the term closedUntil.
	grudges     map[string]grudge
	tainted     map[string]bool
	closed      bool
	closedUntil uint64
}

// begin takes over who is a member, and the answers to List that came after their
// term had gone on. busy says whether a call to a worker is under way.
func (m *mind) begin(v view, at time.Time, busy func(worker string) bool) {
	seats := make(map[string]*seat, len(v.seats))
	for _, p := range v.seats {
		s := m.seats[p.name]
		if s == nil && busy(p.name) {
			s = m.parted[p.name]
		}
		if s == nil || s.serial != p.serial {
			s = m.succeed(s, at)
		}
		s.place = p
		seats[p.name] = s
		if s.late != nil && s.late.term.Number > s.answered {
			s.hear(s.late)
		}
		s.late = nil
	}
	if m.parted == nil {
		m.parted = make(map[string]*seat)
	}
	maps.Copy(m.parted, m.seats)
	m.seats = seats
	m.started = m.started || len(seats) > 0
}

// succeed returns a new seat in the place of an old one, if there was one. What
// was started there last may be with the new one: that may have been there by
// then, or the call may yet reach it.
func (m *mind) succeed(old *seat, at time.Time) *seat {
	s := &seat{
		founder: !m.started, since: at, patience: true,
		told: make(map[string]bool), may: make(map[string]bool), sent: make(map[string]bool),
		ever: make(map[string]bool), seen: m.seen, grudges: make(map[string]grudge), tainted: make(map[string]bool),
	}
	if old != nil && old.state != orchestrator.Lost {
		s.may, s.sent = maps.Clone(old.sent), maps.Clone(old.sent)
		s.ever = maps.Clone(old.sent)
	}
	return s
}

// hear takes in an answer to List.
func (s *seat) hear(c *call) {
	c.heard = true
	s.failed, s.patience = false, true
	s.heard, s.missed, s.asked, s.since, s.answered, s.state = true, false, c.sent, c.returned, c.term.Number, orchestrator.Answering
	s.told = make(map[string]bool, len(c.tasks))
	for _, task := range c.tasks {
		s.told[task], s.ever[task], s.seen[task] = true, true, true
	}
	s.may = maps.Clone(s.told)
	clear(s.sent)
}

// acknowledge takes in the answer to a write for which its term has waited. One
// that comes later says nothing: what came of the write is unknown until the
// worker's next answer to List.
func (s *seat) acknowledge(c *call) {
	switch {
	case c.err == nil && c.op == orchestrator.OpAdd:
		s.start(c.task)
		s.told[c.task] = true
	case c.err == nil:
		s.stop(c.task)
		delete(s.told, c.task)
	case c.op == orchestrator.OpAdd && certainlyNot(c.err) && !s.told[c.task]:
		s.stop(c.task)
	}
}

// start has the seat's worker run a task, perhaps.
func (s *seat) start(task string) { s.may[task], s.sent[task], s.ever[task] = true, true, true }

// orphan takes note that what a worker may have run is nobody's any more.
func (l *leader) orphan(s *seat) {
	for task := range s.ever {
		l.orphans[task] = true
	}
}

// stop has it run a task no more.
func (s *seat) stop(task string) {
	delete(s.may, task)
	delete(s.sent, task)
}

// certainlyNot says whether an error means that nothing was done: of several
// meanings the first counts.
func certainlyNot(err error) bool {
	return errors.Is(err, orchestrator.ErrRejected) && !errors.Is(err, orchestrator.ErrStopping) &&
		!errors.Is(err, orchestrator.ErrDeposed) || errors.Is(err, orchestrator.ErrStale)
}

// holding counts the seats in a state that hold a task, but for one.
func (m *mind) holding(task string, state orchestrator.State, but string) int {
	n := 0
	for _, s := range m.seats {
		if s.name != but && s.state == state && s.may[task] {
			n++
		}
	}
	return n
}

// unheard returns a founder that may run anything.
func (m *mind) unheard() *seat {
	for _, name := range m.names() {
		if s := m.seats[name]; s.founder && !s.heard && s.state == orchestrator.Silent {
			return s
		}
	}
	return nil
}

func (m *mind) names() []string { return slices.Sorted(maps.Keys(m.seats)) }

// mayLose says why none, or not this worker, may be given up now; or "" if it
// may.
func (m *mind) mayLose(s *seat, now time.Time, p *setup, mass bool) string {
	switch {
	case p.hold:
		return "silent workers are held until they are removed"
	case now.Sub(s.since) < p.Grace:
		return "its grace period is not over, it was heard " + now.Sub(s.since).String() + " ago"
	case !s.missed:
		return "no call to it has failed since it was heard"
	case mass && p.Grace > 0 && now.Sub(m.massSince) < massLossHold:
		return "too many are silent"
	}
	return ""
}

// massLoss takes note of how many are silent, and says whether these are too
// many.
func (m *mind) massLoss(now time.Time, p *setup) bool {
	members, silent := 0, 0
	for _, s := range m.seats {
		if s.state != orchestrator.Lost {
			members++
		}
		if s.state == orchestrator.Silent {
			silent++
		}
	}
	mass := members >= 3 && float64(silent) > p.maxLoss*float64(members)
	switch {
	case mass && m.massSince.IsZero():
		m.massSince = now
	case silent == 0:
		m.massSince = time.Time{}
	}
	switch {
	case mass && (m.massBegan.IsZero() || !m.massEnded.IsZero()):
		m.massBegan, m.massEnded = now, time.Time{}
	case !mass && m.massEnded.IsZero():
		m.massEnded = now
	}
	return mass
}

// holdEnds returns when a mass loss keeps nobody from being lost any more, at the
// latest, as far as that can be told now: after its time, or when for a timeout
// there was none.
func (m *mind) holdEnds(p *setup) time.Time {
	end := m.massBegan
	if p.Grace == 0 || end.IsZero() {
		return end
	}
	end = end.Add(massLossHold)
	if !m.massEnded.IsZero() && m.massEnded.Add(p.Timeout).Before(end) {
		end = m.massEnded.Add(p.Timeout)
	}
	return end
}

// mustLose says whether a silent worker has to be given up now.
func (m *mind) mustLose(s *seat, now time.Time, p *setup) bool {
	return s.state == orchestrator.Silent && s.failed && !p.hold &&
		now.Sub(s.since) >= p.Grace && !now.Before(m.holdEnds(p))
}
