package dashboard

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

// sample makes the contents of all pages about one fleet.
type sample struct {
	now     time.Time
	header  api.Header
	workers []api.Worker
	task    string
	changes []api.RepeatedChange
	terms   []api.TermRow
}

// newSample returns a fleet of n workers with faults. name is called with the prefix and the
// number of each name.
func newSample(n int, name func(prefix string, i int) string) *sample {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := &sample{now: now, task: name("tenant", 13)}
	s.header = api.Header{
		Term:  orchestrator.Term{Epoch: 1795338145341, Number: 1261},
		Start: now.Add(-4 * time.Second), Took: 12300 * time.Microsecond, Now: now,
	}
	for i := range n {
		w := api.Worker{
			Name: api.Name{Name: name("worker", i)}, State: orchestrator.Answering, Since: now.Add(-2 * time.Hour), SinceTerm: 1,
			LastAnswer: now.Add(-4 * time.Second), ListTook: 3 * time.Millisecond, Tasks: 36 + i%3,
		}
		switch {
		case i == 2:
			w.Draining, w.Tasks = true, 1
		case i == 5:
			w.Quarantined, w.Tasks = true, 7
		case i == 7 || i >= 4100 && i < 4200:
			w.State, w.Err, w.Since, w.SinceTerm = orchestrator.Silent, "list: no answer in time", now.Add(-44*time.Second), 1240
		case i == 8:
			w.State, w.Tasks, w.Err, w.LastAnswer = orchestrator.Lost, 31, "dial tcp 10.0.0.8:7000: connect: connection refused", time.Time{}
		case i == 9:
			w.Late, w.Stuck = true, true
		}
		s.workers = append(s.workers, w)
	}
	reject := errors.New("rejected by the worker: schema version 7 is not known here")
	for i := range 12 {
		c := api.RepeatedChange{Term: orchestrator.Term{Epoch: s.header.Term.Epoch, Number: uint64(1261 - i*7)}, Times: 1}
		c.Change = api.Change{
			Kind: orchestrator.ChangeKind{Op: orchestrator.Move, Reason: orchestrator.ReasonDrain}, Task: name("tenant", 100+i),
			From: name("worker", 2), To: name("worker", i%n), Outcome: orchestrator.OutcomeDone,
			Began: now.Add(-time.Duration(i*7+4) * time.Second), Took: 3 * time.Millisecond, Gap: 1200 * time.Microsecond,
		}
		switch i % 4 {
		case 1:
			c.Change.Kind = orchestrator.ChangeKind{Op: orchestrator.Start, Reason: orchestrator.ReasonMissing}
			c.Change.From, c.Change.Outcome, c.Change.Err, c.Change.Gap, c.Times = "", orchestrator.OutcomeFailed, reject, 0, 9
			c.Change.Task = s.task
		case 2:
			c.Change.Kind = orchestrator.ChangeKind{Op: orchestrator.Start, Reason: orchestrator.ReasonLost}
			c.Change.From, c.Change.Was, c.Change.Gap = "", name("worker", 8), 0
		case 3:
			c.Change.Kind = orchestrator.ChangeKind{Op: orchestrator.Stop, Reason: orchestrator.ReasonSurplus}
			c.Change.To, c.Change.Gap = "", 0
		}
		s.changes = append(s.changes, c)
	}
	for i := range timelineTerms {
		number := s.header.Term.Number - uint64(i)
		stats := orchestrator.TermStats{
			Term: orchestrator.Term{Epoch: s.header.Term.Epoch, Number: number}, Start: now.Add(-time.Duration(i+1) * 4 * time.Second),
			Listing: time.Duration(3000+number*37%900) * time.Microsecond, Planning: 400 * time.Microsecond,
			Instances: s.instances(), Workers: s.workerStats(),
		}
		if i%9 == 2 {
			stats.Writing, stats.Adds, stats.LowerBound = time.Duration(i)*300*time.Microsecond, i/4+1, i/5+1
			stats.Changes = map[orchestrator.ChangeKind]int{{Op: orchestrator.Move, Reason: orchestrator.ReasonDrain}: stats.Adds}
			stats.Outcomes = map[orchestrator.Outcome]int{orchestrator.OutcomeDone: stats.Adds - 1, orchestrator.OutcomeFailed: 1}
		}
		if i < 40 {
			stats.Instances.Missing = 0
		}
		if i == 11 {
			stats.Cut, stats.Err = true, errors.New("context deadline exceeded")
		}
		stats.Total = stats.Listing + stats.Planning + stats.Writing
		stats.List = orchestrator.CallStats{Done: n - 2, Timeout: 1, Failed: 1, Seconds: orchestrator.Durations{Count: uint64(n), Sum: time.Second, Buckets: [16]uint64{1, 5, 3, 1}}}
		stats.Add = orchestrator.CallStats{Done: 3, Rejected: 1}
		s.terms = append(s.terms, api.TermRow{Stats: stats, Quiet: i % 5 * 3})
	}
	return s
}

func (s *sample) workerStats() orchestrator.WorkerStats {
	var stats orchestrator.WorkerStats
	for _, w := range s.workers {
		switch w.State {
		case orchestrator.Silent:
			stats.Silent++
		case orchestrator.Lost:
			stats.Lost++
		default:
			stats.Answering++
		}
		for _, counted := range []struct {
			is    bool
			count *int
		}{{w.Draining, &stats.Draining}, {w.Quarantined, &stats.Quarantined}, {w.Late, &stats.Late}} {
			if counted.is {
				*counted.count++
			}
		}
	}
	return stats
}

func (s *sample) instances() orchestrator.InstanceStats {
	held, running := 0, 0
	for _, w := range s.workers {
		switch w.State {
		case orchestrator.Silent:
			held += w.Tasks
		case orchestrator.Answering:
			running += w.Tasks
		}
	}
	return orchestrator.InstanceStats{Wanted: held + running + 5, Running: running, Held: held, Missing: 5, Unplaceable: 4}
}

// at returns the i-th worker, or the last one of a smaller fleet.
func (s *sample) at(i int) api.Name { return s.workers[min(i, len(s.workers)-1)].Name }

func (s *sample) waiting() []api.Waiting {
	return []api.Waiting{
		{Task: s.task, Instances: 4, Reason: orchestrator.ReasonNoOtherWorker},
		{Task: s.task, Instances: 1, Reason: orchestrator.ReasonHeld, Worker: s.at(7).Name, Named: true},
	}
}

func (s *sample) overview() *api.Status {
	worker, task := s.at(8), api.Name{Name: s.task}
	return &api.Status{
		Header: s.header, Title: "payments", Summary: "422 of 463 instances run; 5 things need a person",
		Progress: &api.Progress{Term: orchestrator.Term{Number: 1262}, Phase: orchestrator.PhaseWrite, Done: 3, Total: 40, WaitingFor: []string{worker.Name}},
		Problems: []api.Problem{
			{Kind: api.ProblemLost, Text: worker.Name + " is lost: it did not answer for 44 s, and other workers take its 31 tasks", Workers: []api.Name{worker}, WorkersTotal: 1, Since: s.now.Add(-80 * time.Second)},
			{Kind: api.ProblemUnplaced, Text: "4 instances of " + task.Name + " have no place: every worker that could take it runs one already", Tasks: []api.Name{task}, TasksTotal: 1},
			{Kind: api.ProblemSilent, Text: "100 workers are silent: no answer in time; they hold 3,700 instances", Workers: []api.Name{s.at(7), s.at(4101), s.at(4102)}, WorkersTotal: 100, Since: s.now.Add(-44 * time.Second)},
			{Kind: api.ProblemQuarantined, Text: s.at(5).Name + " is quarantined after 9 failed starts: disk full", Workers: []api.Name{s.at(5)}, WorkersTotal: 1},
		},
		ProblemsTotal: 5, Workers: s.workerStats(), Instances: s.instances(), Changes: s.changes,
	}
}

// pages returns the contents of all pages, by the name of the template.
func (s *sample) pages() map[string]*frame {
	frames := make(map[string]*frame)
	add := func(name, path, query string, content any) {
		values, _ := url.ParseQuery(query)
		frames[name] = &frame{
			Dashboard: "payments", Path: path, Query: values, Writable: true, HistorySince: s.now.Add(-3 * time.Hour), Header: s.header, Content: content,
			Fleet: s.workers, Plot: s.terms,
		}
	}
	rows := s.workers[:min(len(s.workers), 200)]
	part := api.Page{Total: len(s.workers), Matching: len(s.workers)}
	if len(rows) < len(s.workers) {
		part.After = "6.more & more"
	}
	add("overview", "", "", s.overview())
	add("workers", "workers", "", &api.Workers{Header: s.header, Page: part, Workers: rows})

	worker := &api.WorkerDetail{Header: s.header, Worker: s.workers[min(5, len(s.workers)-1)], TasksPage: api.Page{Total: 1234, Matching: 1234, After: "x"}, Changes: s.changes}
	was, is := &history.Condition{State: orchestrator.Answering}, &history.Condition{State: orchestrator.Silent, Draining: true}
	events := []api.WorkerEvent{
		{Worker: s.at(1).Name, Before: was, After: is, Tasks: 36, Err: "no answer in time"}, {Worker: s.at(2).Name, After: was}, {Worker: s.at(3).Name, Before: is},
	}
	for _, e := range events {
		worker.Events = append(worker.Events, api.TermEvent{Term: s.header.Term, Start: s.now.Add(-time.Minute), WorkerEvent: e})
	}
	worker.EventsTotal, worker.ChangesTotal = 51, 1000
	worker.Pauses = []api.Pause{
		{Kind: orchestrator.PauseWorker, Worker: s.at(5).Name, Until: 1300, Failures: 9, Err: errors.New("disk full")},
		{Kind: orchestrator.PauseStart, Worker: s.at(5).Name, Task: s.task, Until: 1290, Failures: 2, Err: errors.New("disk full")},
	}
	for i := range 200 {
		worker.Running = append(worker.Running, api.TaskState{Name: api.Name{Name: strings.Replace(s.task, "13", fmt.Sprint(i), 1)}, State: []string{"", "running", "queued", "failing"}[i%4]})
	}
	for i := range 60 {
		worker.Load = append(worker.Load, api.LoadPoint{Term: s.header.Term, Time: s.now.Add(time.Duration(i-120) * time.Minute), Tasks: 30 + i*i%11})
	}
	add("worker", "worker", "name="+url.QueryEscape(worker.Name.Name), worker)

	var tasks []api.Task
	for i := range 50 {
		task := api.Task{Name: api.Name{Name: strings.Replace(s.task, "13", fmt.Sprint(i), 1)}, Instances: 1 + i%3, Workers: []api.Name{s.at(i), s.at(i + 1)}, WorkersTotal: 2 + i%4}
		if i < 3 {
			task.Waiting, task.Missing, task.Workers, task.WorkersTotal = s.waiting(), 4, nil, 0
		}
		tasks = append(tasks, task)
	}
	add("tasks", "tasks", "q=tenant", &api.Tasks{Header: s.header, Page: api.Page{Total: 1_000_000, Matching: 328, After: "0.tenant"}, Tasks: tasks})

	task := &api.TaskDetail{
		Header: s.header, Task: api.Task{Name: api.Name{Name: s.task}, Instances: 14, Missing: 4, Waiting: s.waiting(), Workers: []api.Name{s.at(1)}, WorkersTotal: 10},
		Changes: s.changes, LongestGap: 45 * time.Millisecond, ReasonsPage: part,
	}
	reasons := []api.WorkerReason{
		{Has: true, Reason: orchestrator.ReasonStays},
		{Has: true, Reason: orchestrator.ReasonHeld},
		{Reason: orchestrator.ReasonDrain},
		{Reason: orchestrator.ReasonFailed, Until: 1300, Failure: "schema version 7 is not known here"},
		{Reason: orchestrator.ReasonEnough},
		{Reason: orchestrator.ReasonLost},
	}
	for i := range rows {
		r := reasons[i%len(reasons)]
		r.Worker = rows[i].Name
		task.Reasons = append(task.Reasons, r)
	}
	add("task", "task", "name="+url.QueryEscape(s.task), task)

	add("terms", "terms", "", &api.Terms{Header: s.header, Page: api.Page{Total: 1000, Matching: 1000, After: "1200"}, Terms: s.terms[:50]})
	term := &api.TermDetail{Header: s.header, TermRow: s.terms[2], ChangesTotal: 4000, EventsTotal: 3}
	term.Stats.Deferred = 3
	for _, c := range s.changes {
		term.Changes = append(term.Changes, c.Change)
	}
	term.Events = events
	add("term", "term", "number=1259", term)

	answer := &api.WhatIf{Header: s.header, Verdict: "93 moves and 4 starts; then each open worker has 32 or 33 tasks, and 1 instance has no place", WorkersTotal: len(s.workers), ChangesTotal: 97, WaitingTotal: 2}
	for _, w := range rows[:min(len(rows), 40)] {
		after := 33
		if w.Draining {
			after = 0
		}
		answer.Plan.Workers = append(answer.Plan.Workers, orchestrator.WorkerPlan[string]{Name: w.Name.Name, State: w.State, Draining: w.Draining, Before: w.Tasks, After: after})
	}
	for _, c := range s.changes {
		c.Change.Outcome = orchestrator.OutcomePlanned
		answer.Plan.Changes = append(answer.Plan.Changes, c.Change)
	}
	answer.Plan.Waiting = s.waiting()
	add("what-if", "what-if", url.Values{"drain": {s.at(3).Name, s.at(4).Name}, "add": {s.at(0).Name}}.Encode(), answer)

	add("about", "about", "", &api.Settings{
		Header: s.header, Config: orchestrator.Config{
			CommunicatorTimeout: 10 * time.Second, Concurrency: 1024, GracePeriod: 30 * time.Second, Handoff: orchestrator.StopThenStart, MaxMoves: -1,
			MaxLoss: 0.5, Settle: 200 * time.Millisecond, Epoch: 1795338145341, MaxPause: time.Minute, Seed: 42, Every: 4 * time.Second,
		},
		Go: "go1.26.1", Module: "v0.1.0", Writable: true, Limit: 1000, HistoryTerms: 1000, HistoryChanges: 4711, HistorySince: s.now.Add(-3 * time.Hour),
	})
	add("error", "no/such/page", "", problem(404, "There is no page at this address."))
	add("waiting", "", "", (*api.Progress)(nil))
	return frames
}

func numbered(prefix string, i int) string { return fmt.Sprintf("%s-%02d", prefix, i) }

// render returns a page as HTML.
func render(t *testing.T, templates map[string]*template.Template, name string, f *frame) string {
	t.Helper()
	require.Contains(t, templates, name)
	var b bytes.Buffer
	require.NoError(t, templates[name].ExecuteTemplate(&b, "layout", f), name)
	return b.String()
}

// node is an element of a page that a test looks at.
type node struct {
	xml.StartElement
	text string // directly in the element
}

func (n *node) attr(name string) (string, bool) {
	for _, a := range n.Attr {
		if a.Name.Local == name {
			return a.Value, true
		}
	}
	return "", false
}

// parse returns the elements of a page. It fails the test unless each is closed where it must
// be.
func parse(t *testing.T, html string) []*node {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(html))
	d.Strict, d.Entity = false, xml.HTMLEntity // for attributes without a value
	var all, open []*node
	for {
		token, err := d.RawToken()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			n := &node{StartElement: token.Copy()}
			all = append(all, n)
			if !slices.Contains([]string{"meta", "link", "input"}, n.Name.Local) {
				open = append(open, n)
			}
		case xml.EndElement:
			require.NotEmpty(t, open)
			require.Equal(t, open[len(open)-1].Name.Local, token.Name.Local, "the end of an element")
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				open[len(open)-1].text += string(token)
			}
		}
	}
	require.Empty(t, open)
	return all
}

func TestPages_AreWellFormed(t *testing.T) {
	templates, err := newTemplates(sentences(t))
	require.NoError(t, err)
	frames := newSample(12, numbered).pages()
	require.Len(t, frames, len(templates), "every page has a sample")
	for name, f := range frames {
		t.Run(name, func(t *testing.T) {
			html := render(t, templates, name, f)
			require.NotContains(t, html, "ZgotmplZ")
			require.NotContains(t, html, "template: ", "a sentence that cannot be said")
			counts, ids := make(map[string]int), make(map[string]bool)
			for _, n := range parse(t, html) {
				tag := n.Name.Local
				counts[tag]++
				require.NotEqual(t, "style", tag)
				_, hasStyle := n.attr("style")
				require.False(t, hasStyle, "a style attribute")
				for _, a := range n.Attr {
					require.False(t, strings.HasPrefix(a.Name.Local, "on"), "the attribute %s", a.Name.Local)
				}
				if id, ok := n.attr("id"); ok {
					require.False(t, ids[id], "the id %s twice", id)
					ids[id] = true
				}
				switch tag {
				case "script":
					require.Empty(t, n.text, "an inline script")
				case "th":
					scope, _ := n.attr("scope")
					require.NotEmpty(t, scope, "a scope")
				}
			}
			for _, tag := range []string{"h1", "main", "header", "nav"} {
				require.Equal(t, 1, counts[tag], tag)
			}
			require.Equal(t, counts["table"], counts["caption"])
		})
	}
}

// Every address is relative, so that it works beneath any prefix.
func TestD4_LinksAreRelative(t *testing.T) {
	templates, err := newTemplates(sentences(t))
	require.NoError(t, err)
	for name, f := range newSample(12, numbered).pages() {
		links := 0
		for _, n := range parse(t, render(t, templates, name, f)) {
			for _, attr := range []string{"href", "src", "action"} {
				link, ok := n.attr(attr)
				if !ok {
					continue
				}
				links++
				u, err := url.Parse(link)
				require.NoError(t, err)
				require.Empty(t, u.Scheme+u.Host, link)
				require.False(t, strings.HasPrefix(u.Path, "/"), link)
			}
		}
		require.Greater(t, links, 8, name)
	}
}

// A page that does not exist may be below others.
func TestD4_LinksOfErrors(t *testing.T) {
	templates, err := newTemplates(sentences(t))
	require.NoError(t, err)
	base, err := url.Parse("https://host/a/b/no/such/page")
	require.NoError(t, err)
	for _, n := range parse(t, render(t, templates, "error", newSample(12, numbered).pages()["error"])) {
		if link, ok := n.attr("href"); ok && !strings.HasPrefix(link, "#") {
			u, err := base.Parse(link)
			require.NoError(t, err)
			require.Regexp(t, "^https://host/a/b/(web/[a-z.]+|[a-z-]*)$", u.String())
		}
	}
}

func TestD20_ErrorNamesTheLeader(t *testing.T) {
	templates, err := newTemplates(sentences(t))
	require.NoError(t, err)
	notLeading := (&Handler{}).notLeading("This process does not lead.")
	for leader, link := range map[string]string{
		"": "", "https://host:8080/dashboard/": "https://host:8080/dashboard/", "host:8080": "", "javascript:alert(1)": "",
	} {
		notLeading.Leader = leader
		html := render(t, templates, "error", &frame{Dashboard: "payments", Content: notLeading})
		require.Contains(t, html, "<h1>This process does not lead</h1>")
		require.Contains(t, html, template.HTMLEscapeString(leader))
		links := 0
		for _, n := range parse(t, html) {
			if href, _ := n.attr("href"); strings.Contains(href, "host") || strings.Contains(href, "script:") {
				require.Equal(t, link, href)
				links++
			}
		}
		require.Equal(t, link != "", links > 0, leader)
	}
}

// The names of workers and tasks come from elsewhere. Their links find them, their text shows
// them, and neither becomes a part of the page.
func TestD10_HostileNames(t *testing.T) {
	templates, err := newTemplates(sentences(t))
	require.NoError(t, err)
	for _, hostile := range []string{
		"..", "", " ", "<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "a/b?c#d&name=e", "javascript:alert(1)", "{{.}}", "100%41+x",
		printable("line\nbreak"), printable("a\u202eb"), printable("\xff\x00"), "worker", "日本語", "</svg></table>",
	} {
		s := newSample(12, func(string, int) string { return hostile })
		for name, f := range s.pages() {
			html := render(t, templates, name, f)
			shown, found := 0, 0
			for _, n := range parse(t, html) {
				require.NotEqual(t, "img", n.Name.Local)
				for _, a := range n.Attr {
					require.False(t, strings.HasPrefix(a.Name.Local, "on"))
				}
				if n.Name.Local == "script" {
					require.Empty(t, n.text)
				}
				if n.Name.Local == "bdi" {
					require.Equal(t, textOf(hostile), n.text)
					shown++
				}
				href, _ := n.attr("href")
				if u, err := url.Parse(href); err == nil && (u.Path == "worker" || u.Path == "task") {
					require.Equal(t, []string{hostile}, u.Query()["name"], href)
					found++
				}
			}
			if !slices.Contains([]string{"about", "error", "waiting", "terms"}, name) {
				require.Positive(t, shown, name)
				require.Positive(t, found, name)
			}
		}
	}
}

func sentences(t *testing.T) words {
	t.Helper()
	w, err := newWords()
	require.NoError(t, err)
	return w
}

func TestHistogram(t *testing.T) {
	var workers []api.Worker
	for _, tasks := range []int{3, 3, 4, 9, 900} {
		workers = append(workers, api.Worker{State: orchestrator.Answering, Tasks: tasks})
	}
	workers = append(workers, api.Worker{State: orchestrator.Lost, Tasks: 7})
	type row struct{ from, to, workers int }
	rows := func() (rows []row) {
		for _, b := range histogramOf(workers) {
			rows = append(rows, row{b.From, b.To, b.Workers})
		}
		return rows
	}
	require.Equal(t, []row{{3, 59, 4}, {858, 914, 1}}, rows())
	workers[4].Tasks = 5
	require.Equal(t, []row{{3, 3, 2}, {4, 4, 1}, {5, 5, 1}, {9, 9, 1}}, rows())
	require.Empty(t, histogramOf(nil))
}

// Each worker is in one cell, and workers in the same state are one line.
func TestCells(t *testing.T) {
	workers := make([]api.Worker, 100)
	for i := range workers {
		workers[i] = api.Worker{State: orchestrator.Answering, Tasks: 10}
	}
	workers[3].Tasks, workers[40].State = 20, orchestrator.Silent
	plot := cellsOf(workers)
	require.Equal(t, 30*6, plot.Width)
	require.Equal(t, 4*6, plot.Height)
	counts := make(map[string]int)
	for _, layer := range plot.Layers {
		counts[layer.Class] = layer.Workers
	}
	require.Equal(t, map[string]int{"answering": 98, "over": 1, "silent": 1}, counts)
	require.Equal(t, "M0 3h17M24 3h155M0 9h59M66 9h113M0 15h179M0 21h59", plot.Layers[0].Path)
	require.Nil(t, cellsOf(nil))
}

// The bars of the timeline fill its width, however many terms there are.
func TestTimeline(t *testing.T) {
	rows := newSample(12, numbered).terms
	for _, n := range []int{1, 2, 7, 119, 120} {
		plot := timelineOf(rows[:n])
		require.Len(t, plot.Bars, n)
		pitch := timelineWidth / n
		first, last := plot.Bars[0].Phases[0], plot.Bars[n-1].Phases[0]
		require.Less(t, first.X, pitch+n)
		require.Greater(t, last.X+last.Width, timelineWidth-pitch)
		require.LessOrEqual(t, last.X+last.Width, timelineWidth)
	}
	require.Equal(t, 30, timelineOf(rows[:5]).Quiet)
	require.Nil(t, timelineOf(nil))
}

// The page of a task says which term brought it to each worker, as far as the history knows.
func TestD14_WhyHere(t *testing.T) {
	on := api.WorkerReason{Worker: api.Name{Name: "w2"}, Has: true, Reason: orchestrator.ReasonStays}
	change := func(number uint64, op orchestrator.ChangeOp, reason orchestrator.Reason, to string, outcome orchestrator.Outcome) api.RepeatedChange {
		return api.RepeatedChange{
			Change: api.Change{Kind: orchestrator.ChangeKind{Op: op, Reason: reason}, To: to, Outcome: outcome},
			Term:   orchestrator.Term{Number: number}, Times: 1,
		}
	}
	require.Equal(t, "it ran here before, and nothing moves it", sentences(t).reasonOf(on, nil))
	changes := []api.RepeatedChange{
		change(1300, orchestrator.Move, orchestrator.ReasonRebalance, "w2", orchestrator.OutcomeFailed),
		change(1200, orchestrator.Start, orchestrator.ReasonMissing, "w3", orchestrator.OutcomeDone),
		change(1100, orchestrator.Move, orchestrator.ReasonDrain, "w2", orchestrator.OutcomeDone),
		change(1000, orchestrator.Start, orchestrator.ReasonLost, "w2", orchestrator.OutcomeDone),
	}
	require.Equal(t, "moved here from a draining worker in term 1,100", sentences(t).reasonOf(on, changes))
	on.Has, on.Reason, on.Until = false, orchestrator.ReasonPaused, 1400
	require.Equal(t, "starts pause, because the last ones failed; tried again in term 1,400", sentences(t).reasonOf(on, changes))
	on.Has, on.Reason, on.Until = true, orchestrator.ReasonStays, 0
	changes[2] = change(1100, orchestrator.Move, orchestrator.ReasonRoom, "w2", orchestrator.OutcomeDone)
	require.Equal(t, "moved here, because it makes room for another one in term 1,100", sentences(t).reasonOf(on, changes))
}

func TestText(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", -100: "-100"} {
		require.Equal(t, want, grouped(n))
	}
	for d, want := range map[time.Duration]string{
		0: "0 µs", 900: "0.9 µs", 12300 * time.Microsecond: "12 ms", 1200 * time.Microsecond: "1.2 ms", 9990 * time.Millisecond: "9 s",
		time.Minute: "1 min", 130 * time.Second: "2 min 10 s", 25 * time.Hour: "1 d 1 h", 90 * time.Minute: "1 h 30 min",
	} {
		require.Equal(t, want, took(d))
	}
	now := time.Now()
	for d, want := range map[time.Duration]string{
		-time.Second: "just now", 999 * time.Millisecond: "just now", 119 * time.Second: "119 s ago", 2 * time.Minute: "2 min ago",
		2 * time.Hour: "2 h ago", 47 * time.Hour: "47 h ago", 48 * time.Hour: "2 d ago",
	} {
		require.Equal(t, want, agoOf(now.Add(-d), now).Ago)
	}
}

// Names are linked within the text of a problem as whole words. If it does not have all, they
// are listed.
func TestLinked(t *testing.T) {
	problem := api.Problem{
		Text:    "w10 and w1 refuse t1.",
		Workers: []api.Name{{Name: "w1"}, {Name: "w10"}}, WorkersTotal: 2, Tasks: []api.Name{{Name: "t1"}, {Name: "t2"}}, TasksTotal: 9,
	}
	l := linked(problem)
	text := ""
	for _, p := range l.Parts {
		switch {
		case p.Worker != nil:
			text += "<" + p.Worker.Name + ">"
		case p.Task != nil:
			text += "[" + p.Task.Name + "]"
		}
		text += p.Text
	}
	require.Equal(t, "<w10> and <w1> refuse [t1].", text)
	require.Empty(t, l.Workers.Names)
	require.Equal(t, nameList{problem.Tasks, 7}, l.Tasks)
}

// No page exceeds 256 kB, whatever the states of 10,000 workers.
func TestD2_Sizes(t *testing.T) {
	const most = 256 << 10
	templates, err := newTemplates(sentences(t))
	require.NoError(t, err)
	s := newSample(10_000, numbered)
	for i := range s.workers { // no two neighbours have the same cell
		s.workers[i].Quarantined = i%2 == 0
	}
	for name, f := range s.pages() {
		require.Less(t, len(render(t, templates, name, f)), most, name)
	}
	cells := 0
	for _, layer := range cellsOf(s.workers).Layers {
		cells += len(layer.Path)
	}
	require.Less(t, cells, 166<<10)
	require.Nil(t, cellsOf(make([]api.Worker, mostCells+1)))
}

// Names of the longest kind take most in links.
func TestD2_LongNames(t *testing.T) {
	templates, err := newTemplates(sentences(t))
	require.NoError(t, err)
	s := newSample(40, func(string, int) string { return strings.Repeat("\U0001f9ed", api.LongestText) })
	content, f := s.overview(), s.pages()["overview"]
	require.False(t, f.HasBars())
	for i := range content.Problems {
		content.Problems[i].Workers = slices.Repeat([]api.Name{s.at(0)}, mostNames)
	}
	cutProblems(content, &query{tagged: true, bytes: pageBytes})
	content.Changes = content.Changes[:fit(content.Changes, pageBytes/3)]
	f.Content = content
	html := render(t, templates, "overview", f)
	require.Less(t, len(html), 256<<10)
	require.Contains(t, html, "more</p>", "the problems that are left out")
}

func TestHeldText(t *testing.T) {
	until := time.Date(2026, 11, 27, 23, 30, 0, 0, time.FixedZone("", 3600))
	for want, c := range map[string]struct {
		moves int
		holds []orchestrator.Hold
	}{
		"":                                {},
		"7 moves for an even spread wait": {moves: 7},
		"Moves for an even spread wait: a\\u000a": {holds: []orchestrator.Hold{{Why: "a\n"}}},
		"1 move for an even spread waits: a, until 2026-11-27 22:30:00 UTC at the latest; b": {
			1, []orchestrator.Hold{{Why: "a", Until: until}, {Why: "b"}},
		},
		"2 moves for an even spread wait: a; b; c; and 2 more": {2, []orchestrator.Hold{{Why: "a"}, {Why: "b"}, {Why: "c"}, {Why: "d"}, {Why: "e"}}},
	} {
		require.Equal(t, want, sentences(t).held(c.moves, c.holds))
	}
}
