package dashboard

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

// overdueAfter is after how many intervals without a term a person is needed, and overdueLeast after
// how long at least.
const (
	overdueAfter = 3
	overdueLeast = 10 * time.Second
)

// status returns the state of the fleet.
func (v *view) status(q *query) (api.Status, *api.Error) {
	out := api.Status{
		Header: v.header(), Title: v.h.title, Progress: v.progress(),
		Workers: v.stats.Workers, Instances: v.stats.Instances,
		Holds: someHolds(v.plan().Holds), HeldSince: v.heldSince(), MovesHeld: v.stats.MovesHeld,
		HighestLoad: v.stats.HighestLoad, OutOfBand: v.stats.OutOfBand,
	}
	out.Changes, _ = v.changesOf(history.Filter{}, lastChanges, q.bytes/3)
	problems := v.causes()
	for i := range problems {
		if problems[i].Tried == "runs" {
			out.Crashing += problems[i].TasksTotal
		}
	}
	problems = append(slices.Clone(problems), v.h.told()...)
	if late := v.overdue(out.Now); late != nil {
		problems = append(problems, *late)
	}
	if out.Observed && out.Leader == "" && v.h.leader != nil {
		problems = append(problems, api.Problem{Kind: api.ProblemNoTerms, Text: v.h.words.say("problem no terms", dict(), "")})
	}
	slices.SortStableFunc(problems, func(a, b api.Problem) int { return compareKinds(a.Kind, b.Kind) })
	out.ProblemsTotal, out.Problems = len(problems), problems
	cutProblems(&out, q)
	for i := range out.Problems {
		if p := &out.Problems[i]; p.Since.IsZero() {
			p.Since = v.since(p)
		}
	}
	out.Summary = v.summary(len(problems))
	return out, nil
}

// cutProblems removes the problems, and the names in those of a page, that make an answer too long.
func cutProblems(out *api.Status, q *query) {
	names := mostNames
	if q.tagged {
		names /= 2
	}
	out.Problems = slices.Clone(out.Problems[:min(len(out.Problems), mostProblems)])
	for i := range out.Problems {
		p := &out.Problems[i]
		p.Workers, p.Tasks = p.Workers[:min(len(p.Workers), names)], p.Tasks[:min(len(p.Tasks), names)]
	}
	out.Problems = out.Problems[:fit(out.Problems, q.bytes/3)]
}

// told returns the problems of the program.
func (h *Handler) told() (problems []api.Problem) {
	if h.problems == nil {
		return nil
	}
	for _, p := range h.problems() {
		out := api.Problem{Kind: api.ProblemKind(printable(p.Kind)), Since: p.Since}
		if p.Task != "" {
			out.Tasks, out.TasksTotal = []api.Name{{Name: history.NameText(p.Task)}}, 1
		}
		out.Text = printable(cmp.Or(p.Text, h.words.say("problem "+p.Kind, p, " ")))
		problems = append(problems, out)
	}
	return problems
}

// overdue returns a problem if no term has ended for too long, or nil. A term that waits for
// workers may take five timeouts. A process that does not lead has no terms.
func (v *view) overdue(now time.Time) *api.Problem {
	config, stats := v.lead.Config(), &v.stats
	if v.snapshot == nil || stats.Observed {
		return nil
	}
	every := config.Every
	if every == 0 { // the program calls NextTerm, or Run has returned
		every = usualGap(v.past)
	}
	end := stats.Start.Add(stats.Total)
	late := now.Sub(end)
	if late <= max(overdueAfter*every, overdueLeast) || late <= every+5*config.CommunicatorTimeout && v.progress() != nil {
		return nil
	}
	return &api.Problem{Kind: api.ProblemNoTerms, Since: end, Text: v.h.words.say("problem no terms", dict("Since", clock(end, now), "Every", config.Every), "")}
}

// usualGap returns the median time between the starts of the last terms, or a minute if there were not
// enough.
func usualGap(past *history.View) time.Duration {
	const most = 20
	var gaps []time.Duration
	_, later := past.Last()
	for t, quiet := range past.Terms(orchestrator.Term{}) {
		switch n := quiet.Terms; {
		case n > 0:
			gaps = append(gaps, slices.Repeat([]time.Duration{quiet.LastStart.Sub(t.Stats.Start) / time.Duration(n)}, min(n, most))...)
		case later.After(t.Stats.Start):
			gaps = append(gaps, later.Sub(t.Stats.Start))
		}
		if later = t.Stats.Start; len(gaps) >= most {
			break
		}
	}
	if len(gaps) < 2 {
		return time.Minute
	}
	slices.Sort(gaps)
	return gaps[len(gaps)/2]
}

// summary returns the state of the fleet in one sentence.
func (v *view) summary(problems int) string {
	say := struct {
		orchestrator.TermStats
		Seen                          bool
		Problems, All, Draining, Left int // workers; those that drain, and their tasks
	}{TermStats: v.stats, Seen: v.snapshot != nil, Problems: problems, All: len(v.workers().rows)}
	for i := range v.workers().rows {
		if w := &v.workers().rows[i]; w.Draining {
			say.Draining++
			say.Left += w.Tasks
		}
	}
	return v.h.words.say("summary", say, " ")
}

// settings returns the settings in force and what the caller may do.
func (v *view) settings(q *query) (api.Settings, *api.Error) {
	past := v.past.Counts()
	return api.Settings{
		Header: v.header(), Config: v.lead.Config(), Go: runtime.Version(), Module: moduleVersion(), Limit: mostRows,
		Writable:     v.h.drain != nil && q.access >= WriteAccess,
		HistoryTerms: past.Terms, HistoryChanges: past.Changes, HistorySince: past.Since,
	}, nil
}

// moduleVersion returns the version of this module in the program.
func moduleVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range append(info.Deps, &info.Main) {
			if module.Path == "github.com/f8949c05/orchestrator" {
				return module.Version
			}
		}
	}
	return "unknown"
}
