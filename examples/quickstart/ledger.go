package main

// The ledger: which worker probed each endpoint and when, and the longest time
// without a probe. The target server of the demonstration's endpoints fills it.

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// ledger records probes, as reported by the target server or, for the user's own
// endpoints, by the workers.
type ledger struct {
	mu     sync.Mutex
	expect map[string]*record // by endpoint
	strays map[string]time.Time
	worst  gap              // since the phase began
	probes map[string]tally // by worker
}

// record is the record of an endpoint that should be probed.
type record struct {
	last time.Time            // the last probe, or when the endpoint became expected
	by   map[string]time.Time // the last probe by each worker
}

// gap is a time in which an endpoint was not probed.
type gap struct {
	endpoint string
	length   time.Duration
}

func (g gap) String() string {
	if g.endpoint == "" {
		return "-"
	}
	return fmt.Sprintf("%.2f s (%s)", g.length.Seconds(), g.endpoint)
}

func longer(a, b gap) gap {
	if b.length > a.length {
		return b
	}
	return a
}

// tally counts the probes of a worker.
type tally struct {
	done, failed int
	lastFailure  string // which endpoint, and why
}

func newLedger() *ledger {
	return &ledger{
		expect: make(map[string]*record),
		strays: make(map[string]time.Time),
		probes: make(map[string]tally),
	}
}

// begin records that these endpoints should be probed from now on.
func (l *ledger) begin(tasks []task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range tasks {
		l.expect[t.Name.Name] = &record{last: time.Now(), by: make(map[string]time.Time)}
	}
}

// end records that an endpoint should no longer be probed.
func (l *ledger) end(endpoint string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.expect, endpoint)
}

// probed records a probe.
func (l *ledger) probed(endpoint, worker string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.expect[endpoint]
	if !ok {
		l.strays[endpoint] = at
		return
	}
	l.widen(endpoint, at.Sub(r.last))
	r.last = at
	r.by[worker] = at
}

// reported counts a worker's report of a probe.
func (l *ledger) reported(worker string, r report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.probes[worker]
	t.done++
	if r.Error != "" {
		t.failed++
		t.lastFailure = r.Endpoint + ": " + r.Error
	}
	l.probes[worker] = t
}

// tally returns a worker's reports.
func (l *ledger) tally(worker string) tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.probes[worker]
}

// longest returns the longest gap of the phase, including open gaps.
func (l *ledger) longest() gap {
	l.mu.Lock()
	defer l.mu.Unlock()
	for endpoint, r := range l.expect {
		l.widen(endpoint, time.Since(r.last))
	}
	return l.worst
}

// turn begins a new phase. An open gap counts in both phases.
func (l *ledger) turn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.worst = gap{}
}

// probedSince reports whether a worker has probed an endpoint since a moment.
func (l *ledger) probedSince(moment time.Time, endpoint, worker string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.expect[endpoint]
	return ok && r.by[worker].After(moment)
}

// strayedSince reports whether an endpoint that should not be probed was probed
// since a moment.
func (l *ledger) strayedSince(moment time.Time, endpoint string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.strays[endpoint].After(moment)
}

// widen updates the longest gap. The caller holds mu.
func (l *ledger) widen(endpoint string, length time.Duration) {
	l.worst = longer(l.worst, gap{endpoint, length})
}

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
