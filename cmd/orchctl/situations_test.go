package main

// Ten situations of a fleet, as every page and the commands describe them. A reader of their files
// compares each sentence with what the situation is.

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/admin"
	table "github.com/f8949c05/orchestrator/replica/memory"
	"github.com/f8949c05/orchestrator/worker"
)

// situation is a fleet that is shown.
type situation struct {
	*memory.Cluster[string, string]
	*orchestrator.Orchestrator[string, string]
	n        *network
	crashing map[string]bool // tasks whose runs fail
	stubborn string          // a task that does not stop before release
	release  chan struct{}
}

// newSituation starts workers and tasks, whose names are given.
func (n *network) newSituation(workers []orchestrator.Worker[string], tasks []orchestrator.Task[string]) *situation {
	s := &situation{n: n, crashing: make(map[string]bool), release: make(chan struct{})}
	var err error
	s.Cluster, err = memory.New(s.work, memory.WithWorkerOptions(worker.WithSeed(1)))
	require.NoError(n.t, err)
	n.t.Cleanup(func() { require.NoError(n.t, s.Close(context.WithoutCancel(n.t.Context()))) })
	n.t.Cleanup(func() { close(s.release) })
	s.Orchestrator, err = orchestrator.New(s.Cluster, orchestrator.WithSeed(0), orchestrator.WithEpoch(7),
		orchestrator.WithGracePeriod(3*time.Second), orchestrator.WithCommunicatorTimeout(200*time.Millisecond))
	require.NoError(n.t, err)
	for i, w := range workers { // no two answer at the same moment: the order would be open
		s.Slow(20*time.Millisecond+time.Duration(i)*time.Microsecond, w.Name)
		s.Start(w.Name)
	}
	require.NoError(n.t, s.UpdateWorkers(workers))
	require.NoError(n.t, s.UpdateTasks(tasks))
	h, err := dashboard.New(dashboard.WithTitle("tenants"), dashboard.WithTaskStates(s.says))
	require.NoError(n.t, err)
	n.t.Cleanup(dashboard.Lead(h, s.Orchestrator))
	n.serve(strings.TrimPrefix(leader, "http://"), h)
	return s
}

func (s *situation) work(ctx context.Context, _, task string) error {
	if s.crashing[task] {
		return errors.New("connect to database: connection refused")
	}
	<-ctx.Done()
	if task == s.stubborn {
		<-s.release
	}
	return nil
}

func (s *situation) says(name string) (states []dashboard.TaskState[string]) {
	w := s.Worker(name)
	if w == nil {
		return nil
	}
	for _, t := range w.Status() {
		state := dashboard.TaskState[string]{Task: t.Task, State: t.State.String(), Attempts: t.Attempts, Since: t.Since, Failing: t.Failing}
		if t.Err != nil {
			state.Err = t.Err.Error()
		}
		states = append(states, state)
	}
	return states
}

// terms runs terms, a second apart.
func (s *situation) terms(n int) {
	for range n {
		_ = s.NextTerm(s.n.t.Context()) // the answers show its error
		time.Sleep(time.Second)
	}
}

// rest runs no term for a while.
func (s *situation) rest(d time.Duration) { time.Sleep(d) }

// fleetOf returns workers named w1, w2, … and tasks named t1, t2, …
func fleetOf(workers, tasks int) (w []orchestrator.Worker[string], t []orchestrator.Task[string]) {
	for i := range workers {
		w = append(w, orchestrator.Worker[string]{Name: fmt.Sprintf("w%d", i+1)})
	}
	for i := range tasks {
		t = append(t, orchestrator.Task[string]{Name: fmt.Sprintf("t%d", i+1)})
	}
	return w, t
}

func TestD26_Situations(t *testing.T) {
	refuse := func(op orchestrator.Op, task string, why string) func(orchestrator.Op, string, string) error {
		return func(o orchestrator.Op, _, of string) error {
			if o == op && of == task {
				return fmt.Errorf("%w: %s", orchestrator.ErrRejected, why)
			}
			return nil
		}
	}
	for _, test := range []struct {
		name         string
		worker, task string // whose pages are shown
		arrange      func(n *network) *situation
		watched      bool // terms go on
	}{
		{"killed worker", "w4", "t4", func(n *network) *situation {
			s := n.newSituation(fleetOf(4, 12))
			s.terms(3)
			s.Kill("w4")
			s.terms(6)
			return s
		}, true},
		{"poison task", "w1", "poison", func(n *network) *situation {
			s := n.newSituation(fleetOf(4, 12))
			s.terms(3)
			s.Refuse(refuse(orchestrator.OpAdd, "poison", "schema version 9 is not known"))
			require.NoError(n.t, s.AddTask("poison"))
			s.terms(12)
			return s
		}, true},
		{"hung drain", "w2", "t2", func(n *network) *situation {
			s := n.newSituation(fleetOf(3, 9))
			s.stubborn = "t2"
			s.terms(3)
			require.NoError(n.t, s.DrainWorker(s.Running("t2")[0]))
			s.terms(12)
			return s
		}, true},
		{"full zone", "w1", "mirror", func(n *network) *situation {
			w, t := fleetOf(4, 6)
			w[0].Zone, w[1].Zone, w[2].Zone, w[3].Zone = "east", "east", "west", "west"
			s := n.newSituation(w, append(t, orchestrator.Task[string]{Name: "mirror", Instances: 3, MaxPerZone: 1}))
			s.terms(5)
			return s
		}, true},
		{"missing label", "w1", "render", func(n *network) *situation {
			w, t := fleetOf(4, 6)
			w[0].Labels = []string{"gpu", "spot"}
			s := n.newSituation(w, append(t, orchestrator.Task[string]{Name: "render", Requires: []string{"gpu", "!spot"}}))
			s.terms(5)
			return s
		}, true},
		{"weights out of band", "w2", "t1", func(n *network) *situation {
			w, t := fleetOf(4, 24)
			w[3].Share = 2
			for i := range t {
				t[i].Weight = 10
			}
			s := n.newSituation(w, t)
			s.terms(3)
			s.Hold(time.Now().Add(time.Hour), "deploy of 1.4")
			for _, task := range s.RunsOn("w2") {
				require.NoError(n.t, s.AddTask(task, orchestrator.WithTaskWeight(40)))
			}
			s.terms(70)
			return s
		}, true},
		{"crash loop", "w1", "t1", func(n *network) *situation {
			s := n.newSituation(fleetOf(3, 9))
			s.crashing["t1"], s.crashing["t2"], s.crashing["t3"] = true, true, true
			s.terms(20)
			return s
		}, true},
		{"terms that stopped", "w1", "t1", func(n *network) *situation {
			s := n.newSituation(fleetOf(3, 9))
			s.terms(5)
			s.rest(70 * time.Second)
			return s
		}, false},
		{"a hold", "w4", "t1", func(n *network) *situation {
			s := n.newSituation(fleetOf(3, 12))
			s.terms(3)
			s.Hold(time.Now().Add(time.Hour), "deploy of 1.4")
			s.terms(1)
			s.Start("w4")
			require.NoError(n.t, s.AddWorker("w4"))
			s.terms(4)
			return s
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t)
				s := test.arrange(n)
				more := s.terms
				if !test.watched {
					more = nil
				}
				n.goldenSituation(test.name, test.worker, test.task, more)
			})
		})
	}
}

// A replica whose Source fails, after an answer with a bad row.
func TestD26_SourceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		var fails atomic.Bool
		source := replica.Poll(5*time.Second, func(context.Context) ([]replica.Task, error) {
			if fails.Load() {
				return nil, errors.New("connect to database: connection refused")
			}
			return []replica.Task{{Name: "t1"}, {Name: "t2"}, {Name: "t3"}, {Name: "t3", Weight: 7}}, nil
		})
		r, err := replica.New(table.New(), source, func(ctx context.Context, _ string) error { <-ctx.Done(); return nil },
			replica.WithName("r1"), replica.WithService("test"), replica.WithLogger(slog.New(slog.DiscardHandler)),
			replica.WithLease(10*time.Second, time.Second), replica.WithDrain(0))
		require.NoError(t, err)
		h, err := admin.New(r, dashboard.WithTitle("tenants"))
		require.NoError(t, err)
		n.serve(strings.TrimPrefix(leader, "http://"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path = "/dashboard" + r.URL.Path
			h.ServeHTTP(w, r)
		}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			require.NoError(t, <-done)
		})
		time.Sleep(32 * time.Second) // between two calls
		fails.Store(true)
		time.Sleep(61*time.Second + 500*time.Millisecond)
		shown, _, _ := strings.Cut(textOf(n.page("")), "\nLoad\n") // the rest differs in each run
		shown += "\n\n" + n.command("status") + n.command("status", "-check")
		n.golden("situation source failing", result{out: regexp.MustCompile(`(?im)^.*\bterm (\d|is under way).*\n`).ReplaceAllString(shown, "")})
	})
}

// Watch has no line for a stop that a term leaves alone because it pauses.
func TestD26_WatchPrintsWhatHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		s := n.newSituation(fleetOf(3, 9))
		s.stubborn = "t2"
		s.terms(3)
		s.RemoveTask("t2")
		s.terms(5)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		p, out, _ := n.process()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.run(ctx, []string{"-server", leader, "watch"})
		}()
		s.terms(10)
		<-ended
		require.Contains(t, out.String(), "unexpected: stopping: stop under way")
		require.NotContains(t, out.String(), "skipped")
		require.Equal(t, 1, strings.Count(out.String(), "should stop on w2 and cannot"), out)
	})
}

// Before the first term a check is not ok (D29).
func TestD29_CheckBeforeTheFirstTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		s := n.newSituation(fleetOf(3, 9))
		require.Equal(t, result{exitFound, "no terms: No term has ended yet, so nothing is known of the workers.\n", ""}, n.run(leader, "status", "-check"))
		s.terms(1)
		require.Equal(t, result{exitDone, "ok: All 9 instances run, evenly.\n", ""}, n.run(leader, "status", "-check"))
	})
}

// goldenSituation compares what pages and commands say with a file. more runs terms while watch
// prints what they change; nil: none run.
func (n *network) goldenSituation(name, worker, task string, more func(terms int)) {
	n.t.Helper()
	pages := ""
	for _, page := range []string{
		"", "workers", "worker?name=" + url.QueryEscape(worker), "tasks?waiting=any", "task?name=" + task, "terms", "term?number=", "what-if?drain=" + url.QueryEscape(worker),
	} {
		if page == "term?number=" { // the last that the history has
			page = regexp.MustCompile(`term\?number=\d+`).FindString(n.page("terms"))
		}
		pages += "──── page /" + page + "\n" + textOf(n.page(page)) + "\n"
	}
	for _, line := range []string{
		"status", "status -check", "workers", "worker " + worker, "task " + task, "why " + task, "waiting", "terms -limit 3", "changes -limit 5", "what-if -drain " + worker,
	} {
		pages += n.command(strings.Fields(line)...)
	}
	if more != nil {
		ctx, cancel := context.WithTimeout(n.t.Context(), 5500*time.Millisecond)
		defer cancel()
		p, out, _ := n.process()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.run(ctx, []string{"-server", leader, "watch"})
		}()
		more(5)
		<-ended
		pages += "──── orchctl watch for five terms\n" + out.String()
	}
	n.golden("situation "+name, result{out: pages})
}

// command returns what a command prints, with a heading.
func (n *network) command(args ...string) string {
	got := n.run(leader, args...)
	return fmt.Sprintf("──── orchctl %s (exit %d)\n%s%s\n", strings.Join(args, " "), got.code, got.out, got.errors)
}

// page returns a page of the leader.
func (n *network) page(path string) string {
	client := &http.Client{Transport: &http.Transport{DialContext: n.dial, DisableKeepAlives: true}}
	answer, err := client.Get(leader + "/" + path)
	require.NoError(n.t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(n.t, errors.Join(err, answer.Body.Close()))
	require.Equal(n.t, http.StatusOK, answer.StatusCode, path)
	return string(body)
}

// textOf returns what a page says, a line for each row, paragraph and heading.
func textOf(page string) string {
	_, page, _ = strings.Cut(page, "<main")
	page, _, _ = strings.Cut(page, "</main>")
	for _, cut := range []struct{ what, to string }{
		{`(?s)^[^>]*>`, ""},
		{`(?s)<svg.*?</svg>|<form.*?</form>|<ul class="(legend|actions)".*?</ul>|<thead>.*?</thead>`, ""},
		{`\s+`, " "},
		{`</t[hd]> ?<t[hd][^>]*>`, " | "},
		{`</dt> ?<dd[^>]*>`, ": "},
		{`</?(p|h[12]|tr|li|dl|div|section|caption|table|ul)( [^>]*)?>`, "\n"},
		{`<[^>]*>`, ""},
		{` *\n\s*`, "\n"},
	} {
		page = regexp.MustCompile(cut.what).ReplaceAllString(page, cut.to)
	}
	return html.UnescapeString(strings.Trim(page, "\n ")) + "\n"
}
