package dashboard_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

const token = "a token of the operators"

// TestD22_Access has who may read and write.
func TestD22_Access(t *testing.T) {
	drain := dashboard.WithDrain(
		func(context.Context, string) error { return nil }, func(context.Context, string) error { return nil })
	header := func(pairs ...string) func(*http.Request) {
		return func(r *http.Request) {
			for i := 0; i < len(pairs); i += 2 {
				r.Header.Set(pairs[i], pairs[i+1])
			}
		}
	}
	from := func(peer, host string) func(*http.Request) {
		return func(r *http.Request) { r.RemoteAddr, r.Host = peer, host }
	}
	reader := dashboard.WithAuthorize(func(r *http.Request) dashboard.Access {
		if r.Header.Get("User") == "" {
			return dashboard.NoAccess
		}
		return dashboard.ReadAccess
	})
	const ok, unauthorized, forbidden = http.StatusOK, http.StatusUnauthorized, http.StatusForbidden
	for _, test := range []struct {
		name        string
		opts        shows
		change      func(*http.Request)
		read, write int
	}{
		{"loopback", nil, from("127.0.0.1:5", "localhost:8080"), ok, ok},
		{"loopback without a port", nil, from("127.0.0.2:5", "127.0.0.1"), ok, ok},
		{"IPv6", nil, from("[::1]:5", "[::1]:8080"), ok, ok},
		{"IPv6 without a port", nil, from("[::ffff:127.0.0.1]:5", "[::1]"), ok, ok},
		{"another machine", nil, from("10.0.0.1:5", "localhost"), forbidden, forbidden},
		{"no peer", nil, from("", "localhost"), forbidden, forbidden},
		{"foreign Host", nil, from("127.0.0.1:5", "evil.example:8080"), forbidden, forbidden},
		{"foreign Host that begins alike", nil, from("127.0.0.1:5", "127.0.0.1.evil.example"), forbidden, forbidden},
		{"no Host", nil, from("127.0.0.1:5", ""), forbidden, forbidden},
		{"a proxy", nil, header("X-Forwarded-For", "10.0.0.1"), forbidden, forbidden},
		{"a Unix socket", nil, func(r *http.Request) {
			from("@", "dashboard")(r)
			*r = *r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.UnixAddr{Name: "x", Net: "unix"})))
		}, ok, ok},
		{"a proxy to a Unix socket", nil, func(r *http.Request) {
			header("Via", "1.1 x")(r)
			*r = *r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.UnixAddr{Name: "x", Net: "unix"})))
		}, forbidden, forbidden},
		{"no token", shows{dashboard.WithToken(token)}, header(), unauthorized, unauthorized},
		{"a wrong token", shows{dashboard.WithToken(token)}, header("Authorization", "Bearer "+token+"x"), unauthorized, unauthorized},
		{"a token", shows{dashboard.WithToken("another, newer token", token)}, header("Authorization", "bearer "+token), ok, ok},
		{"a password", shows{dashboard.WithToken(token)}, func(r *http.Request) {
			from("10.0.0.1:5", "dashboard.example")(r)
			r.SetBasicAuth("anyone", token)
		}, ok, ok},
		{"not authorized", shows{reader}, header(), forbidden, forbidden},
		{"authorized to read", shows{reader}, header("User", "x"), ok, forbidden},
		{"another origin", nil, header("Origin", "https://evil.example"), ok, forbidden},
		{"a link of another site", nil, header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "document"), ok, forbidden},
		{"an image of another site", shows{dashboard.WithToken(token)}, header(
			"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "image", "Authorization", "Bearer "+token), forbidden, forbidden},
		{"the same origin", nil, header("Sec-Fetch-Site", "same-origin"), ok, ok},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFleet(t, 1, 1, nil, append(test.opts, drain)...)
			require.NoError(t, f.NextTerm(t.Context()))
			for method, want := range map[string]int{http.MethodGet: test.read, http.MethodPost: test.write, http.MethodDelete: test.write} {
				target := "/api/v1/drain?worker=w1"
				if method == http.MethodGet {
					target = "/api/v1/status"
				}
				r := request(method, target)
				test.change(r)
				w := serve(f.dashboard, r)
				require.Equal(t, want, w.Code, "%s: %s", method, w.Body)
				require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
				if want == unauthorized {
					require.Contains(t, w.Header().Get("WWW-Authenticate"), "Basic")
				}
				if want == forbidden && test.opts == nil && method == http.MethodGet {
					require.Contains(t, w.Body.String(), "WithToken")
				}
			}
			r := request(http.MethodGet, "/api/v1/settings")
			test.change(r)
			if w := serve(f.dashboard, r); w.Code == ok {
				var settings api.Settings
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &settings))
				require.Equal(t, test.write == ok || test.opts == nil, settings.Writable)
			}
		})
	}
}

// TestDrain: a drain needs WithDrain, and reports its errors.
func TestDrain(t *testing.T) {
	f := newFleet(t, 2, 4, nil)
	require.NoError(t, f.NextTerm(t.Context()))
	post := request(http.MethodPost, "/api/v1/drain?worker=w1")
	require.Equal(t, http.StatusForbidden, refused(t, f.dashboard, post).Status)
	require.False(t, get[api.Settings](t, f.dashboard, "/api/v1/settings").Writable)

	var logged bytes.Buffer
	h, err := dashboard.New(
		dashboard.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))),
		dashboard.WithDrain(
			func(_ context.Context, worker string) error { return f.DrainWorker(worker) },
			func(context.Context, string) error { return errors.New("the registry is away") },
		))
	require.NoError(t, err)
	dashboard.Lead(h, f.Orchestrator)
	require.True(t, get[api.Settings](t, h, "/api/v1/settings").Writable)
	w := serve(h, post)
	require.JSONEq(t, `{"worker":{"name":"w1"},"draining":true}`, w.Body.String())
	require.Contains(t, logged.String(), "worker=w1")
	require.NoError(t, f.NextTerm(t.Context()))
	require.True(t, get[api.WorkerDetail](t, h, "/api/v1/worker?name=w1").Draining)
	unknown := refused(t, h, request(http.MethodPost, "/api/v1/drain?worker=w9"))
	require.Equal(t, api.TypeUnknownName, unknown.Type)
	require.Equal(t, "The registry is away.", refused(t, h, request(http.MethodDelete, "/api/v1/drain?worker=w1")).Detail)
	f.RemoveWorker("w2") // the last term has it
	require.Equal(t, http.StatusNotFound, refused(t, h, request(http.MethodPost, "/api/v1/drain?worker=w2")).Status)
}

// TestServeHTTP has the parts of HTTP that all routes share.
func TestServeHTTP(t *testing.T) {
	f := newFleet(t, 30, 100, nil)
	require.NoError(t, f.NextTerm(t.Context()))
	do := func(method, target string, header ...string) *httptest.ResponseRecorder {
		r := request(method, target)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return serve(f.dashboard, r)
	}
	w := do(http.MethodGet, "/api/v1/workers")
	require.Equal(t, `W/"7-1"`, w.Header().Get("ETag"))
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	whole := w.Body.Len()

	w = do(http.MethodGet, "/api/v1/workers", "If-None-Match", `"x", "7-1"`)
	require.Equal(t, http.StatusNotModified, w.Code)
	require.Zero(t, w.Body.Len())
	require.NoError(t, f.NextTerm(t.Context()))
	require.Equal(t, http.StatusOK, do(http.MethodGet, "/api/v1/workers", "If-None-Match", `W/"7-1"`).Code)

	w = do(http.MethodHead, "/api/v1/workers")
	require.NotEmpty(t, w.Header().Get("Content-Length"))
	require.Zero(t, w.Body.Len())

	w = do(http.MethodGet, "/api/v1/workers", "Accept-Encoding", "br, gzip")
	require.Equal(t, "gzip", w.Header().Get("Content-Encoding"))
	require.Less(t, w.Body.Len(), whole/2)
	z, err := gzip.NewReader(w.Body)
	require.NoError(t, err)
	text, err := io.ReadAll(z)
	require.NoError(t, err)
	require.True(t, json.Valid(text))
	for _, accept := range []string{"", "br", "gzip;q=0", "identity"} {
		require.Empty(t, do(http.MethodGet, "/api/v1/workers", "Accept-Encoding", accept).Header().Get("Content-Encoding"))
	}
	require.Empty(t, do(http.MethodGet, "/api/v1/progress", "Accept-Encoding", "gzip").Header().Get("Content-Encoding"), "it is short")

	for target, want := range map[string]int{
		"/api/v1/nothing":                http.StatusNotFound,
		"/api/v2/status":                 http.StatusNotFound,
		"/api/v1/worker?name=x":          http.StatusNotFound,
		"/api/v1/worker?name=w1%232":     http.StatusNotFound,
		"/api/v1/task":                   http.StatusNotFound,
		"/api/v1/term?number=99":         http.StatusNotFound,
		"/api/v1/workers?state=x":        http.StatusBadRequest,
		"/api/v1/workers?limit=0":        http.StatusBadRequest,
		"/api/v1/workers?after=x":        http.StatusBadRequest,
		"/api/v1/workers?nothing=1":      http.StatusBadRequest,
		"/api/v1/workers?q=%zz":          http.StatusBadRequest,
		"/api/v1/changes?after=x":        http.StatusBadRequest,
		"/api/v1/changes?since=x":        http.StatusBadRequest,
		"/api/v1/changes?reason=held":    http.StatusBadRequest,
		"/api/v1/changes?outcome=Done":   http.StatusBadRequest,
		"/api/v1/terms?after=1-x":        http.StatusBadRequest,
		"/api/v1/tasks?waiting=whatever": http.StatusBadRequest,
	} {
		require.Equal(t, want, do(http.MethodGet, target).Code, target)
	}
	w = do(http.MethodPost, "/api/v1/workers")
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Equal(t, "GET", w.Header().Get("Allow"))
}

// TestServeHTTP_Prefix: beneath a prefix, the address without a slash leads to the one with
// it, without the prefix being known.
func TestServeHTTP_Prefix(t *testing.T) {
	f := newFleet(t, 1, 1, nil)
	h := http.StripPrefix("/a/b", f.dashboard)
	w := serve(h, request(http.MethodGet, "/a/b?x=y"))
	require.Equal(t, http.StatusPermanentRedirect, w.Code)
	require.Equal(t, "./b/", w.Header().Get("Location"))
	require.Equal(t, http.StatusOK, serve(h, request(http.MethodGet, "/a/b/api/v1/status")).Code)
}

// TestLists: filters, orders and parts of lists.
func TestLists(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 4, 20, nil)
		f.terms(1)
		require.NoError(t, f.DrainWorker("w3"))
		f.Cut("w2")
		f.terms(2)
		names := func(target string) (names []string) {
			a := get[api.Workers](t, f.dashboard, "/api/v1/workers?"+target)
			require.Equal(t, 4, a.Total)
			for _, w := range a.Workers {
				names = append(names, w.Name.Name)
			}
			return names
		}
		require.Equal(t, []string{"w2", "w3", "w1", "w4"}, names(""))
		require.Equal(t, []string{"w1", "w2", "w3", "w4"}, names("sort=name"))
		require.Equal(t, []string{"w4", "w1", "w2", "w3"}, names("sort=tasks"))
		require.Equal(t, []string{"w3"}, names("state=draining"))
		require.Equal(t, []string{"w4"}, names("q=4"))
		a := get[api.Workers](t, f.dashboard, "/api/v1/workers?limit=1")
		require.Equal(t, 4, a.Matching)
		require.Equal(t, []string{"w3", "w1"}, names("limit=2&after="+a.After))

		tasks := get[api.Tasks](t, f.dashboard, "/api/v1/tasks?waiting=held&limit=2")
		require.Equal(t, 5, tasks.Matching)
		require.Equal(t, 20, tasks.Total)
		require.Empty(t, get[api.Tasks](t, f.dashboard, "/api/v1/tasks?waiting=missing").Tasks)
		require.Len(t, tasks.Tasks, 2)
		require.Equal(t, 11, get[api.Tasks](t, f.dashboard, "/api/v1/tasks?q=t1").Matching)

		changes := get[api.Changes](t, f.dashboard, "/api/v1/changes?limit=3")
		require.Equal(t, 25, changes.Matching)
		require.Equal(t, uint64(2), changes.Changes[0].Term.Number)
		seen := len(changes.Changes)
		for changes.After != "" {
			changes = get[api.Changes](t, f.dashboard, "/api/v1/changes?limit=3&after="+changes.After)
			seen += len(changes.Changes)
		}
		require.Equal(t, 25, seen)
		require.Equal(t, 5, get[api.Changes](t, f.dashboard, "/api/v1/changes?reason=drain&worker=w3&outcome=done").Matching)

		terms := get[api.Terms](t, f.dashboard, "/api/v1/terms?limit=1")
		require.Equal(t, uint64(3), terms.Terms[0].Stats.Term.Number+uint64(terms.Terms[0].Quiet))
		require.Equal(t, uint64(1), get[api.Terms](t, f.dashboard, "/api/v1/terms?after="+terms.After).Terms[0].Stats.Term.Number)
		term := get[api.TermDetail](t, f.dashboard, "/api/v1/term?number=2&limit=2")
		require.Equal(t, 5, term.ChangesTotal)
		require.Len(t, term.Changes, 2)
		require.Equal(t, "w2", term.Events[0].Worker)

		worker := get[api.WorkerDetail](t, f.dashboard, "/api/v1/worker?name=w3")
		require.Equal(t, 0, worker.Tasks)
		require.Equal(t, []int{5, 0}, []int{worker.Load[0].Tasks, worker.Load[1].Tasks})
		require.Len(t, worker.Changes, 10)
		require.Equal(t, 10, worker.ChangesTotal)
		require.Equal(t, 1, worker.EventsTotal)
		event := worker.Events[0]
		require.Equal(t, uint64(2), event.Term.Number)
		require.Equal(t, []bool{false, true}, []bool{event.Before.Draining, event.After.Draining})
	})
}

// TestTaskStates: a worker's page has what the worker says of its tasks.
func TestTaskStates(t *testing.T) {
	f := newFleet(t, 1, 2, nil, dashboard.WithTaskStates(func(worker string) []dashboard.TaskState[string] {
		return []dashboard.TaskState[string]{{Task: "t2", State: "failing", Err: worker + ":\n no disk"}}
	}))
	require.NoError(t, f.NextTerm(t.Context()))
	require.Equal(t, []api.TaskState{
		{Name: api.Name{Name: "t1"}}, {Name: api.Name{Name: "t2"}, State: "failing", Err: `w1:\u000a no disk`},
	}, get[api.WorkerDetail](t, f.dashboard, "/api/v1/worker?name=w1").Running)
}

// unready is a source like a replica, whose lease may be lost between two looks.
type unready struct {
	*orchestrator.Orchestrator[string, string]
	errs []error
}

func (u *unready) Ready() (err error) {
	if len(u.errs) > 0 {
		err, u.errs = u.errs[0], u.errs[1:]
	}
	return err
}

// TestSourceThatIsNotReady: it is asked once for each answer, and its error is shown.
func TestSourceThatIsNotReady(t *testing.T) {
	f := newFleet(t, 1, 1, nil)
	require.NoError(t, f.NextTerm(t.Context()))
	defer dashboard.Lead(f.dashboard, &unready{f.Orchestrator, []error{errors.New("r1: no lease: \n refused")}})()
	err := refused(t, f.dashboard, request(http.MethodGet, "/api/v1/status"))
	require.Equal(t, http.StatusServiceUnavailable, err.Status)
	require.Equal(t, api.TypeNotLeading, err.Type)
	require.Equal(t, `r1: no lease: \u000a refused`, err.Detail)
	require.Equal(t, 1, f.status().Instances.Running, "it is ready again")
}

// TestObserved: a process that does not lead names the leader, and invents nothing.
func TestObserved(t *testing.T) {
	leader := ""
	f := newFleet(t, 2, 3, nil, dashboard.WithLeader(func() string { return leader }))
	require.NoError(t, f.Observe(t.Context()))
	require.Equal(t, []string{
		"no terms: Nobody is known to lead. Until somebody does, nothing starts and nothing moves.",
		"unplaced: 3 instances of 3 tasks are missing. The leader starts them, or has the reason why not.",
	}, f.problems())
	leader = "https://r2/dashboard/"
	status := f.status()
	require.True(t, status.Observed)
	require.Equal(t, leader, status.Leader)
	require.Len(t, status.Problems, 1)
	require.Empty(t, status.Changes)
	require.Empty(t, get[api.Terms](t, f.dashboard, "/api/v1/terms").Terms, "they are no history")
	for _, w := range get[api.Workers](t, f.dashboard, "/api/v1/workers").Workers {
		require.Zero(t, w.Since)
		require.Zero(t, w.SinceTerm)
	}
	page := serve(f.dashboard, request(http.MethodGet, "/")).Body.String()
	require.Contains(t, page, `This process does not lead: <a href="https://r2/dashboard/">`)
	require.Contains(t, page, "The leader has the changes.")
}

// TestFailingRuns: tasks whose runs fail are one problem for each cause, also while they run again.
func TestFailingRuns(t *testing.T) {
	f := newFleet(t, 2, 4, nil, dashboard.WithTaskStates(func(worker string) []dashboard.TaskState[string] {
		if worker == "w1" {
			return []dashboard.TaskState[string]{{Task: "t1", State: "backoff", Err: "t1: no disk"}, {Task: "t3", State: "running", Err: "t3: no disk"}}
		}
		return []dashboard.TaskState[string]{{Task: "t2", State: "starting"}, {Task: "t4", State: "running"}}
	}))
	require.NoError(t, f.NextTerm(t.Context()))
	require.Equal(t, []string{"failing: 2 tasks fail again and again on w1, for example: t1: no disk."}, f.problems())
}

// A run that fails for the third time in a row is a problem, and a first crash is none (D27). The task's page
// has what the workers say of its instances.
func TestD27_ACrashLoop(t *testing.T) {
	state := dashboard.TaskState[string]{Task: "t1", State: "backoff", Err: "no disk", Since: time.Unix(1_800_000_000, 0).UTC()}
	f := newFleet(t, 2, 4, nil, dashboard.WithTaskStates(func(worker string) []dashboard.TaskState[string] {
		if worker == "w1" {
			return []dashboard.TaskState[string]{state}
		}
		return nil
	}))
	for state.Attempts = range 5 {
		require.NoError(t, f.NextTerm(t.Context()))
		detail := get[api.TaskDetail](t, f.dashboard, "/api/v1/task?name=t1")
		require.Equal(t, []api.InstanceState{{Worker: api.Name{Name: "w1"}, State: api.TaskState{
			Name: api.Name{Name: "t1"}, State: "backoff", Err: "no disk", Attempts: state.Attempts, Since: state.Since,
		}}}, detail.States)
		if fails := state.Attempts == 0 || state.Attempts >= 3; fails { // 0: not known
			f.requireSummary("1 thing needs attention.", "failing: t1 fails again and again on w1: no disk.")
		} else {
			f.requireSummary("All 4 instances run, evenly.")
		}
	}
	f.requireShown(map[string]string{"/task?name=t1": "2027-01-15 08:00:00.000 UTC</time>, after 4 failed runs: <span class=\"err\">no disk</span>"})
}

// TestUnixSocket: a server on a Unix socket answers without a token.
func TestUnixSocket(t *testing.T) {
	f := newFleet(t, 1, 1, nil)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(f.dashboard)
	server.Listener = l
	server.Start()
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
	answer, err := client.Get("http://x/api/v1/status")
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, http.StatusOK, answer.StatusCode)
}

// TestNew_Errors: the error names each option that is not valid.
func TestNew_Errors(t *testing.T) {
	_, err := dashboard.New(
		nil, dashboard.WithToken(), dashboard.WithToken("short"), dashboard.WithAuthorize(nil), dashboard.WithLeader(nil),
		dashboard.WithDrain[string](nil, nil), dashboard.WithHistory(nil),
		dashboard.WithTaskStates[string, int](nil),
	)
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	require.Len(t, strings.Split(err.Error(), "\n"), 8)
	_, err = dashboard.New(
		dashboard.WithToken(token),
		dashboard.WithAuthorize(func(*http.Request) dashboard.Access { return dashboard.ReadAccess }),
	)
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	require.ErrorContains(t, err, "WithAuthorize and WithToken")
}

// TestLead_OtherTypes: no answer hides that an option takes names of other types.
func TestLead_OtherTypes(t *testing.T) {
	none := func(context.Context, int) error { return nil }
	for want, opt := range map[string]dashboard.Option{
		"WithDrain got a func(context.Context, int) error":                  dashboard.WithDrain(none, none),
		"WithTaskStates got a func(string) []dashboard.TaskState[int]: for": dashboard.WithTaskStates(func(string) []dashboard.TaskState[int] { return nil }),
	} {
		f := newFleet(t, 1, 1, nil, opt)
		require.NoError(t, f.NextTerm(t.Context()))
		require.Contains(t, refused(t, f.dashboard, request(http.MethodGet, "/api/v1/worker?name=w1")).Detail, want)
	}
}
