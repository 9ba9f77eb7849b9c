package dashboard

// What needs a person: one problem for each cause.

import (
	"cmp"
	"context"
	"maps"
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
	told, api.ProblemSilent, api.ProblemStuck, api.ProblemLate, api.ProblemQuarantined, api.ProblemStaying, api.ProblemBand, api.ProblemDeferred,
	api.ProblemDuplicate, api.ProblemUnexpected,
}

// told stands for the kinds of WithProblems.
const told api.ProblemKind = ""

// compareKinds orders kinds by their severity.
func compareKinds(a, b api.ProblemKind) int {
	place := func(k api.ProblemKind) int {
		if !slices.Contains(severity, k) {
			k = told
		}
		return slices.Index(severity, k)
	}
	return cmp.Compare(place(a), place(b))
}

// cause is why something is not as it should be, and what it concerns.
type cause struct {
	kind api.ProblemKind
	example
	reason    orchestrator.Reason
	workers   map[int]bool // indexes
	tasks     map[string]bool
	someTasks []string // the first ones
	instances int
	since     time.Time // the earliest
	later     bool      // there are later times
	until     uint64    // the first term that tries again; 0: the next one, or not known
	tries     int       // starts or stops that failed in a row
	triedBy   int       // on how many workers
	moves     int       // that wait because starts fail
	rules     string    // why labels, zones and limits leave no place
	tried     string    // runs or stops, if these fail, and not starts
}

// causes groups what a term left by cause.
type causes struct {
	*termView
	table *workerTable
	byKey map[causeKey]*cause
	all   []*cause
}

// causeKey distinguishes causes.
type causeKey struct {
	kind api.ProblemKind
	what string // a reason, or the pattern of an error
}

// get returns the cause with a key.
func (c *causes) get(kind api.ProblemKind, what string) *cause {
	k := causeKey{kind, what}
	found := c.byKey[k]
	if found == nil {
		found = &cause{kind: kind, workers: make(map[int]bool), tasks: make(map[string]bool)}
		c.byKey[k] = found
		c.all = append(c.all, found)
	}
	return found
}

// addWorker adds a worker that the cause concerns.
func (c *causes) addWorker(to *cause, name string) {
	if i, ok := c.table.index[name]; ok {
		to.workers[i] = true
	}
}

// add adds instances of a task that the cause concerns.
func (c *cause) add(task string, instances int) {
	if len(c.someTasks) < mostNames && !c.tasks[task] {
		c.someTasks = append(c.someTasks, task)
	}
	c.tasks[task] = true
	c.instances += instances
}

// example is the error of a cause: the first one, and the worker and the task that it was of, if they are known.
type example struct {
	err, worker, task string
	others            bool // there are other errors
}

// addErr adds the text of an error, unless it is empty.
func (x *example) addErr(text, worker, task string) {
	x.others = x.others || x.err != "" && text != "" && text != x.err
	if x.err == "" {
		x.err, x.worker, x.task = text, worker, task
	}
}

// pattern returns what the error has in common with others of the cause.
func (x *example) pattern() string { return pattern(x.err, x.worker, x.task) }

// keepExamples makes each cause keep the example that it had in the term before, if that differs in numbers only, so
// that its text stays.
func (c *causes) keepExamples() {
	l := c.lead
	l.saying.Lock()
	defer l.saying.Unlock()
	said := make(map[causeKey]example)
	for key, one := range c.byKey {
		was := l.said[key]
		i, known := c.table.index[was.worker]
		if was.err != "" && was.pattern() == one.pattern() && (was.worker == "" || known && one.workers[i]) && (was.task == "" || one.tasks[was.task]) {
			was.others = one.others || was.others && len(one.workers)+len(one.tasks) > 2
			one.example = was
		}
		said[key] = one.example
	}
	l.said = said
}

// addSince adds the time from which on the cause concerns a worker.
func (c *cause) addSince(t time.Time) {
	c.later = c.later || !c.since.IsZero() && !t.Equal(c.since)
	if c.since.IsZero() || t.Before(c.since) {
		c.since = t
	}
}

// findCauses returns what needs a person, the worst first, without what depends on the time.
func (v *termView) findCauses() []api.Problem {
	c := &causes{termView: v, table: v.workers(), byKey: make(map[causeKey]*cause)}
	c.ofTerm()
	c.ofWorkers()
	c.ofMissing()
	c.ofPauses()
	c.ofRuns()
	c.ofBand()
	c.countTries()
	c.keepExamples()
	problems := make([]api.Problem, 0, len(c.all))
	for _, one := range c.all {
		problems = append(problems, c.problem(one))
	}
	slices.SortStableFunc(problems, func(a, b api.Problem) int {
		return cmp.Or(
			compareKinds(a.Kind, b.Kind),
			cmp.Compare(b.WorkersTotal, a.WorkersTotal), cmp.Compare(b.TasksTotal, a.TasksTotal), strings.Compare(a.Text, b.Text),
		)
	})
	return problems
}

// ofTerm adds what concerns the whole term.
func (c *causes) ofTerm() {
	stats := &c.stats
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
func (c *causes) ofWorkers() {
	held := make(map[int]int)
	unheard := false
	for i := range c.plan().Waiting {
		switch w := &c.plan().Waiting[i]; w.Reason {
		case orchestrator.ReasonHeld:
			held[c.table.index[w.Worker]] += w.Instances
		case orchestrator.ReasonNeverAnswered:
			unheard = true
		}
	}
	for i := range c.table.rows {
		w, since := &c.table.rows[i], c.table.rows[i].Since
		if w.State == orchestrator.Answering && !w.Late {
			continue
		}
		var to *cause
		text := whySilent(w.Err)
		switch {
		case w.State == orchestrator.Lost:
			to = c.get(api.ProblemLost, pattern(text, w.Name.Name))
		case w.State == orchestrator.Answering && !w.Stuck:
			to, since = c.get(api.ProblemLate, ""), w.LastAnswer
		case unheard && w.LastAnswer.IsZero():
			to = c.get(api.ProblemUnplaced, string(orchestrator.ReasonNeverAnswered))
		case c.stats.MassLoss:
			to = c.get(api.ProblemMassLoss, "")
		case w.Stuck:
			to = c.get(api.ProblemStuck, "")
		default:
			to = c.get(api.ProblemSilent, pattern(text, w.Name.Name))
		}
		to.workers[i] = true
		to.addErr(text, w.Name.Name, "")
		to.addSince(since)
		switch {
		case w.State == orchestrator.Lost:
			for range c.table.tasks[i] {
				to.instances++
			}
		case to.kind != api.ProblemUnplaced:
			to.instances += held[i]
		}
	}
}

// whySilent returns why a worker does not answer, in the same words whether it was called in this term or
// in an earlier one.
func whySilent(text string) string {
	for _, prefix := range []string{", and the last call failed: ", ": "} {
		text = strings.TrimPrefix(text, orchestrator.ErrSilent.Error()+prefix)
	}
	if text == context.DeadlineExceeded.Error() {
		text = orchestrator.ErrSilent.Error()
	}
	return text
}

// ofMissing adds the instances that are missing, and those that cannot leave a draining
// worker, grouped by why.
func (c *causes) ofMissing() {
	failed := c.failedStarts()
	for i := range c.plan().Waiting {
		w := &c.plan().Waiting[i]
		switch kind := w.Kind(); {
		case kind == orchestrator.WaitingFailing:
			c.addFailing(w, failed[w.Task])
		case kind == orchestrator.WaitingHeld, w.Reason == orchestrator.ReasonPinned, w.Reason == orchestrator.ReasonStopping:
			// See ofWorkers. A pinned task ends by itself. A stop that failed is in ofPauses.
		default:
			to := c.get(api.ProblemKind(kind), string(w.Reason)+causesText(w))
			to.reason, to.rules = w.Reason, causesText(w)
			to.add(w.Task, w.Instances)
			if w.Named {
				c.addWorker(to, w.Worker)
			}
			if w.Reason == orchestrator.ReasonPaused && len(failed[w.Task]) > 0 {
				to.addErr(errText(failed[w.Task][0].err), "", w.Task)
			}
		}
	}
	if !c.lead.Config().DryRun {
		return
	}
	for i := range c.plan().Changes {
		if change := &c.plan().Changes[i]; change.Kind.Op == orchestrator.Start && change.Outcome == orchestrator.OutcomeDry {
			c.get(api.ProblemUnplaced, "dry run").add(change.Task, 1)
		}
	}
}

// failure is a start that failed. until is the first term that tries again, if it pauses.
type failure struct {
	worker string
	err    error
	until  uint64
}

// failedStarts returns the starts that failed and count, by task.
func (c *causes) failedStarts() map[string][]failure {
	failed := make(map[string][]failure)
	for i := range c.plan().Changes {
		change := &c.plan().Changes[i]
		if change.Kind.Op != orchestrator.Stop && change.Err != nil && change.Outcome != orchestrator.OutcomeSkipped {
			failed[change.Task] = append(failed[change.Task], failure{change.To, change.Err, 0})
		}
	}
	for i := range c.plan().Paused {
		p := &c.plan().Paused[i]
		if p.Kind == orchestrator.PauseStart || p.Kind == orchestrator.PauseTask {
			failed[p.Task] = append(failed[p.Task], failure{p.Worker, p.Err, p.Until})
		}
	}
	return failed
}

// addFailing adds instances whose starts fail. The cause is the error, wherever and for
// whichever task it occurs.
func (c *causes) addFailing(w *orchestrator.Waiting[string, string], failed []failure) {
	if len(failed) == 0 { // the workers that remain are quarantined
		c.get(api.ProblemFailing, "").add(w.Task, w.Instances)
		return
	}
	first := failed[0]
	for _, f := range failed {
		if w.Named && f.worker == w.Worker {
			first = f
		}
	}
	what := pattern(errText(first.err), first.worker, w.Task)
	to := c.get(api.ProblemFailing, what)
	to.addErr(errText(first.err), first.worker, w.Task)
	to.add(w.Task, w.Instances)
	for _, f := range failed {
		to.others = to.others || pattern(errText(f.err), f.worker, w.Task) != what
		c.addWorker(to, f.worker)
		if f.until > 0 && (to.until == 0 || f.until < to.until) {
			to.until = f.until
		}
	}
}

// attempt is what is tried again and again: the start of a task, on any worker, or its stop on one worker.
type attempt struct{ task, worker string }

// countTries counts the tries that failed since the last one that succeeded, or since the task was added: the
// starts of tasks that fail to start, and their workers, and the stops. The error of the first start stands for all, so that the text stays.
func (c *causes) countTries() {
	of := make(map[attempt]*cause)
	by := make(map[*cause]map[string]bool)
	for _, one := range c.all {
		switch {
		case one.kind == api.ProblemFailing && one.tried != "runs" && one.err != "":
			by[one] = make(map[string]bool)
			for task := range one.tasks {
				of[attempt{task, ""}] = one
			}
		case one.tried == "stops":
			one.tries = 0
			for task := range one.tasks {
				for i := range one.workers {
					of[attempt{task, c.table.rows[i].Name.Name}] = one
				}
			}
		}
	}
	if len(of) == 0 {
		return
	}
	try := func(change *history.Change, on attempt) {
		switch one := of[on]; {
		case one == nil:
		case change.Outcome == orchestrator.OutcomeDone:
			delete(of, on)
		case change.Err == nil || change.Outcome == orchestrator.OutcomeSkipped:
		case one.tried == "stops":
			one.tries++
			one.since = change.Began
		case change.Outcome != orchestrator.OutcomeStopping:
			one.tries++
			one.err, one.worker, one.task = errText(change.Err), change.To, change.Task
			by[one][change.To] = true
			c.addWorker(one, change.To)
		}
	}
	count := func(change *history.Change) {
		if change.Kind.Op != orchestrator.Stop {
			try(change, attempt{change.Task, ""})
		}
		if change.Kind.Op != orchestrator.Start {
			try(change, attempt{change.Task, change.From})
		}
	}
	for i := range slices.Backward(c.plan().Changes) {
		count(&c.plan().Changes[i])
	}
	for t := range c.h.history.View().Terms(orchestrator.Term{}) {
		if t.Stats.Term.Compare(c.stats.Term) >= 0 {
			continue
		}
		for i := range slices.Backward(t.Changes) {
			count(&t.Changes[i])
		}
		waits := make(map[attempt]bool)
		for i := range t.Waiting {
			waits[attempt{t.Waiting[i].Task, ""}] = true
		}
		for i := range t.Paused {
			waits[attempt{t.Paused[i].Task, t.Paused[i].Worker}] = true
		}
		for i := range t.Changes {
			waits[attempt{t.Changes[i].Task, t.Changes[i].From}] = true
		}
		maps.DeleteFunc(of, func(a attempt, _ *cause) bool { // it was not expected then, or nothing stopped it
			return t.WaitingMore == 0 && t.PausedMore == 0 && !waits[a]
		})
		if len(of) == 0 {
			break
		}
	}
	for one, workers := range by {
		one.triedBy = len(workers)
	}
}

// ofPauses adds what failed so often that it pauses.
func (c *causes) ofPauses() {
	for i := range c.plan().Paused {
		p := &c.plan().Paused[i]
		var to *cause
		switch p.Kind {
		case orchestrator.PauseWorker:
			what := pattern(errText(p.Err), p.Worker, p.Task)
			if to = c.byKey[causeKey{api.ProblemFailing, what}]; to != nil {
				c.addWorker(to, p.Worker) // the same cause
				continue
			}
			to = c.get(api.ProblemQuarantined, what)
			c.addWorker(to, p.Worker)
			to.tries += p.Failures
		case orchestrator.PauseStop:
			kind := api.ProblemUnexpected
			if i, ok := c.table.index[p.Worker]; ok && c.table.rows[i].Draining { // it holds up the drain
				kind = api.ProblemStaying
			}
			to = c.get(kind, "stop: "+pattern(errText(p.Err), p.Worker, p.Task))
			to.add(p.Task, 1)
			c.addWorker(to, p.Worker)
			to.tried = "stops"
		case orchestrator.PauseMoves:
			same := func(one *cause) bool { return one.kind == api.ProblemFailing && one.err == errText(p.Err) }
			if i := slices.IndexFunc(c.all, same); i >= 0 {
				c.all[i].moves = c.stats.Deferred
				continue
			}
			if c.stats.Deferred == 0 {
				continue
			}
			to = c.get(api.ProblemDeferred, "")
			to.instances = c.stats.Deferred
		default:
			continue
		}
		to.addErr(errText(p.Err), p.Worker, p.Task)
		to.until = max(to.until, p.Until)
	}
}

// ofRuns adds the tasks whose runs fail, grouped by why.
func (c *causes) ofRuns() {
	for i := range c.table.rows {
		for _, s := range c.snapshot.States(i) {
			if fails(&s) {
				to := c.get(api.ProblemFailing, "run: "+pattern(s.Err, c.table.rows[i].Name.Name, s.Name.Name))
				to.tried, to.workers[i] = "runs", true
				to.addErr(s.Err, c.table.rows[i].Name.Name, s.Name.Name)
				to.add(s.Name.Name, 0)
				to.tries = max(to.tries, s.Attempts)
				if !s.Failing.IsZero() {
					to.addSince(s.Failing)
				}
			}
		}
	}
}

// fails reports whether a person is needed.
func fails(s *api.TaskState) bool {
	const some = 3
	switch s.State {
	case "failed", "failing":
		return true
	case "backoff":
		return s.Attempts == 0 || s.Attempts >= some
	case "running", "starting":
		return s.Attempts >= some || s.Attempts == 0 && s.Err != "" && s.Since.IsZero()
	}
	return false
}

// ofBand adds the workers that have been out of their band for a minute, if moves help: some wait, or are made.
func (c *causes) ofBand() {
	const long = time.Minute
	waits := c.stats.Deferred + c.stats.MovesHeld
	if waits+c.stats.Changes[orchestrator.ChangeKind{Op: orchestrator.Move, Reason: orchestrator.ReasonRebalance}] == 0 {
		return
	}
	for i := range c.table.rows {
		if since := c.table.rows[i].OutOfBand; !since.IsZero() && c.stats.Start.Sub(since) >= long {
			to := c.get(api.ProblemBand, "")
			to.workers[i], to.moves = true, waits
			to.addSince(since)
		}
	}
}

// timeOf returns about when a later term begins.
func (c *causes) timeOf(number uint64) time.Time {
	every := c.lead.Config().Every
	if every == 0 {
		every = usualGap(c.h.history.View())
	}
	return c.stats.Start.Add(time.Duration(number-c.stats.Term.Number) * every)
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
