package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator"
	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

// TestD1_OneTerm: each answer shows one term, while terms end one after the other.
func TestD1_OneTerm(t *testing.T) {
	f := newFleet(t, 6, 60, nil)
	var mu sync.Mutex
	terms := make(map[orchestrator.Term]*orchestrator.Snapshot[string, string])
	defer f.OnTerm(func(s *orchestrator.Snapshot[string, string]) {
		mu.Lock()
		defer mu.Unlock()
		terms[s.Plan().Stats.Term] = s
	})()
	// The snapshot is Last before the functions of OnTerm are called.
	of := func(h api.Header) *orchestrator.Snapshot[string, string] {
		mu.Lock()
		defer mu.Unlock()
		if s := f.Last(); s != nil && s.Plan().Stats.Term == h.Term {
			return s
		}
		return terms[h.Term]
	}
	checkStatus := func() {
		s := f.status()
		if term := of(s.Header); term != nil {
			stats := term.Plan().Stats
			require.Equal(t, stats.Instances, s.Instances)
			require.Equal(t, stats.Workers, s.Workers)
		}
		for _, c := range s.Changes {
			require.LessOrEqual(t, c.Term.Compare(s.Term), 0, "a change of a later term")
		}
	}
	checkWorkers := func() {
		a := get[api.Workers](t, f.dashboard, "/api/v1/workers")
		term := of(a.Header)
		if term == nil {
			return
		}
		tasks := make(map[string]int)
		for w := range term.Workers() {
			tasks[w.Name] = len(w.Tasks)
		}
		for _, w := range a.Workers {
			require.Equal(t, tasks[w.Name.Name], w.Tasks)
		}
	}
	checkTask := func() {
		a := get[api.TaskDetail](t, f.dashboard, "/api/v1/task?name=t7")
		has := 0
		for _, r := range a.Reasons {
			if r.Has {
				has++
			}
		}
		require.Equal(t, a.WorkersTotal, has)
	}
	checkWhatIf := func() {
		a := get[api.WhatIf](t, f.dashboard, "/api/v1/what-if?add=w9")
		require.Equal(t, a.Term.Number+1, a.Plan.Stats.Term.Number, "a plan of another term")
	}
	require.NoError(t, f.NextTerm(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r := rand.New(rand.NewPCG(1, 1))
		for range 100 {
			name := fmt.Sprintf("w%d", 1+r.IntN(6))
			if r.IntN(2) == 0 {
				_ = f.DrainWorker(name)
			} else {
				_ = f.UndrainWorker(name)
			}
			_ = f.NextTerm(t.Context())
		}
	}()
	var others sync.WaitGroup
	for range 2 {
		others.Go(func() {
			for range 100 {
				serve(f.dashboard, request(http.MethodGet, "/api/v1/status"))
			}
		})
	}
	defer others.Wait()
	for {
		checkStatus()
		checkWorkers()
		checkTask()
		checkWhatIf()
		select {
		case <-ended:
			return
		default:
		}
	}
}

// TestLead_AnotherSource: the history has no later terms of the source before.
func TestLead_AnotherSource(t *testing.T) {
	f, other := newFleet(t, 1, 1, nil), newFleet(t, 1, 1, options{orchestrator.WithEpoch(8)})
	defer dashboard.Lead(f.dashboard, other.Orchestrator)()
	require.NoError(t, other.NextTerm(t.Context()))
	require.NoError(t, f.NextTerm(t.Context()))
	a := get[api.Terms](t, f.dashboard, "/api/v1/terms")
	require.Len(t, a.Terms, 1)
	require.EqualValues(t, 8, a.Terms[0].Stats.Term.Epoch)
}

// TestD2_Size: no answer exceeds 256 kB, even if each name and error is long and needs
// escapes, and lists that are cut have the true totals.
func TestD2_Size(t *testing.T) {
	long := func(kind string, i int) string {
		return fmt.Sprintf("%s%05d", kind, i) + strings.Repeat("<&\"\\\u2028\xff", 200)
	}
	comm := make(lists)
	h, err := dashboard.New()
	require.NoError(t, err)
	o, err := orchestrator.New(failing{comm, long("error", 0)}, orchestrator.WithSeed(1))
	require.NoError(t, err)
	for i := range 300 {
		comm[long("w", i)] = nil
		require.NoError(t, o.AddWorker(long("w", i)))
		require.NoError(t, o.AddTask(long("t", i), orchestrator.WithTaskInstances(3)))
	}
	t.Cleanup(dashboard.Lead(h, o))
	for range 2 {
		_ = o.NextTerm(t.Context())
	}
	worker, task := url.QueryEscape(long("w", 7)), url.QueryEscape(long("t", 7))
	for _, target := range []string{
		"status", "progress", "workers?limit=1000", "worker?name=" + worker, "tasks?limit=1000", "tasks?limit=1000&waiting=any",
		"task?limit=1000&name=" + task, "terms?limit=1000", "term?number=1&limit=1000", "changes?limit=1000",
		"what-if?limit=1000&drain=" + worker, "settings",
	} {
		w := serve(h, request(http.MethodGet, "/api/v1/"+target))
		require.Equal(t, http.StatusOK, w.Code, target)
		require.LessOrEqual(t, w.Body.Len(), 256<<10, target)
		for _, kind := range []string{"text/plain", "text/plain; width=40", "text/plain; width=200; colour=true", "text/plain; view=names", "text/plain; view=waiting"} {
			r := request(http.MethodGet, "/api/v1/"+target)
			r.Header.Set("Accept", kind)
			require.LessOrEqual(t, serve(h, r).Body.Len(), 256<<10, "%s as %s", target, kind)
		}
	}
	a := get[api.Workers](t, h, "/api/v1/workers?limit=1000")
	require.Equal(t, 300, a.Total)
	require.Less(t, len(a.Workers), 300, "cut")
	// All rows can be read in parts.
	seen := make(map[api.Name]bool)
	for after := ""; ; {
		a := get[api.Tasks](t, h, "/api/v1/tasks?limit=1000&after="+url.QueryEscape(after))
		require.Equal(t, 300, a.Matching)
		for _, row := range a.Tasks {
			require.False(t, seen[row.Name])
			seen[row.Name] = true
		}
		if after = a.After; after == "" {
			break
		}
	}
	require.Len(t, seen, 300)
}

// failing is a transport of which every start fails.
type failing struct {
	lists
	err string
}

func (f failing) Add(context.Context, string, string) error { return errors.New(f.err) }

// TestD3_SlowReader: a client that does not read delays no term, and a term that waits for a
// worker delays no reader.
func TestD3_SlowReader(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 3, 9, nil)
		f.terms(1)
		slow := &slowWriter{ResponseRecorder: httptest.NewRecorder(), release: make(chan struct{})}
		served := make(chan struct{})
		go func() {
			defer close(served)
			f.dashboard.ServeHTTP(slow, request(http.MethodGet, "/api/v1/workers"))
		}()
		time.Sleep(time.Second)
		before := time.Now()
		require.NoError(t, f.NextTerm(t.Context()))
		require.Zero(t, time.Since(before))
		close(slow.release)
		<-served

		f.Hang("w1", "w2", "w3")
		ended := make(chan error)
		go func() { ended <- f.NextTerm(t.Context()) }()
		time.Sleep(time.Second)
		before = time.Now()
		s := f.status()
		require.Equal(t, orchestrator.PhaseList, s.Progress.Phase)
		require.Equal(t, []string{"w1", "w2", "w3"}, s.Progress.WaitingFor)
		for _, target := range largeRequests {
			serve(f.dashboard, request(http.MethodGet, "/api/v1/"+target))
		}
		require.Zero(t, time.Since(before))
		require.Error(t, <-ended)
	})
}

// slowWriter is a client that does not read until it is released.
type slowWriter struct {
	*httptest.ResponseRecorder
	release chan struct{}
}

func (w *slowWriter) Write(b []byte) (int, error) {
	<-w.release
	return w.ResponseRecorder.Write(b)
}

// alike is a name that prints without its number.
type alike struct {
	text string
	id   int
}

func (n alike) String() string { return n.text }

// TestD10_Names: every worker and task is found by the name in a list, if it is used as a
// link, whatever names there are.
func TestD10_Names(t *testing.T) {
	checkNames(t, "", "a", "a", "..", "a/b?c#d&e=f", "<script>alert(1)</script>", "a\nb", `a\u000ab`, "\xff", `\xff`, " ", "%41",
		"\u202e", strings.Repeat("x", 600), strings.Repeat("x", 601), "2.a", "+", "漢")
}

func FuzzD10_Names(f *testing.F) {
	f.Add("a", "a\n", `a\u000a`)
	f.Add("\xff", "", strings.Repeat("\x00", 300))
	f.Fuzz(func(t *testing.T, a, b, c string) { checkNames(t, a, b, c, a) })
}

// fixed answers with fixed lists of tasks.
type fixed map[alike][]alike

func (f fixed) List(_ context.Context, worker alike) ([]alike, error) { return f[worker], nil }
func (f fixed) Add(context.Context, alike, alike) error               { return nil }
func (f fixed) Remove(context.Context, alike, alike) error            { return orchestrator.ErrStopping }

// checkNames makes a fleet with these names of workers and tasks. Worker i has i tasks,
// which distinguishes them, and task i has i+1 instances. One more task is not expected.
func checkNames(t *testing.T, texts ...string) {
	t.Helper()
	comm := make(fixed)
	o, err := orchestrator.New(comm, orchestrator.WithMaxMoves(0))
	require.NoError(t, err)
	for i, text := range texts {
		require.NoError(t, o.AddWorker(alike{text, i}))
		require.NoError(t, o.AddTask(alike{text, i}, orchestrator.WithTaskInstances(len(texts)-i)))
		for j := range i {
			comm[alike{text, i}] = append(comm[alike{text, i}], alike{texts[j], j})
		}
	}
	last := alike{texts[0], len(texts)} // prints like the first
	w := alike{texts[len(texts)-1], len(texts) - 1}
	comm[w] = append(comm[w], last)
	h, err := dashboard.New()
	require.NoError(t, err)
	defer dashboard.Lead(h, o)()
	_ = o.NextTerm(t.Context())

	link := func(n api.Name) string {
		require.NotEmpty(t, n.Name)
		return "name=" + url.QueryEscape(n.Name)
	}
	counts, found := make(map[int]int), 0
	workers := make(map[api.Name]bool)
	for after := ""; ; {
		list := get[api.Workers](t, h, "/api/v1/workers?limit=2&after="+url.QueryEscape(after))
		for _, row := range list.Workers {
			found++
			require.False(t, workers[row.Name], "%q is there twice", row.Name)
			workers[row.Name] = true
			detail := get[api.WorkerDetail](t, h, "/api/v1/worker?limit=1000&"+link(row.Name))
			require.Equal(t, row, detail.Worker)
			require.Len(t, detail.Running, row.Tasks)
			for _, task := range detail.Running {
				get[api.TaskDetail](t, h, "/api/v1/task?"+link(task.Name))
			}
		}
		if after = list.After; after == "" {
			break
		}
	}
	require.Equal(t, len(texts), found)
	tasks := make(map[api.Name]bool)
	for after := ""; ; {
		list := get[api.Tasks](t, h, "/api/v1/tasks?limit=2&after="+url.QueryEscape(after))
		for _, row := range list.Tasks {
			require.False(t, tasks[row.Name], "%q is there twice", row.Name)
			tasks[row.Name] = true
			detail := get[api.TaskDetail](t, h, "/api/v1/task?"+link(row.Name))
			require.Equal(t, row, detail.Task)
			counts[row.Instances]++
		}
		if after = list.After; after == "" {
			break
		}
	}
	want := map[int]int{0: 1}
	for i := range texts {
		want[i+1]++
	}
	require.Equal(t, want, maps.Clone(counts))
}

// TestD10_NamesThatPrintAlike: names that print alike, as strings or by their method String, have
// different texts in pages, what-if, drains and the history. They are the same for every leader.
func TestD10_NamesThatPrintAlike(t *testing.T) {
	o, err := orchestrator.New(make(fixed))
	require.NoError(t, err)
	for i := range 3 {
		require.NoError(t, o.AddWorker(alike{"x", i}))
		require.NoError(t, o.AddTask(alike{"x", i}))
	}
	var drained []int
	drain := func(_ context.Context, worker alike) error { drained = append(drained, worker.id); return nil }
	h, err := dashboard.New(dashboard.WithDrain(drain, drain))
	require.NoError(t, err)
	defer dashboard.Lead(h, o)()
	require.NoError(t, o.NextTerm(t.Context()))
	for i := range 3 {
		text := fmt.Sprintf(`dashboard_test.alike{text:"x", id:%d}`, i)
		name := url.QueryEscape(text)
		worker := get[api.WorkerDetail](t, h, "/api/v1/worker?name="+name)
		require.Equal(t, text, worker.Changes[0].Change.To)
		require.Len(t, worker.Load, 1)
		task := get[api.TaskDetail](t, h, "/api/v1/task?name="+name)
		require.Equal(t, text, task.Changes[0].Change.Task)
		require.Equal(t, []int{1, 1}, []int{worker.ChangesTotal, task.ChangesTotal})
		plan := get[api.WhatIf](t, h, "/api/v1/what-if?drain="+name).Plan
		require.Equal(t, text, plan.Workers[slices.IndexFunc(plan.Workers, func(w orchestrator.WorkerPlan[string]) bool { return w.Draining })].Name)
		require.Equal(t, http.StatusOK, serve(h, request(http.MethodPost, "/api/v1/drain?worker="+name)).Code)
	}
	require.Equal(t, []int{0, 1, 2}, drained)
	require.Contains(t, refused(t, h, request(http.MethodGet, "/api/v1/what-if?add=y")).Detail, "no text of a dashboard_test.alike, which has no method UnmarshalText")
	for _, route := range []string{"worker?name=x", "task?name=x", "what-if?drain=x"} {
		require.Equal(t, api.TypeUnknownName, refused(t, h, request(http.MethodGet, "/api/v1/"+route)).Type)
	}
}

// twin is a worker that has the text of the other incarnations of its name.
type twin struct {
	name        string
	incarnation int
}

func (n twin) MarshalText() ([]byte, error) { return []byte(n.name), nil }

// TestD10_Twins: of workers with the same text, a drain reaches the one that was meant.
func TestD10_Twins(t *testing.T) {
	o, err := orchestrator.New(&communicator.Func[twin, string]{
		ListFunc: func(_ context.Context, w twin) ([]string, error) { return make([]string, 0, w.incarnation), nil },
	})
	require.NoError(t, err)
	for i, name := range []string{"w1", "w1", "w1#2", "w1"} {
		require.NoError(t, o.AddWorker(twin{name, i}))
	}
	var drained []int
	drain := func(_ context.Context, worker twin) error { drained = append(drained, worker.incarnation); return nil }
	h, err := dashboard.New(dashboard.WithDrain(drain, drain))
	require.NoError(t, err)
	defer dashboard.Lead(h, o)()
	require.NoError(t, o.NextTerm(t.Context()))
	for _, text := range []string{"w1", "w1#2", "w1#2#2", "w1#3"} {
		name := url.QueryEscape(text)
		require.Equal(t, text, get[api.WorkerDetail](t, h, "/api/v1/worker?name="+name).Name.Name)
		require.Equal(t, http.StatusOK, serve(h, request(http.MethodPost, "/api/v1/drain?worker="+name)).Code)
	}
	require.Equal(t, []int{0, 1, 2, 3}, drained)
}

// TestD10_Strings: a string whose text is another one is not confused with that, and a parameter may
// be the string or its text.
func TestD10_Strings(t *testing.T) {
	f := newFleet(t, 0, 0, nil)
	names := []string{"", `""`, "a\n", `a\u000a`, `">x`, strings.Repeat("x", 600), strings.Repeat("x", 601), strings.Repeat("x", 509) + "…"}
	f.Start(names...)
	for _, name := range names {
		require.NoError(t, f.AddWorker(name))
		require.NoError(t, f.AddTask(name))
	}
	f.terms(1)
	workers, tasks := make(map[string]bool), make(map[string]bool)
	for _, row := range get[api.Workers](t, f.dashboard, "/api/v1/workers").Workers {
		detail := get[api.WorkerDetail](t, f.dashboard, "/api/v1/worker?name="+url.QueryEscape(row.Name.Name))
		require.Equal(t, []int{1, 1}, []int{detail.ChangesTotal, detail.Tasks})
		workers[row.Name.Name] = true
		tasks[detail.Running[0].Name.Name] = true
		why := get[api.TaskDetail](t, f.dashboard, "/api/v1/task?name="+url.QueryEscape(detail.Running[0].Name.Name))
		require.Equal(t, row.Name, why.Workers[0])
		require.Equal(t, orchestrator.ReasonMissing, why.Reasons[0].Reason)
	}
	require.Len(t, workers, len(names))
	require.Len(t, tasks, len(names))
	for name, text := range map[string]string{"": `""`, "a\n": `"a\n"`, `">x`: `"\">x"`, names[5]: history.NameText(names[5])} {
		require.Equal(t, text, get[api.WorkerDetail](t, f.dashboard, "/api/v1/worker?name="+url.QueryEscape(name)).Name.Name)
	}
}

// TestD15_LostNamesTheWorker: the last changes name the worker that had the task.
func TestD15_LostNamesTheWorker(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 3, 3, options{orchestrator.WithGracePeriod(time.Second)})
		f.terms(1)
		f.Cut("w2")
		f.terms(3)
		s := f.status()
		require.Equal(t, orchestrator.ReasonLost, s.Changes[0].Change.Kind.Reason)
		require.Equal(t, "w2", s.Changes[0].Change.Was)
		require.Equal(t, "w2", get[api.WorkerDetail](t, f.dashboard, "/api/v1/worker?name=w2").Changes[0].Change.Was)
	})
}

// blocking is a source whose Plan waits.
type blocking struct {
	dashboard.Source[string, string]
	begun, release chan struct{}
}

func (b *blocking) Plan(h orchestrator.Hypothesis[string, string]) (orchestrator.Plan[string, string], error) {
	b.begun <- struct{}{}
	<-b.release
	return b.Source.Plan(h)
}

// A task whose starts failed has a place, and waits for another try.
func TestD17_WhatIfStartsFailed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 9, 9, nil)
		f.Refuse(func(_ orchestrator.Op, _, task string) error {
			if task == "poison" {
				return fmt.Errorf("%w: no schema 7", orchestrator.ErrRejected)
			}
			return nil
		})
		require.NoError(t, f.AddTask("poison"))
		f.terms(12)
		require.Equal(t, "The next term would change nothing; each open worker would have 1 task; "+
			"1 instance would wait for another try, because starts failed.", get[api.WhatIf](t, f.dashboard, "/api/v1/what-if").Verdict)
	})
}

// A leader waits for workers to register: the overview, the task and the plan say so, and until when.
func TestD17_WhatIfWorkersHaveNotRegistered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 2, 4, options{orchestrator.WithInitialWait(time.Minute)})
		f.terms(1)
		require.Equal(t, "The next term would change nothing; each open worker would have 0 tasks; "+
			"nothing would start before 00:01:00 UTC that a worker may run which has not registered yet.",
			get[api.WhatIf](t, f.dashboard, "/api/v1/what-if").Verdict)
		f.requireShown(map[string]string{
			"/": "are not started before 00:01:00 UTC: this leader waits for workers to register", "/about": "1 min after the first term",
			"/task?name=t1": "the leader waits for workers to register, and one of them may run it",
		})
		f.requireSummary("1 thing needs attention. 4 of 4 instances are missing.",
			"unplaced: 4 instances of 4 tasks are not started before 00:01:00 UTC: this leader waits for workers to register, and one of them may run them.")
		time.Sleep(time.Minute)
		f.terms(1)
		f.requireSummary("All 4 instances run, evenly.")
	})
}

// TestD17_WhatIf: it calls no worker and changes nothing, and one plan is computed at a time.
func TestD17_WhatIf(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 3, 9, nil)
		f.terms(1)
		before, calls := f.Last(), f.Counts("t1")
		a := get[api.WhatIf](t, f.dashboard, "/api/v1/what-if?drain=w1&lose=w2&add=w9%0Aw8&limit=4")
		require.Equal(t, "The next term would move 3 instances and start 3, with the fewest starts possible; "+
			"each open worker would have 3 tasks.", a.Verdict)
		require.Equal(t, 6, a.ChangesTotal)
		require.Len(t, a.Plan.Changes, 4)
		require.Equal(t, 5, a.WorkersTotal)
		lost := a.Plan.Workers[slices.IndexFunc(a.Plan.Workers, func(w orchestrator.WorkerPlan[string]) bool { return w.Name == "w2" })]
		require.Equal(t, []int{3, 0}, []int{lost.Before, lost.After}, "what a lost worker loses")
		require.Equal(t, before, f.Last())
		require.Equal(t, calls, f.Counts("t1"))
		f.terms(1)
		f.requireSummary("All 9 instances run, evenly.")
		require.Empty(t, f.LastPlan().Changes)

		for target, status := range map[string]int{
			"drain=w7": http.StatusNotFound, "add=w1": http.StatusBadRequest, "limit=x": http.StatusBadRequest, "drian=w1": http.StatusBadRequest,
		} {
			require.Equal(t, status, refused(t, f.dashboard, request(http.MethodGet, "/api/v1/what-if?"+target)).Status)
		}

		b := &blocking{f.Orchestrator, make(chan struct{}), make(chan struct{})}
		dashboard.Lead(f.dashboard, b)
		done := make(chan int)
		go func() { done <- serve(f.dashboard, request(http.MethodGet, "/api/v1/what-if?drain=w1")).Code }()
		<-b.begun
		r := request(http.MethodGet, "/api/v1/what-if?drain=w1")
		require.Equal(t, http.StatusTooManyRequests, refused(t, f.dashboard, r).Status)
		gone, cancel := context.WithCancel(r.Context())
		start := time.Now()
		go cancel()
		require.Equal(t, http.StatusServiceUnavailable, refused(t, f.dashboard, r.WithContext(gone)).Status)
		require.Zero(t, time.Since(start), "a client that is gone waits no longer")
		close(b.release)
		require.Equal(t, http.StatusOK, <-done)
	})
}

// planning is a source that counts plans.
type planning struct {
	dashboard.Source[string, string]
	plans atomic.Int32
}

func (p *planning) Plan(h orchestrator.Hypothesis[string, string]) (orchestrator.Plan[string, string], error) {
	p.plans.Add(1)
	return p.Source.Plan(h)
}

// TestD2_PagesSharePlans: however many tabs show a hypothesis, it is planned once a term. So a
// page counts what was added after its term from the next term on. The API, whose answers have
// no entity tag, plans for each request.
func TestD2_PagesSharePlans(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 3, 9, nil)
		f.terms(1)
		p := &planning{Source: f.Orchestrator}
		dashboard.Lead(f.dashboard, p)
		const page, nine, ten = "/what-if?drain=w1", "each open worker would have 4 to 5 tasks.", "each open worker would have 5 tasks."
		var tabs sync.WaitGroup
		for range 20 {
			tabs.Go(func() { assert.Contains(t, serve(f.dashboard, request(http.MethodGet, page)).Body.String(), nine) })
		}
		tabs.Wait()
		require.EqualValues(t, 1, p.plans.Load())
		f.shown("/what-if?lose=w1")
		require.EqualValues(t, 2, p.plans.Load(), "another hypothesis")

		require.NoError(t, f.AddTask("t10"))
		require.Contains(t, f.shown(page), nine)
		require.EqualValues(t, 2, p.plans.Load())
		require.Contains(t, get[api.WhatIf](t, f.dashboard, "/api/v1"+page+"&limit=60").Verdict, ten)
		require.EqualValues(t, 3, p.plans.Load())
		f.terms(1)
		require.Contains(t, f.shown(page), ten)
		require.EqualValues(t, 4, p.plans.Load())

		for n := range 2 * 20 {
			f.shown(fmt.Sprintf("/what-if?add=new%d", n))
		}
		f.shown(page)
		require.EqualValues(t, 44, p.plans.Load(), "a view keeps twenty plans")
		f.shown("/what-if?add=new39")
		require.EqualValues(t, 45, p.plans.Load())
	})
}

// TestD20_NotLeading: each route says which process leads.
func TestD20_NotLeading(t *testing.T) {
	f := newFleet(t, 1, 1, nil, dashboard.WithLeader(func() string { return "https://other:8080/x/" }))
	require.NoError(t, f.NextTerm(t.Context()))
	stop := dashboard.Lead(f.dashboard, f.Orchestrator)
	f.status()
	stop()
	for name := range f.dashboard.Routes() {
		err := refused(t, f.dashboard, request(http.MethodGet, "/api/v1/"+name))
		require.Equal(t, http.StatusServiceUnavailable, err.Status)
		require.Equal(t, "https://other:8080/x/", err.Leader)
	}
	again := dashboard.Lead(f.dashboard, f.Orchestrator)
	stop() // of an earlier time
	f.status()
	again()
	require.Equal(t, http.StatusServiceUnavailable, serve(f.dashboard, request(http.MethodGet, "/api/v1/status")).Code)
}

// TestD20_Deposed: after a term that was deposed, the process does not lead, on pages and in
// the API.
func TestD20_Deposed(t *testing.T) {
	f := newFleet(t, 2, 4, nil, dashboard.WithLeader(func() string { return "https://other:8080/" }))
	require.NoError(t, f.NextTerm(t.Context()))
	other, err := orchestrator.New(f.Cluster, orchestrator.WithEpoch(8))
	require.NoError(t, err)
	require.NoError(t, other.AddWorker("w1"))
	require.NoError(t, other.NextTerm(t.Context()))
	f.status()
	require.ErrorIs(t, f.NextTerm(t.Context()), orchestrator.ErrDeposed)
	const said = "This process was deposed: another leader has taken over."
	for name := range f.dashboard.Routes() {
		err := refused(t, f.dashboard, request(http.MethodGet, "/api/v1/"+name))
		require.Equal(t, api.Error{
			Type: api.TypeNotLeading, Title: "This process does not lead", Status: http.StatusServiceUnavailable,
			Detail: said, Leader: "https://other:8080/",
		}, err)
	}
	for _, page := range []string{"/", "/about", "/worker?name=w1"} {
		w := serve(f.dashboard, request(http.MethodGet, page))
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Contains(t, w.Body.String(), "<h1>This process does not lead</h1>")
		require.Contains(t, w.Body.String(), "<p>"+said+"</p>")
		require.Contains(t, w.Body.String(), `<a href="https://other:8080/">`)
	}
}
