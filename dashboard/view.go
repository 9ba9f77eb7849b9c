package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

// view computes the answers about one term. Its methods are safe for concurrent use. What
// several requests need is computed once, by the first request that needs it.
type view[W, T comparable] struct {
	h        *Handler[W, T]
	lead     *lead[W, T]
	snapshot *orchestrator.Snapshot[W, T] // nil before the first term
	plan     orchestrator.Plan[W, T]      // of snapshot

	workers func() *workerTable[W, T]
	causes  func() []api.Problem // without those that depend on the time
}

func newView[W, T comparable](h *Handler[W, T], l *lead[W, T], s *orchestrator.Snapshot[W, T]) *view[W, T] {
	v := &view[W, T]{h: h, lead: l, snapshot: s}
	if s != nil {
		v.plan = s.Plan()
	}
	v.workers = sync.OnceValue(v.makeWorkers)
	v.causes = sync.OnceValue(v.findCauses)
	return v
}

// header returns the part that all answers have.
func (v *view[W, T]) header() api.Header {
	stats := &v.plan.Stats
	return api.Header{Term: stats.Term, Start: stats.Start, Took: stats.Total, Now: time.Now()}
}

// tag returns the entity tag of answers that change only with the term. It is weak, because
// each answer also has the time.
func (v *view[W, T]) tag() string {
	term := v.plan.Stats.Term
	return fmt.Sprintf(`W/"%d-%d"`, term.Epoch, term.Number)
}

// progress returns the term under way, or nil.
func (v *view[W, T]) progress() *api.Progress {
	p := v.lead.Progress()
	if p.Phase == "" {
		return nil
	}
	out := &api.Progress{Term: p.Term, Start: p.Start, Phase: p.Phase, Since: p.Since, Done: p.Done, Total: p.Total}
	for _, name := range p.WaitingFor {
		out.WaitingFor = append(out.WaitingFor, v.workerText(name))
	}
	return out
}

// current returns the answer that is always up to date.
func (v *view[W, T]) current() api.Current {
	return api.Current{Header: v.header(), Tag: v.tag(), Progress: v.progress()}
}

func (v *view[W, T]) workerText(name W) string { return printable(v.h.workerName(name)) }
func (v *view[W, T]) taskText(name T) string   { return printable(v.h.taskName(name)) }

// workerTable is the workers of a term.
type workerTable[W, T comparable] struct {
	states []orchestrator.WorkerState[W, T] // in the order of the term
	rows   []api.Worker                     // of states
	sorted []int                            // indexes of rows, those that are not as they should be first
	byName map[string][]int                 // indexes by text, in the order of the term
	index  map[W]int
}

func (v *view[W, T]) makeWorkers() *workerTable[W, T] {
	n := len(v.plan.Workers)
	t := &workerTable[W, T]{
		rows: make([]api.Worker, 0, n), byName: make(map[string][]int, n), index: make(map[W]int, n),
	}
	if v.snapshot == nil {
		return t
	}
	t.states = slices.AppendSeq(make([]orchestrator.WorkerState[W, T], 0, n), v.snapshot.Workers())
	for i := range t.states {
		state, plan := &t.states[i], &v.plan.Workers[i]
		text := v.workerText(state.Name)
		t.index[state.Name] = i
		t.byName[text] = append(t.byName[text], i)
		row := api.Worker{
			Name:  api.Name{Name: text, Nth: nth(len(t.byName[text]))},
			State: state.State, Late: plan.Late, Draining: state.Draining, Quarantined: state.Quarantined,
			Since: state.Since, SinceTerm: state.SinceTerm, Err: errText(state.Err),
			LastAnswer: state.LastAnswer, ListTook: state.ListTook, Tasks: len(state.Tasks) + len(state.LastTasks),
		}
		t.rows = append(t.rows, row)
		t.sorted = append(t.sorted, i)
	}
	slices.SortFunc(t.sorted, func(a, b int) int {
		x, y := &t.rows[a], &t.rows[b]
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(x.Name.Name, y.Name.Name), cmp.Compare(a, b))
	})
	return t
}

// nth returns the value of api.Name.Nth for the n-th name of a text.
func nth(n int) int {
	if n == 1 {
		return 0
	}
	return n
}

// rank orders workers: those that are not as they should be first.
func rank(w *api.Worker) int {
	switch {
	case w.State == orchestrator.Lost:
		return 0
	case w.State == orchestrator.Silent:
		return 1
	case w.Stuck:
		return 2
	case w.Quarantined:
		return 3
	case w.Late:
		return 4
	case w.Draining:
		return 5
	}
	return 6
}

// errText returns the text of an error, or "".
func errText(err error) string {
	if err == nil {
		return ""
	}
	return printable(err.Error())
}

// change returns a change with its names as text.
func (v *view[W, T]) change(c *orchestrator.Change[W, T]) api.Change {
	out := api.Change{Kind: c.Kind, Task: v.taskText(c.Task), Outcome: c.Outcome, Began: c.Began, Took: c.Took, Gap: c.Gap, Err: textError(c.Err)}
	if c.Kind.Op != orchestrator.Start {
		out.From = v.workerText(c.From)
	}
	if c.Kind.Op != orchestrator.Stop {
		out.To = v.workerText(c.To)
	}
	if c.Kind.Reason == orchestrator.ReasonLost || c.Kind.Reason == orchestrator.ReasonVanished {
		out.Was = v.workerText(c.Was)
	}
	return out
}

// waiting returns waiting instances with their names as text.
func (v *view[W, T]) waiting(w *orchestrator.Waiting[W, T]) api.Waiting {
	out := api.Waiting{Task: v.taskText(w.Task), Instances: w.Instances, Reason: w.Reason, Named: w.Named}
	if w.Named {
		out.Worker = v.workerText(w.Worker)
	}
	return out
}

// pause returns a pause with its names as text.
func (v *view[W, T]) pause(p *orchestrator.Pause[W, T]) api.Pause {
	out := api.Pause{Kind: p.Kind, Until: p.Until, Failures: p.Failures, Err: textError(p.Err)}
	if p.Kind != orchestrator.PauseMoves {
		out.Worker = v.workerText(p.Worker)
		if p.Kind != orchestrator.PauseWorker {
			out.Task = v.taskText(p.Task)
		}
	}
	return out
}

// textError is an error with the printable text of another.
type shownError string

func (e shownError) Error() string { return string(e) }

func textError(err error) error {
	if err == nil {
		return nil
	}
	return shownError(errText(err))
}
