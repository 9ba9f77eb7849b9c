package test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
)

// How what comes of a scenario's commands is written.
//
//	term 3, 10s; 2 moves left for later
//	start  t1 t4 on a (missing)
//	move   t3 from b to d (rebalance): returned, rejected by the worker
//	stop   t9 on b (unexpected)
//	waits  t5 (held by c)
//	pauses start t7 on a until term 6, after 1 failure: rejected by the worker
//	error  list worker c: the worker is cut off
//	a: t1 t2 t4
//	b: t3, draining
//	c: t5, silent
//	t3 t4 ran nowhere for 2s
//
// The rows say what really runs on each worker. Where the leader sees something
// else, or the worker is not one that answers, the row goes on. The last lines
// tell how long tasks ran on more workers than they should, or, after they had
// run, on none.

// report tells of a leader's last term.
func (w *world) report(l *boss) {
	p := l.LastPlan()
	w.say("%s", w.title(l, p))
	w.decided(p)
	w.failed(l.err)
	w.rows(l)
}

func (w *world) title(l *boss, p plan) string {
	var b strings.Builder
	if len(w.leaders) > 1 {
		b.WriteString(l.name + ": ")
	}
	fmt.Fprintf(&b, "term %d, %v", p.Stats.Term.Number, l.took)
	if n := p.Stats.Deferred; n > 0 {
		fmt.Fprintf(&b, "; %s left for later", plural(n, "move"))
	}
	if n := p.Stats.Instances.Duplicate; n > 0 {
		fmt.Fprintf(&b, "; %s listed once more", plural(n, "task"))
	}
	if p.Stats.MassLoss {
		b.WriteString("; too many are silent, none is declared lost")
	}
	if len(p.Changes) == 0 && l.err == nil {
		b.WriteString(": nothing to change")
	}
	return b.String()
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// decided tells what a plan does, what waits and what pauses. Lines that say the
// same of several tasks are one.
func (w *world) decided(p plan) {
	g := grouped{world: w}
	for _, c := range p.Changes {
		where := "on " + c.To
		switch c.Kind.Op {
		case orchestrator.Stop:
			where = "on " + c.From
		case orchestrator.Move:
			where = fmt.Sprintf("from %s to %s", c.From, c.To)
		}
		came := ""
		if c.Outcome != orchestrator.OutcomeDone && c.Outcome != orchestrator.OutcomePlanned {
			came = ": " + string(c.Outcome)
			if c.Err != nil {
				came += ", " + c.Err.Error()
			}
		}
		g.add(fmt.Sprintf("%-6s", c.Kind.Op), c.Task, fmt.Sprintf("%s (%s)%s", where, c.Kind.Reason, came))
	}
	g.flush()
	for _, x := range p.Waiting {
		why := string(x.Reason)
		if x.Named {
			why += ", " + x.Worker
		}
		task := x.Task
		if x.Instances > 1 {
			task += fmt.Sprintf("=%d", x.Instances)
		}
		g.add("waits ", task, fmt.Sprintf("(%s)", why))
	}
	g.flush()
	for _, x := range p.Paused {
		why := fmt.Sprintf("until term %d, after %s: %v", x.Until, plural(x.Failures, "failure"), x.Err)
		switch x.Kind {
		case orchestrator.PauseMoves:
			w.say("pauses moves %s", why)
		case orchestrator.PauseWorker:
			w.say("quarantines %s %s", x.Worker, why)
		default:
			g.add("pauses "+string(x.Kind), x.Task, "on "+x.Worker+" "+why)
		}
	}
	g.flush()
}

// failed tells of the failures that no change tells of.
func (w *world) failed(err error) {
	term, ok := errors.AsType[*orchestrator.TermError](err)
	if !ok {
		w.should(err)
		return
	}
	for _, failure := range term.Failures {
		if c, ok := errors.AsType[*callError](failure); ok && c.Op != orchestrator.OpList {
			continue
		}
		w.say("error  %v", failure)
	}
}

// rows tells what really runs where, and how the leader sees it.
func (w *world) rows(l *boss) {
	seen := make(map[string]orchestrator.WorkerState[string, string])
	order := slices.Clone(w.members)
	for _, s := range l.LastActual() {
		seen[s.Name] = s
		if !slices.Contains(order, s.Name) {
			order = append(order, s.Name)
		}
	}
	planned := make(map[string]orchestrator.WorkerPlan[string])
	for _, p := range l.LastPlan().Workers {
		planned[p.Name] = p
	}
	for _, e := range w.cluster.Events() {
		if e.Kind == memory.WorkerStarted && !slices.Contains(order, e.Worker) && len(w.cluster.RunsOn(e.Worker)) > 0 {
			order = append(order, e.Worker)
		}
	}
	for _, name := range order {
		runs := sorted(w.cluster.RunsOn(name))
		row := name + ": " + list(runs)
		if w.cluster.Worker(name) == nil {
			row = name + ": down"
		}
		s, known := seen[name]
		if !known {
			if !slices.Contains(w.members, name) {
				row += ", not a member"
			}
			w.say("%s", row)
			continue
		}
		if s.State != orchestrator.Answering {
			row += ", " + s.State.String()
		}
		if planned[name].Late {
			row += ", late"
		}
		if s.Draining {
			row += ", draining"
		}
		if planned[name].Quarantined {
			row += ", quarantined"
		}
		if believed := sorted(s.Tasks); s.State != orchestrator.Lost && !slices.Equal(believed, runs) {
			row += ", seen with " + list(believed)
		}
		w.say("%s", row)
	}
}

// grouped puts lines that differ in the task only into one.
type grouped struct {
	*world
	lines []said
}

type said struct {
	verb, rest string
	tasks      []string
}

func (g *grouped) add(verb, task, rest string) {
	for i := range g.lines {
		if g.lines[i].verb == verb && g.lines[i].rest == rest {
			g.lines[i].tasks = append(g.lines[i].tasks, task)
			return
		}
	}
	g.lines = append(g.lines, said{verb, rest, []string{task}})
}

func (g *grouped) flush() {
	for _, l := range g.lines {
		g.say("%s", strings.TrimSpace(fmt.Sprintf("%s %s %s", l.verb, list(sorted(l.tasks)), l.rest)))
	}
	g.lines = nil
}

// shown is how many names a list spells out.
const shown = 12

func list(names []string) string {
	switch {
	case len(names) == 0:
		return "nothing"
	case len(names) > shown:
		return fmt.Sprintf("%d tasks", len(names))
	}
	return strings.Join(names, " ")
}

// sorted returns names in order, t2 before t10.
func sorted(names []string) []string {
	split := func(name string) (string, int) {
		prefix := strings.TrimRight(name, "0123456789")
		n, _ := strconv.Atoi(name[len(prefix):])
		return prefix, n
	}
	return slices.SortedFunc(slices.Values(names), func(a, b string) int {
		p, n := split(a)
		q, m := split(b)
		return cmp.Or(cmp.Compare(p, q), cmp.Compare(n, m))
	})
}

// observer reads the cluster's books: for how long tasks ran on too many
// workers, and on none.
type observer struct {
	read    int // events
	runs    map[string]int
	since   map[string]time.Time // too many, or none, since then
	wanted  map[string]int
	changed []spell
}

// spell is for how long something was wrong with a task.
type spell struct{ task, what string }

func newObserver() observer {
	return observer{runs: make(map[string]int), since: make(map[string]time.Time), wanted: make(map[string]int)}
}

// tell says what the events since the last call came to.
func (o *observer) tell(w *world) {
	events := w.cluster.Events()
	for _, e := range events[o.read:] {
		switch e.Kind {
		case memory.TaskStarted:
			o.note(e.Task, o.runs[e.Task]+1, e.Time)
		case memory.TaskStopped:
			o.note(e.Task, o.runs[e.Task]-1, e.Time)
		}
	}
	o.read = len(events)
	if w.now != nil {
		o.want(w.now.ListExpectedTasks())
	}
	g := grouped{world: w}
	for _, c := range o.changed {
		g.add("", c.task, c.what)
	}
	o.changed = nil
	g.flush()
}

// want takes over how many instances there should be.
func (o *observer) want(tasks []task) {
	for _, task := range tasks {
		before := o.wrong(task.Name)
		o.wanted[task.Name] = task.Instances
		if o.wrong(task.Name) != before {
			o.since[task.Name] = time.Now()
		}
	}
}

// wrong says what is wrong with where a task runs.
func (o *observer) wrong(task string) string {
	switch n := o.runs[task]; {
	case n == 0:
		return "nowhere"
	case n > max(1, o.wanted[task]):
		return "on too many"
	}
	return ""
}

func (o *observer) note(task string, runs int, at time.Time) {
	before := o.wrong(task)
	o.runs[task] = runs
	if o.wrong(task) == before {
		return
	}
	if since, ok := o.since[task]; ok && before != "" && at.After(since) {
		o.changed = append(o.changed, spell{task, fmt.Sprintf("ran %s for %v", before, at.Sub(since))})
	}
	o.since[task] = at
}
