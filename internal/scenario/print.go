package scenario

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

// maxNames is how many names a line spells out.
const maxNames = 12

func (p *player) printf(format string, args ...any) {
	p.out = append(p.out, fmt.Sprintf(format, args...))
}

// printError prints an error that belongs to the transcript.
func (p *player) printError(err error) {
	if err != nil {
		p.printf("error: %v", err)
	}
}

// flush returns the output of the last command.
func (p *player) flush() []string {
	p.printDurations()
	out := p.out
	p.out = nil
	return out
}

// printTerm prints the last term of a leader.
func (p *player) printTerm(l *leader) {
	p.printTitle(l)
	p.printPlan(l.LastPlan())
	p.printFailures(l.err)
	p.printRows(l)
}

func (p *player) printTitle(l *leader) {
	plan := l.LastPlan()
	var b strings.Builder
	if len(p.leaders) > 1 {
		b.WriteString(l.name + ": ")
	}
	fmt.Fprintf(&b, "term %d, %v", plan.Stats.Term.Number, l.took)
	if n := plan.Stats.Deferred; n > 0 {
		fmt.Fprintf(&b, "; %s left for later", plural(n, "move"))
	}
	if n := plan.Stats.MovesHeld; n > 0 {
		fmt.Fprintf(&b, "; %s held: %s", plural(n, "move"), plan.Holds[0].Why)
	}
	if n := plan.Stats.Instances.Duplicate; n > 0 {
		fmt.Fprintf(&b, "; %s listed once more", plural(n, "task"))
	}
	if plan.Stats.MassLoss {
		b.WriteString("; too many are silent, none is declared lost")
	}
	if len(plan.Changes) == 0 && l.err == nil {
		b.WriteString(": nothing to change")
	}
	p.printf("%s", b.String())
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// printPlan prints the changes, the tasks that wait and the pauses of a plan.
func (p *player) printPlan(plan orchestrator.Plan[string, string]) {
	g := grouped{player: p}
	for _, c := range plan.Changes {
		where := "on " + c.To
		switch c.Kind.Op {
		case orchestrator.Stop:
			where = "on " + c.From
		case orchestrator.Move:
			where = fmt.Sprintf("from %s to %s", c.From, c.To)
		}
		outcome := ""
		if c.Outcome != orchestrator.OutcomeDone && c.Outcome != orchestrator.OutcomePlanned {
			outcome = ": " + string(c.Outcome)
			if c.Err != nil {
				outcome += ", " + c.Err.Error()
			}
		}
		g.add(fmt.Sprintf("%-6s", c.Kind.Op), c.Task, fmt.Sprintf("%s (%s)%s", where, c.Kind.Reason, outcome))
	}
	g.print()
	for _, x := range plan.Waiting {
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
	g.print()
	for _, x := range plan.Paused {
		why := fmt.Sprintf("until term %d, after %s: %v", x.Until, plural(x.Failures, "failure"), x.Err)
		switch x.Kind {
		case orchestrator.PauseMoves:
			p.printf("pauses moves %s", why)
		case orchestrator.PauseWorker:
			p.printf("quarantines %s %s", x.Worker, why)
		default:
			g.add("pauses "+string(x.Kind), x.Task, "on "+x.Worker+" "+why)
		}
	}
	g.print()
}

// printFailures prints the failures that no change mentions.
func (p *player) printFailures(err error) {
	term, ok := errors.AsType[*orchestrator.TermError](err)
	if !ok {
		p.printError(err)
		return
	}
	for _, failure := range term.Failures {
		if c, ok := errors.AsType[*orchestrator.CallError[string, string]](failure); ok && c.Op != orchestrator.OpList {
			continue
		}
		p.printf("error  %v", failure)
	}
}

// printRows prints what runs on each worker, and how the leader sees it.
func (p *player) printRows(l *leader) {
	states := make(map[string]orchestrator.WorkerState[string, string])
	order := slices.Clone(p.members)
	for _, s := range l.LastActual() {
		states[s.Name] = s
		if !slices.Contains(order, s.Name) {
			order = append(order, s.Name)
		}
	}
	planned := make(map[string]orchestrator.WorkerPlan[string])
	for _, w := range l.LastPlan().Workers {
		planned[w.Name] = w
	}
	for _, e := range p.cluster.Events() {
		if e.Kind == memory.WorkerStarted && !slices.Contains(order, e.Worker) && len(p.cluster.RunsOn(e.Worker)) > 0 {
			order = append(order, e.Worker)
		}
	}
	for _, name := range order {
		runs := sorted(p.cluster.RunsOn(name))
		row := name + ": " + join(runs)
		if p.cluster.Worker(name) == nil {
			row = name + ": down"
		}
		s, known := states[name]
		if !known {
			if !slices.Contains(p.members, name) {
				row += ", not a member"
			}
			p.printf("%s", row)
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
			row += ", seen with " + join(believed)
		}
		p.printf("%s", row)
	}
}

// grouped prints lines that differ only in the task as one.
type grouped struct {
	*player
	lines []groupedLine
}

type groupedLine struct {
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
	g.lines = append(g.lines, groupedLine{verb, rest, []string{task}})
}

func (g *grouped) print() {
	for _, l := range g.lines {
		g.printf("%s", strings.TrimSpace(fmt.Sprintf("%s %s %s", l.verb, join(sorted(l.tasks)), l.rest)))
	}
	g.lines = nil
}

// monitor derives from the cluster's events for how long tasks ran on too many
// workers or on none.
type monitor struct {
	read   int // how many events
	runs   map[string]int
	wanted map[string]int
	since  map[string]time.Time // the last change of anomaly
	ended  []anomalyEnd
}

type anomalyEnd struct{ task, text string }

func newMonitor() monitor {
	return monitor{runs: make(map[string]int), since: make(map[string]time.Time), wanted: make(map[string]int)}
}

// printDurations prints the anomalies that have ended since the last call.
func (p *player) printDurations() {
	m := &p.monitor
	events := p.cluster.Events()
	for _, e := range events[m.read:] {
		switch e.Kind {
		case memory.TaskStarted:
			m.set(e.Task, m.runs[e.Task]+1, e.Time)
		case memory.TaskStopped:
			m.set(e.Task, m.runs[e.Task]-1, e.Time)
		}
	}
	m.read = len(events)
	if p.current != nil {
		m.want(p.current.ListExpectedTasks())
	}
	g := grouped{player: p}
	for _, e := range m.ended {
		g.add("", e.task, e.text)
	}
	m.ended = nil
	g.print()
}

// want sets how many instances are expected.
func (m *monitor) want(tasks []orchestrator.Task[string]) {
	for _, task := range tasks {
		before := m.anomaly(task.Name)
		m.wanted[task.Name] = task.Instances
		if m.anomaly(task.Name) != before {
			m.since[task.Name] = time.Now()
		}
	}
}

// set sets on how many workers a task runs.
func (m *monitor) set(task string, runs int, at time.Time) {
	before := m.anomaly(task)
	m.runs[task] = runs
	if m.anomaly(task) == before {
		return
	}
	if since, ok := m.since[task]; ok && before != "" && at.After(since) {
		m.ended = append(m.ended, anomalyEnd{task, fmt.Sprintf("ran %s for %v", before, at.Sub(since))})
	}
	m.since[task] = at
}

func (m *monitor) anomaly(task string) string {
	switch n := m.runs[task]; {
	case n == 0:
		return "nowhere"
	case n > max(1, m.wanted[task]):
		return "on too many"
	}
	return ""
}

func join(names []string) string {
	switch {
	case len(names) == 0:
		return "nothing"
	case len(names) > maxNames:
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
