package history

import (
	"iter"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// View is what a ring had at one moment. It does not change, and its methods are safe for
// concurrent use. A view that is kept keeps its terms in memory.
type View struct {
	ring     *Ring
	terms    []*Term // the oldest first
	quiet    Quiet
	stripped int
}

// Counts says how much a view holds.
type Counts struct {
	// Terms counts the recorded terms, and Quiet those merged between and after them.
	Terms int `json:"terms"`
	Quiet int `json:"quiet"`
	// Changes and Events count those that are kept.
	Changes int `json:"changes"`
	Events  int `json:"events"`
	// Since is the start of the first term; zero without one.
	Since time.Time `json:"since,omitzero"`
}

// Counts returns how much the view holds. It takes a step for each term.
func (v *View) Counts() Counts {
	c := Counts{Terms: len(v.terms), Quiet: v.quiet.Terms}
	for i, t := range v.terms {
		c.Changes += len(t.Changes)
		c.Events += len(t.Events)
		if i > 0 {
			c.Quiet += t.Quiet.Terms
		}
	}
	if len(v.terms) > 0 {
		c.Since = v.terms[0].Stats.Start
	}
	return c
}

// Last returns the last term, which may be quiet, and its start. They are zero before the
// first term.
func (v *View) Last() (orchestrator.Term, time.Time) {
	if v.quiet.Terms > 0 {
		return v.quiet.Last, v.quiet.LastStart
	}
	if len(v.terms) == 0 {
		return orchestrator.Term{}, time.Time{}
	}
	s := &v.terms[len(v.terms)-1].Stats
	return s.Term, s.Start
}

// Terms yields the recorded terms before a term, the newest first, each with the quiet
// terms that followed it. The zero term stands for the end of the history. Terms yields
// nothing if the view does not have the term.
func (v *View) Terms(before orchestrator.Term) iter.Seq2[*Term, Quiet] {
	return func(yield func(*Term, Quiet) bool) {
		end := len(v.terms)
		if before != (orchestrator.Term{}) {
			end = v.index(before)
		}
		for i := end - 1; i >= 0; i-- {
			if !yield(v.terms[i], v.followed(i)) {
				return
			}
		}
	}
}

// Term returns a recorded term and the quiet terms that followed it. If the epoch is zero,
// it is the newest term with the number. Term returns false if the term was quiet or is not
// kept.
func (v *View) Term(id orchestrator.Term) (t *Term, followed Quiet, ok bool) {
	i := v.index(id)
	if i < 0 {
		return nil, Quiet{}, false
	}
	return v.terms[i], v.followed(i), true
}

// index returns the index of a term, or -1. A zero epoch stands for any.
func (v *View) index(id orchestrator.Term) int {
	for i, t := range slices.Backward(v.terms) {
		if is := t.Stats.Term; is == id || id.Epoch == 0 && is.Number == id.Number {
			return i
		}
	}
	return -1
}

// followed returns the quiet terms after the term at an index.
func (v *View) followed(i int) Quiet {
	if i+1 < len(v.terms) {
		return v.terms[i+1].Quiet
	}
	return v.quiet
}

// Filter selects changes. The zero value selects all of them.
type Filter struct {
	// Task and Worker are names, or nil. A change concerns a worker that it names as From,
	// To or Was.
	Task, Worker *string
	// Reason and Outcome are values of a change, or empty.
	Reason  orchestrator.Reason
	Outcome orchestrator.Outcome
	// Since excludes the terms that began earlier, and Newer those up to it.
	Since time.Time
	Newer orchestrator.Term
}

// normal returns the filter with names as the ring has them.
func (f Filter) normal() Filter {
	if f.Task != nil {
		f.Task = new(Printable(*f.Task))
	}
	if f.Worker != nil {
		f.Worker = new(Printable(*f.Worker))
	}
	return f
}

func (f *Filter) selects(c *Change) bool {
	return (f.Task == nil || c.Task == *f.Task) &&
		(f.Worker == nil || concerns(c, *f.Worker)) &&
		(f.Reason == "" || c.Kind.Reason == f.Reason) &&
		(f.Outcome == "" || c.Outcome == f.Outcome)
}

// concerns reports whether a change names a worker.
func concerns(c *Change, worker string) bool {
	return c.Kind.Op != orchestrator.Start && c.From == worker ||
		c.Kind.Op != orchestrator.Stop && c.To == worker ||
		hasWas(c.Kind) && c.Was == worker
}

// hasWas reports whether Was names a worker in a change of a kind.
func hasWas(k orchestrator.ChangeKind) bool {
	return k.Reason == orchestrator.ReasonLost || k.Reason == orchestrator.ReasonVanished
}

// Position is the place of a change in the history: its term, and its index in
// Term.Changes.
type Position struct {
	Term  orchestrator.Term `json:"term"`
	Index int               `json:"index"`
}

// Changes yields the changes that a filter selects, the newest first. It takes a step for
// each change that the view holds, at most.
func (v *View) Changes(f Filter) iter.Seq2[Position, *Change] {
	f = f.normal()
	return func(yield func(Position, *Change) bool) {
		for _, t := range slices.Backward(v.terms[v.stripped:]) {
			if t.Stats.Start.Before(f.Since) || t.Stats.Term.Compare(f.Newer) <= 0 {
				return
			}
			for i := range slices.Backward(t.Changes) {
				if c := &t.Changes[i]; f.selects(c) && !yield(Position{t.Stats.Term, i}, c) {
					return
				}
			}
		}
	}
}

// Repeated is a change, and how often it was made before without success in between.
type Repeated struct {
	// Change is the last one, and At its position.
	Change *Change  `json:"change"`
	At     Position `json:"at"`
	// Times counts it and those before, and First is the term of the earliest.
	Times int               `json:"times"`
	First orchestrator.Term `json:"first"`
}

// Repeated returns the changes that a filter selects, the newest first and at most limit.
// Changes of one task with the same kind, workers and outcome are one row, if no change
// of this task with outcome done is between them. The rows begin after the one at a
// position, which an earlier call has returned, and with the newest if the position is
// zero. matching counts the changes that the filter selects, each repetition too.
func (v *View) Repeated(f Filter, after Position, limit int) (rows []Repeated, matching int) {
	g := grouping{begun: after == Position{}, limit: limit, open: make(map[string]*group)}
	for at, c := range v.Changes(f) {
		matching++
		g.add(at, c)
		g.begun = g.begun || at == after
	}
	for _, row := range g.rows {
		rows = append(rows, row.Repeated)
	}
	return rows, matching
}

// grouping groups changes, which it gets with the newest first.
type grouping struct {
	begun bool // the rows begin here
	limit int
	rows  []*group
	open  map[string]*group // by task: what an earlier change may repeat
}

// group is a row, which may be before those that are wanted.
type group struct {
	Repeated
	next *group // of the same task
}

func (g *grouping) add(at Position, c *Change) {
	open := g.open[c.Task]
	wanted := !g.begun || len(g.rows) < g.limit
	if !wanted && open == nil {
		return // neither this change nor an earlier one of its task is in a row
	}
	done := c.Outcome == orchestrator.OutcomeDone
	for row := open; row != nil; row = row.next {
		if same(row.Change, c) && (!done || open.next == nil) {
			row.Times++
			row.First = at.Term
			return
		}
	}
	if done {
		open = nil
	}
	row := &group{Repeated{Change: c, At: at, Times: 1, First: at.Term}, open}
	g.open[c.Task] = row
	if wanted && g.begun {
		g.rows = append(g.rows, row)
	}
}

// same reports whether two changes of a task are repetitions.
func same(a, b *Change) bool {
	return a.Kind == b.Kind && a.From == b.From && a.To == b.To && a.Outcome == b.Outcome
}

// LongestGap returns the longest time for which a move left an instance of a task stopped,
// among the changes that the view holds. It takes a step for each of them.
func (v *View) LongestGap(task string) (gap time.Duration) {
	for _, c := range v.Changes(Filter{Task: &task}) {
		gap = max(gap, c.Gap)
	}
	return gap
}

// Load is a worker's number of tasks from the end of a term on.
type Load struct {
	Term  orchestrator.Term `json:"term"`
	Time  time.Time         `json:"time"` // the start of the term
	Tasks int               `json:"tasks"`
}

// Load returns the changes of a worker's number of tasks, the oldest first and at most 256,
// the newest ones. The first is at the start of the history if the number is older. It
// returns nil for an unknown worker.
func (v *View) Load(worker string) (loads []Load) {
	if len(v.terms) == 0 {
		return nil
	}
	first := v.terms[0].seq
	for _, p := range v.ring.load(Printable(worker), v.terms[len(v.terms)-1].seq) {
		s := &v.terms[max(p.seq, first)-first].Stats
		if p.seq <= first {
			loads = loads[:0]
		}
		loads = append(loads, Load{s.Term, s.Start, p.tasks})
	}
	return loads
}

// Events yields the events of a worker, the newest first. It takes a step for each event
// that the view holds, at most.
func (v *View) Events(worker string) iter.Seq2[*Term, *WorkerEvent] {
	worker = Printable(worker)
	return func(yield func(*Term, *WorkerEvent) bool) {
		for _, t := range slices.Backward(v.terms[v.stripped:]) {
			for i := range t.Events {
				if t.Events[i].Worker == worker && !yield(t, &t.Events[i]) {
					return
				}
			}
		}
	}
}

// Workers returns the workers as the ring has them now, in the order of their names. It is
// for replays: a process that leads has the workers of one term in its Snapshot.
func (v *View) Workers() []WorkerRow {
	rows, _ := v.ring.begun()
	return rows
}
