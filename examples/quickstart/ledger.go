// The ledger: which endpoint was probed by whom, when last, and how long it went
// without.

package main

import (
	"fmt"
	"sync"
	"time"
)

// ledger is written by whoever hears of probes: the target server, or, for
// endpoints that are not ours, the workers' reports.
type ledger struct {
	mu     sync.Mutex
	expect map[string]*record // by endpoint
	strays map[string]time.Time
	worst  gap              // since the phase began
	probes map[string]tally // by worker
}

// record is about an endpoint that is to be probed.
type record struct {
	last time.Time            // the last probe, or when the endpoint became expected
	by   map[string]time.Time // the last probe by each worker
}

// gap is a time during which an endpoint went unprobed.
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

// tally counts the probes that a worker has made.
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

// begin says that these endpoints are to be probed from now on.
func (l *ledger) begin(tasks []task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range tasks {
		l.expect[t.Name.Name] = &record{last: time.Now(), by: make(map[string]time.Time)}
	}
}

// end says that an endpoint is not to be probed any more.
func (l *ledger) end(endpoint string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.expect, endpoint)
}

// probed notes down a probe.
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

// reported counts what a worker tells of a probe.
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

// tally returns what a worker has reported.
func (l *ledger) tally(worker string) tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.probes[worker]
}

// longest returns the longest gap of the phase, with those that have not ended.
func (l *ledger) longest() gap {
	l.mu.Lock()
	defer l.mu.Unlock()
	for endpoint, r := range l.expect {
		l.widen(endpoint, time.Since(r.last))
	}
	return l.worst
}

// turn begins a new phase. A gap that is open belongs to both.
func (l *ledger) turn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.worst = gap{}
}

// probedSince tells whether a worker has probed an endpoint after a moment.
func (l *ledger) probedSince(moment time.Time, endpoint, worker string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.expect[endpoint]
	return ok && r.by[worker].After(moment)
}

// strayedSince tells whether anyone has probed an endpoint after a moment though
// nobody should.
func (l *ledger) strayedSince(moment time.Time, endpoint string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.strays[endpoint].After(moment)
}

// widen is called with the lock held.
func (l *ledger) widen(endpoint string, length time.Duration) {
	l.worst = longer(l.worst, gap{endpoint, length})
}
