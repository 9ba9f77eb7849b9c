package dashboard

// What needs a person: one problem for each cause.

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

// mostProblems bounds api.Status.Problems.
const mostProblems = 8

// severity is the order of the problems, the worst first.
var severity = []api.ProblemKind{
	api.ProblemMassLoss, api.ProblemNoTerms, api.ProblemCut, api.ProblemLost, api.ProblemUnplaced, api.ProblemFailing,
	api.ProblemSilent, api.ProblemStuck, api.ProblemLate, api.ProblemQuarantined, api.ProblemStaying, api.ProblemDeferred,
	api.ProblemDuplicate, api.ProblemUnexpected,
}

// cause is why something is not as it should be, and what it concerns.
type cause[T comparable] struct {
	kind      api.ProblemKind
	err       string // the first one
	others    bool   // there are other errors
	reason    orchestrator.Reason
	workers   map[int]bool // indexes
	tasks     map[T]bool
	someTasks []T // the first ones
	instances int
	since     time.Time // the earliest
	later     bool      // there are later times
	until     uint64
	failures  int
	moves     int    // that wait because starts fail
	rules     string // why labels, zones and limits leave no place
	runs      bool   // it is runs that fail, not starts
}

// causes groups what a term left by cause.
type causes[W, T comparable] struct {
	*termView[W, T]
	table *workerTable[W, T]
	index map[W]int // of table.states
	byKey map[causeKey]*cause[T]
	all   []*cause[T]
}

// causeKey distinguishes causes.
type causeKey struct {
	kind api.ProblemKind
	what string // a reason, or the pattern of an error
}

// get returns the cause with a key.
func (c *causes[W, T]) get(kind api.ProblemKind, what string) *cause[T] {
	k := causeKey{kind, what}
	found := c.byKey[k]
	if found == nil {
		found = &cause[T]{kind: kind, workers: make(map[int]bool), tasks: make(map[T]bool)}
		c.byKey[k] = found
		c.all = append(c.all, found)
	}
	return found
}

// addWorker adds a worker that the cause concerns.
func (c *causes[W, T]) addWorker(to *cause[T], name W) {
	if i, ok := c.index[name]; ok {
		to.workers[i] = true
	}
}

// add adds instances of a task that the cause concerns.
func (c *cause[T]) add(task T, instances int) {
	if len(c.someTasks) < mostNames && !c.tasks[task] {
		c.someTasks = append(c.someTasks, task)
	}
	c.tasks[task] = true
	c.instances += instances
}

// addErr adds the text of an error, unless it is empty.
func (c *cause[T]) addErr(text string) {
	c.others = c.others || c.err != "" && text != "" && text != c.err
	c.err = cmp.Or(c.err, text)
}

// addSince adds the time from which on the cause concerns a worker.
func (c *cause[T]) addSince(t time.Time) {
	c.later = c.later || !c.since.IsZero() && !t.Equal(c.since)
	if c.since.IsZero() || t.Before(c.since) {
		c.since = t
	}
}

// why returns the error as the end of a sentence: as an example if there are others.
func (c *cause[T]) why() string {
	switch {
	case c.err == "":
		return ""
	case c.others:
		return ", for example: " + shorten(c.err, 160)
	}
	return ": " + shorten(c.err, 160)
}

// findCauses returns what needs a person, the worst first, without what depends on the time.
func (v *termView[W, T]) findCauses() []api.Problem {
	c := &causes[W, T]{termView: v, table: v.workers(), index: make(map[W]int), byKey: make(map[causeKey]*cause[T])}
	for i := range c.table.states {
		c.index[c.table.states[i].Name] = i
	}
	c.ofTerm()
	c.ofWorkers()
	c.ofMissing()
	c.ofPauses()
	c.ofRuns()
	problems := make([]api.Problem, 0, len(c.all))
	for _, one := range c.all {
		problems = append(problems, c.problem(one))
	}
	slices.SortStableFunc(problems, func(a, b api.Problem) int {
		return cmp.Or(
			cmp.Compare(slices.Index(severity, a.Kind), slices.Index(severity, b.Kind)),
			cmp.Compare(b.WorkersTotal, a.WorkersTotal), cmp.Compare(b.TasksTotal, a.TasksTotal), strings.Compare(a.Text, b.Text),
		)
	})
	return problems
}

// ofTerm adds what concerns the whole term.
func (c *causes[W, T]) ofTerm() {
	stats := &c.plan.Stats
	if stats.Cut {
		c.get(api.ProblemCut, "").err = errText(stats.Err)
	}
	if n := stats.Instances.Duplicate; n > 0 {
		c.get(api.ProblemDuplicate, "").instances = n
	}
	if stats.Deferred > 0 && c.lead.Config().MaxMoves == 0 {
		c.get(api.ProblemDeferred, "").instances = stats.Deferred
	}
}

// ofWorkers adds the workers of which the term has no answer, grouped by why.
func (c *causes[W, T]) ofWorkers() {
	held := make(map[int]int)
	unheard := false
	for i := range c.plan.Waiting {
		switch w := &c.plan.Waiting[i]; w.Reason {
		case orchestrator.ReasonHeld:
			held[c.index[w.Worker]] += w.Instances
		case orchestrator.ReasonNeverAnswered:
			unheard = true
		}
	}
	for i := range c.table.states {
		w, since := &c.table.states[i], c.table.states[i].Since
		if w.State == orchestrator.Answering && !c.table.rows[i].Late {
			continue
		}
		var to *cause[T]
		// Of two workers that fail alike, one may have failed in this term, and the other before.
		text := strings.TrimPrefix(errText(w.Err), orchestrator.ErrSilent.Error()+", and the last call failed: ")
		switch {
		case w.State == orchestrator.Lost:
			to = c.get(api.ProblemLost, pattern(text, c.table.rows[i].Name.Name))
		case w.State == orchestrator.Answering && !c.table.rows[i].Stuck:
			to, since = c.get(api.ProblemLate, ""), w.LastAnswer
		case unheard && w.LastAnswer.IsZero():
			to = c.get(api.ProblemUnplaced, string(orchestrator.ReasonNeverAnswered))
		case c.plan.Stats.MassLoss:
			to = c.get(api.ProblemMassLoss, "")
		case errors.Is(w.Err, orchestrator.ErrStuck):
			to = c.get(api.ProblemStuck, "")
		default:
			to = c.get(api.ProblemSilent, pattern(text, c.table.rows[i].Name.Name))
		}
		to.workers[i] = true
		to.addErr(errText(w.Err))
		to.addSince(since)
		switch {
		case w.State == orchestrator.Lost:
			to.instances += len(w.LastTasks)
		case to.kind != api.ProblemUnplaced:
			to.instances += held[i]
		}
	}
}

// ofMissing adds the instances that are missing, and those that cannot leave a draining
// worker, grouped by why.
func (c *causes[W, T]) ofMissing() {
	failed := c.failedStarts()
	for i := range c.plan.Waiting {
		w := &c.plan.Waiting[i]
		switch w.Kind() {
		case orchestrator.WaitingUnplaced:
			to := c.get(api.ProblemUnplaced, string(w.Reason)+causesText(w))
			to.reason, to.rules = w.Reason, causesText(w)
			to.add(w.Task, w.Instances)
			if w.Named {
				c.addWorker(to, w.Worker)
			}
		case orchestrator.WaitingFailing:
			c.addFailing(w, failed[w.Task])
		case orchestrator.WaitingStaying:
			// A pinned task ends by itself. A stop that failed is in ofPauses.
			if w.Reason != orchestrator.ReasonPinned && w.Reason != orchestrator.ReasonPaused {
				to := c.get(api.ProblemStaying, string(w.Reason)+causesText(w))
				to.reason, to.rules = w.Reason, causesText(w)
				to.add(w.Task, w.Instances)
				c.addWorker(to, w.Worker)
			}
		}
	}
	if !c.lead.Config().DryRun {
		return
	}
	for i := range c.plan.Changes {
		if change := &c.plan.Changes[i]; change.Kind.Op == orchestrator.Start && change.Outcome == orchestrator.OutcomeDry {
			c.get(api.ProblemUnplaced, "dry run").add(change.Task, 1)
		}
	}
}

// failure is a start that failed, for a number of times in a row.
type failure[W comparable] struct {
	worker W
	err    error
	times  int
}

// failedStarts returns the starts that failed and count, by task.
func (c *causes[W, T]) failedStarts() map[T][]failure[W] {
	failed := make(map[T][]failure[W])
	for i := range c.plan.Changes {
		change := &c.plan.Changes[i]
		if change.Kind.Op != orchestrator.Stop && change.Err != nil && change.Outcome != orchestrator.OutcomeSkipped {
			failed[change.Task] = append(failed[change.Task], failure[W]{change.To, change.Err, 1})
		}
	}
	for i := range c.plan.Paused {
		p := &c.plan.Paused[i]
		if p.Kind == orchestrator.PauseStart || p.Kind == orchestrator.PauseTask {
			failed[p.Task] = append(failed[p.Task], failure[W]{p.Worker, p.Err, p.Failures})
		}
	}
	return failed
}

// addFailing adds instances whose starts fail. The cause is the error, wherever and for
// whichever task it occurs.
func (c *causes[W, T]) addFailing(w *orchestrator.Waiting[W, T], failed []failure[W]) {
	if len(failed) == 0 { // the workers that remain are quarantined
		c.get(api.ProblemFailing, "").add(w.Task, w.Instances)
		return
	}
	example := failed[0]
	for _, f := range failed {
		if w.Named && f.worker == w.Worker {
			example = f
		}
	}
	to := c.get(api.ProblemFailing, c.errPattern(example.err, example.worker, w.Task))
	to.addErr(errText(example.err))
	to.add(w.Task, w.Instances)
	for _, f := range failed {
		to.addErr(errText(f.err))
		c.addWorker(to, f.worker)
		to.failures = max(to.failures, f.times)
	}
}

// ofPauses adds what failed so often that it pauses.
func (c *causes[W, T]) ofPauses() {
	for i := range c.plan.Paused {
		p := &c.plan.Paused[i]
		var to *cause[T]
		switch p.Kind {
		case orchestrator.PauseWorker:
			what := c.errPattern(p.Err, p.Worker, p.Task)
			if to = c.byKey[causeKey{api.ProblemFailing, what}]; to != nil {
				c.addWorker(to, p.Worker) // the same cause
				continue
			}
			to = c.get(api.ProblemQuarantined, what)
			c.addWorker(to, p.Worker)
			to.failures += p.Failures
		case orchestrator.PauseStop:
			to = c.get(api.ProblemUnexpected, c.errPattern(p.Err, p.Worker, p.Task))
			to.add(p.Task, 1)
			c.addWorker(to, p.Worker)
		case orchestrator.PauseMoves:
			if to = c.byKey[causeKey{api.ProblemFailing, c.movesPattern(p)}]; to != nil {
				to.moves = c.plan.Stats.Deferred // the same cause
				continue
			}
			if c.plan.Stats.Deferred == 0 {
				continue
			}
			to = c.get(api.ProblemDeferred, "")
			to.instances = c.plan.Stats.Deferred
		default:
			continue
		}
		to.addErr(errText(p.Err))
		to.until = max(to.until, p.Until)
	}
}

// ofRuns adds the tasks whose runs fail, grouped by why.
func (c *causes[W, T]) ofRuns() {
	if c.h.taskStates == nil {
		return
	}
	for i := range c.table.states {
		name := c.table.states[i].Name
		for _, s := range c.h.taskStates(name) {
			if s.State == "backoff" || s.State == "failed" || s.State == "failing" || s.State == "running" && s.Err != "" {
				to := c.get(api.ProblemFailing, "run: "+pattern(printable(s.Err), history.NameText(name), history.NameText(s.Task)))
				to.runs, to.workers[i] = true, true
				to.addErr(printable(s.Err))
				to.add(s.Task, 0)
			}
		}
	}
}

// movesPattern returns the pattern of the error of a failed move, whose task and worker are
// not known: that of the same error on any worker.
func (c *causes[W, T]) movesPattern(p *orchestrator.Pause[W, T]) string {
	text := errText(p.Err)
	for k, other := range c.byKey {
		if k.kind == api.ProblemFailing && other.err == text {
			return k.what
		}
	}
	return text
}

// errPattern returns the pattern of the error of a call.
func (c *causes[W, T]) errPattern(err error, worker W, task T) string {
	return pattern(errText(err), history.NameText(worker), history.NameText(task))
}

// pattern returns what an error has in common with those of other workers and tasks: the
// text without the names, and with a # for each number.
func pattern(text string, names ...string) string {
	for _, name := range names {
		if len(name) > 1 {
			text = strings.ReplaceAll(text, name, "*")
		}
	}
	var b strings.Builder
	digits := false
	for _, r := range text {
		isDigit := '0' <= r && r <= '9'
		if !isDigit {
			b.WriteRune(r)
		} else if !digits {
			b.WriteByte('#')
		}
		digits = isDigit
	}
	return b.String()
}

// problem returns a cause as a problem.
func (c *causes[W, T]) problem(from *cause[T]) api.Problem {
	p := api.Problem{Kind: from.kind, WorkersTotal: len(from.workers), TasksTotal: len(from.tasks), Instances: from.instances, Since: from.since}
	switch from.kind {
	case api.ProblemLost, api.ProblemDeferred, api.ProblemDuplicate, api.ProblemUnexpected:
		p.Instances = 0 // it counts something else
	}
	for i := range c.table.rows {
		if from.workers[i] {
			if p.Workers = append(p.Workers, c.table.rows[i].Name); len(p.Workers) == min(mostNames, len(from.workers)) {
				break
			}
		}
	}
	for _, task := range from.someTasks {
		p.Tasks = append(p.Tasks, c.taskName(task))
	}
	p.Text = c.text(from, &p)
	return p
}

// text returns the sentences of a problem.
func (c *causes[W, T]) text(from *cause[T], p *api.Problem) string {
	workers, tasks := subject(p.Workers, p.WorkersTotal, "worker"), subject(p.Tasks, p.TasksTotal, "task")
	n := p.WorkersTotal
	are, have, its := pick(n, "is", "are"), pick(n, "has", "have"), pick(n, "Its", "Their")
	state := func(word string) string {
		if from.since.IsZero() {
			return workers + " " + are + " " + word
		}
		first := ""
		if from.later {
			first = ", the first"
		}
		return workers + " " + have + " been " + word + first + " since " + clock(from.since, c.plan.Stats.Start)
	}
	why := from.why()
	holds := ""
	if from.instances > 0 {
		holds = fmt.Sprintf(" %s %s held.", its, count(from.instances, "instance is", "instances are"))
	}
	switch p.Kind {
	case api.ProblemMassLoss:
		return fmt.Sprintf("%s%s. The network of this leader may have failed, so no worker is declared lost for now.%s",
			state("silent"), why, holds)
	case api.ProblemCut:
		return "The last term ended early" + why + "."
	case api.ProblemLost:
		if from.instances > 0 {
			holds = fmt.Sprintf(" Other workers take %s %s.", strings.ToLower(its), count(from.instances, "task", "tasks"))
		}
		return fmt.Sprintf("%s%s.%s", state("lost"), why, holds)
	case api.ProblemUnplaced:
		return c.unplaced(from, workers, tasks)
	case api.ProblemFailing:
		if from.runs {
			return fmt.Sprintf("%s %s again and again on %s%s.", tasks, pick(p.TasksTotal, "fails", "fail"), workers, why)
		}
		return failing(from, p, tasks, workers, why)
	case api.ProblemSilent:
		return fmt.Sprintf("%s%s.%s", state("silent"), why, holds)
	case api.ProblemStuck:
		return fmt.Sprintf("%s: a call has not returned, so no other is made.%s", state("stuck"), holds)
	case api.ProblemLate:
		return fmt.Sprintf("%s %s late: %s has not answered since %s.%s", workers, are, pick(n, "it", "the first"), clock(from.since, c.plan.Stats.Start), holds)
	case api.ProblemQuarantined:
		return fmt.Sprintf("%s %s quarantined after %s%s. The next try is in term %d.",
			workers, are, count(from.failures, "failed start", "failed starts"), why, from.until)
	case api.ProblemStaying:
		if text := breaks[from.reason]; text != "" {
			stay := pick(from.instances, "stays", "stay")
			return fmt.Sprintf("%s of %s %s on %s, %s: %s.", count(from.instances, "instance", "instances"), tasks, stay, workers, text, cmp.Or(from.rules, whyHeld))
		}
		return fmt.Sprintf("%s cannot be emptied. %s of %s %s there: %s.",
			workers, count(from.instances, "instance", "instances"), tasks, pick(from.instances, "stays", "stay"), cmp.Or(from.rules, whyWaiting[from.reason], string(from.reason)))
	case api.ProblemDeferred:
		if from.err == "" {
			return fmt.Sprintf("%s: this leader may move none (WithMaxMoves).", count(from.instances, "move waits", "moves wait"))
		}
		return fmt.Sprintf("All moves pause until term %d, because one left its task stopped%s. %s.",
			from.until, why, count(from.instances, "move waits", "moves wait"))
	case api.ProblemDuplicate:
		return fmt.Sprintf("Workers list a task more than once, %s in this term.", count(from.instances, "time", "times"))
	case api.ProblemUnexpected:
		return fmt.Sprintf("%s should stop on %s and cannot%s. The next try is in term %d.", tasks, workers, why, from.until)
	}
	return ""
}

// unplaced returns the sentence for instances that no start was tried for.
func (c *causes[W, T]) unplaced(from *cause[T], workers, tasks string) string {
	what, has := count(from.instances, "instance", "instances")+" of "+tasks, pick(from.instances, "has", "have")
	switch from.reason {
	case orchestrator.ReasonNeverAnswered:
		return fmt.Sprintf("%s %s no place yet: %s may run on %s, which has not answered since this leader started.",
			what, has, pick(from.instances, "it", "they"), workers)
	case orchestrator.ReasonNoWorker:
		if len(c.table.states) == 0 {
			return fmt.Sprintf("%s %s no place: there are no workers.", what, has)
		}
	case orchestrator.ReasonObserved:
		return fmt.Sprintf("%s %s missing. The leader starts %s, or has the reason why not.", what, pick(from.instances, "is", "are"), pick(from.instances, "it", "them"))
	case orchestrator.ReasonSkipped:
		return fmt.Sprintf("%s %s no place yet: the term ended before it could start them.", what, has)
	case "":
		return fmt.Sprintf("%s would be started, but this leader only plans (WithDryRun).", what)
	}
	return fmt.Sprintf("%s %s no place: %s.", what, has, cmp.Or(from.rules, whyWaiting[from.reason], string(from.reason)))
}

// breaks says of an instance that stays which rule it breaks.
var breaks = map[orchestrator.Reason]string{
	orchestrator.ReasonRequires:     "without the labels that it requires",
	orchestrator.ReasonZone:         "in a zone with more than it may have",
	orchestrator.ReasonLimit:        "above the limit of the worker",
	orchestrator.ReasonEvictionHeld: "without the labels that it requires",
}

// whyHeld is why an instance is not evicted though it may have a place.
const whyHeld = "changed labels would evict too many at once, so none is evicted for five minutes"

// causesText returns why labels, zones and limits leave no place; "" without such causes.
func causesText[W, T comparable](w *orchestrator.Waiting[W, T]) string {
	if w.Causes == nil {
		return ""
	}
	return printable(w.Causes.String())
}

func failing[T comparable](from *cause[T], p *api.Problem, tasks, workers, why string) string {
	if p.WorkersTotal == 0 {
		return fmt.Sprintf("%s cannot start: the workers that could take %s are quarantined.", tasks, pick(from.instances, "the instance", "the instances"))
	}
	times := ""
	if from.failures > 1 {
		times = fmt.Sprintf(", %d times in a row", from.failures)
	}
	text := fmt.Sprintf("%s %s to start on %s%s%s. %s missing.", tasks, pick(p.TasksTotal, "fails", "fail"), workers, times, why, count(from.instances, "instance is", "instances are"))
	if from.moves > 0 {
		text += " " + count(from.moves, "move waits", "moves wait") + " for that."
	}
	return text
}

// subject returns the name of the only one, or the number.
func subject(names []api.Name, total int, noun string) string {
	if total == 1 && len(names) == 1 {
		return shorten(cmp.Or(names[0].Name, "the "+noun+" with an empty name"), 80)
	}
	return count(total, noun, noun+"s")
}

// count returns a number with its noun.
func count(n int, one, many string) string { return grouped(n) + " " + pick(n, one, many) }

// pick returns the form of a word for a number.
func pick(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// shorten cuts a text to a number of characters.
func shorten(s string, most int) string {
	n := 0
	for i := range s {
		if n++; n > most {
			return s[:i] + "…"
		}
	}
	return s
}

// clock returns a time of the day, with the date if it is not that of now.
func clock(t, now time.Time) string {
	return strings.TrimPrefix(api.Clock(t), now.UTC().Format(time.DateOnly+" "))
}
