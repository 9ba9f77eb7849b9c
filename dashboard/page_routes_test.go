package dashboard_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

// shown returns the text of a page that is there.
func (f *fleet) shown(target string) string {
	f.t.Helper()
	w := serve(f.dashboard, request(http.MethodGet, target))
	require.Equal(f.t, http.StatusOK, w.Code, target)
	require.Equal(f.t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	return w.Body.String()
}

// post sends a form.
func (f *fleet) post(form url.Values, site string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/drain", strings.NewReader(form.Encode()))
	r.RemoteAddr, r.Host = "127.0.0.1:1234", "localhost:8080"
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", site)
	return serve(f.dashboard, r)
}

// Each page has a sentence for what is not there.
func TestPages_Nothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 0, 0, nil)
		for _, page := range []string{"/", "/workers", "/worker?name=w1", "/tasks", "/terms", "/what-if?drain=w1"} {
			require.Contains(t, f.shown(page), "<h1>No term has ended yet</h1>", page)
		}
		require.Contains(t, f.shown("/about"), "<h1>About</h1>")
		f.terms(1)
		require.Contains(t, f.shown("/"), "There are no workers")
		require.Contains(t, f.shown("/"), "No task is expected")
		require.Contains(t, f.shown("/workers"), "There are no workers")
		require.Contains(t, f.shown("/tasks"), "No task is expected")
		require.Contains(t, f.shown("/what-if"), "Say what you assume")

		for _, page := range []string{"/worker?name=w1", "/task?name=t1", "/term?number=99", "/no/such/page"} {
			w := serve(f.dashboard, request(http.MethodGet, page))
			require.Equal(t, http.StatusNotFound, w.Code, page)
			require.Contains(t, w.Body.String(), "<h1>", page)
		}
		w := serve(f.dashboard, request(http.MethodGet, "/what-if?drain=w1"))
		require.Equal(t, http.StatusNotFound, w.Code)
		require.Contains(t, w.Body.String(), "No worker is called")
		require.Contains(t, w.Body.String(), `value="w1" checked`, "the form keeps what was entered")
	})
}

// A worker's page has the changes of its state, each with its term and why.
func TestD2_UpsAndDowns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 3, 6, options{orchestrator.WithMaxMoves(0)})
		f.terms(1)
		require.NotContains(t, f.shown("/worker?name=w1"), "Ups and downs")
		for range 30 {
			require.NoError(t, f.DrainWorker("w1"))
			f.terms(1)
			require.NoError(t, f.UndrainWorker("w1"))
			f.terms(1)
		}
		f.Cut("w1")
		f.terms(1)
		detail := get[api.WorkerDetail](t, f.dashboard, "/api/v1/worker?name=w1")
		require.Equal(t, 61, detail.EventsTotal)
		require.Len(t, detail.Events, 50)
		down := detail.Events[0]
		require.Equal(t, uint64(62), down.Term.Number)
		require.Equal(t, orchestrator.Silent, down.After.State)
		require.Contains(t, down.Err, "the worker is cut off")
		require.Equal(t, down.Start, detail.Events[1].Start.Add(time.Second))
		require.True(t, detail.Events[1].Before.Draining)
		shown := f.shown("/worker?name=w1")
		require.Contains(t, shown, " of 61 changes of its state</caption>")
		require.Contains(t, shown, `number=62&amp;epoch=7">term 62</a>`)
	})
}

// A page that was shown is not sent again until a term ends.
func TestD11_PagesHaveTags(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 3, 9, nil)
		f.terms(1)
		for _, page := range []string{"/", "/workers", "/worker?name=w1", "/tasks", "/task?name=t1", "/terms", "/term?number=1", "/what-if?lose=w1", "/about"} {
			first := serve(f.dashboard, request(http.MethodGet, page))
			require.Equal(t, http.StatusOK, first.Code, page)
			again := request(http.MethodGet, page)
			again.Header.Set("If-None-Match", first.Header().Get("ETag"))
			require.Equal(t, http.StatusNotModified, serve(f.dashboard, again).Code, page)
			f.terms(1)
			require.Equal(t, http.StatusOK, serve(f.dashboard, again).Code, page)
		}
	})
}

func TestPages_WholeNames(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 2, 12, nil)
		f.terms(1)
		for _, page := range []string{"/tasks?q=t1", "/tasks?q=t1&waiting="} { // a form sends empty fields too
			w := serve(f.dashboard, request(http.MethodGet, page))
			require.Equal(t, http.StatusSeeOther, w.Code)
			require.Equal(t, "task?name=t1", w.Header().Get("Location"))
		}
		require.Contains(t, f.shown("/tasks?q=t1&waiting=any"), "No task matches")
		require.Contains(t, f.shown("/tasks?q=t"), "<h1>12 tasks</h1>")
	})
}

// The forms of the pages drain workers, for readers who may, and from these pages only.
func TestD22_DrainForm(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 3, 9, nil)
		f.terms(1)
		require.NotContains(t, f.shown("/worker?name=w2"), "<button>Drain", "read-only by default")
		require.Equal(t, http.StatusForbidden, f.post(url.Values{"worker": {"w2"}}, "same-origin").Code)

		var drained []string
		record := func(sign string) func(context.Context, string) error {
			return func(_ context.Context, worker string) error {
				drained = append(drained, sign+worker)
				return nil
			}
		}
		var err error
		f.dashboard, err = dashboard.New(dashboard.WithDrain(record("+"), record("-")))
		require.NoError(t, err)
		t.Cleanup(dashboard.Lead(f.dashboard, f.Orchestrator))
		require.Contains(t, f.shown("/worker?name=w2"), `action="drain"`)
		require.Contains(t, f.shown("/what-if?drain=w2&drain=w3"), "<button>Drain them</button>")

		require.Equal(t, http.StatusForbidden, f.post(url.Values{"worker": {"w2"}}, "cross-site").Code)
		require.Empty(t, drained)
		w := f.post(url.Values{"worker": {"w2"}}, "same-origin")
		require.Equal(t, http.StatusSeeOther, w.Code)
		require.Equal(t, "worker?asked=drain&name=w2", w.Header().Get("Location"))
		require.Contains(t, f.shown("/"+w.Header().Get("Location")), "The drain was accepted.")
		w = f.post(url.Values{"worker": {"w1", "w2"}, "undrain": {"true"}}, "same-origin")
		require.Equal(t, "workers?asked=undrain", w.Header().Get("Location"))
		require.Contains(t, f.shown("/workers?asked=drain&state=draining"), "The drains were accepted.")
		require.Equal(t, []string{"+w2", "-w1", "-w2"}, drained)

		drained = nil
		w = f.post(url.Values{"worker": {"w1", "w2", "nobody", "w3"}}, "same-origin")
		require.Equal(t, http.StatusNotFound, w.Code)
		require.Contains(t, w.Body.String(), "<p>Done for 2 of 4 workers: w1, w2. Then: No worker is called “nobody”.</p>")
		require.Equal(t, []string{"+w1", "+w2"}, drained)
		w = f.post(url.Values{"worker": {"nobody"}}, "same-origin")
		require.Contains(t, w.Body.String(), "<p>No worker is called “nobody”.</p>")

		f.Orchestrator, err = orchestrator.New(f.Cluster)
		require.NoError(t, err)
		t.Cleanup(dashboard.Lead(f.dashboard, f.Orchestrator))
		w = f.post(url.Values{"worker": {"w1"}}, "same-origin")
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Contains(t, w.Body.String(), "<h1>No term has ended yet</h1>")
	})
}

// A process that does not lead says so on every page.
func TestD20_PagesWithoutALeader(t *testing.T) {
	pages, err := dashboard.New(dashboard.WithLeader(func() string { return "https://host:8080/fleet/" }))
	require.NoError(t, err)
	for _, page := range []string{"/", "/workers", "/task?name=t1", "/about", "/what-if"} {
		w := serve(pages, request(http.MethodGet, page))
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Contains(t, w.Body.String(), "<h1>This process does not lead</h1>")
		require.Contains(t, w.Body.String(), `<a href="https://host:8080/fleet/">`)
	}
	for _, file := range []string{"/web/style.css", "/web/live.js", "/web/icon.svg"} {
		require.Equal(t, http.StatusOK, serve(pages, request(http.MethodGet, file)).Code)
	}
}
