// The target server: it stands for the endpoints of the story, and knows best
// who has probed them, and when.

package main

import (
	"net/http"
	"strings"
	"time"
)

// newTarget answers at every path, and tells probed of each request that a
// worker makes.
func newTarget(probed func(endpoint, worker string, at time.Time)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if worker, ok := strings.CutPrefix(r.UserAgent(), agent+"/"); ok {
			probed(strings.TrimPrefix(r.URL.Path, "/"), worker, time.Now())
		}
		w.WriteHeader(http.StatusNoContent)
	})
}
