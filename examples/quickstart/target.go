// The target server of the demonstration's endpoints. It records every probe.

package main

import (
	"net/http"
	"strings"
	"time"
)

// newTarget returns a handler for every path. It calls probed for each request of a
// worker.
func newTarget(probed func(endpoint, worker string, at time.Time)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if worker, ok := strings.CutPrefix(r.UserAgent(), agent+"/"); ok {
			probed(strings.TrimPrefix(r.URL.Path, "/"), worker, time.Now())
		}
		w.WriteHeader(http.StatusNoContent)
	})
}
