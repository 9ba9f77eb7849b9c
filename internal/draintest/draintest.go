// Package draintest tests with any backend that drains through the dashboard outlive the
// leader (D21).
package draintest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator/dashboard/api"
)

// patience bounds the wait for what a few terms do.
const patience = time.Minute

// Ask sends a request from this machine to the API of a dashboard, decodes the answer unless
// that is an error, and returns its status.
func Ask(t *testing.T, h http.Handler, method, target string, answer any) (status int) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost/api/v1/"+target, nil)
	r.RemoteAddr = "127.0.0.1:1"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code == http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), answer); err != nil {
			t.Fatal(err)
		}
	}
	return w.Code
}

// Run drains a worker through the dashboard of a leader, and ends that through the dashboard
// of the next one. The fleet has the workers a and b and four tasks. next stops the first
// leader and returns the dashboard of another.
func Run(t *testing.T, first http.Handler, next func() http.Handler) {
	t.Helper()
	shows := func(h http.Handler, worker string, tasks int, draining bool) {
		t.Helper()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for deadline := time.Now().Add(patience); ; <-tick.C {
			var w api.WorkerDetail
			status := Ask(t, h, http.MethodGet, "worker?name="+worker, &w)
			if status == http.StatusOK && w.Tasks == tasks && w.Draining == draining {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s has %d tasks, draining: %v, status %d; want %d tasks, draining: %v", worker, w.Tasks, w.Draining, status, tasks, draining)
			}
		}
	}
	set := func(h http.Handler, method string, draining bool) {
		t.Helper()
		var drain api.Drain
		if status := Ask(t, h, method, "drain?worker=a", &drain); status != http.StatusOK || drain.Draining != draining {
			t.Fatalf("%s: status %d, draining: %v", method, status, drain.Draining)
		}
	}
	shows(first, "a", 2, false)
	set(first, http.MethodPost, true)
	shows(first, "a", 0, true)

	second := next()
	shows(second, "a", 0, true)
	shows(second, "b", 4, false)
	set(second, http.MethodDelete, false)
	shows(second, "a", 2, false)
}
