package main

// The site: the endpoints that the workers probe, and when.

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/examples/internal/stage"
)

// site serves all endpoints, and measures the longest time without a probe.
type site struct {
	*stage.Server

	mu     sync.Mutex           // guards the fields below
	probed map[string]time.Time // the last probe of each expected endpoint
	gap    time.Duration        // the longest time between two probes of one endpoint
	of     string               // that endpoint
	by     map[[2]string]bool   // an endpoint and a worker that has probed it
}

func startSite() (*site, error) {
	s := &site{probed: make(map[string]time.Time), by: make(map[[2]string]bool)}
	var err error
	s.Server, err = stage.Serve(stage.Loopback, s)
	return s, err
}

// endpoint returns the endpoint of a name.
func (s *site) endpoint(name string) endpoint { return endpoint{Name: name, URL: s.URL + "/" + name} }

// expect begins to measure an endpoint.
func (s *site) expect(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.probed[name] = time.Now()
}

// forget ends the measurement of an endpoint.
func (s *site) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.probed, name)
}

// ServeHTTP answers a probe.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.probed[name]; ok {
		s.measure(name)
		s.probed[name] = time.Now()
		s.by[[2]string{name, r.FormValue("by")}] = true
	}
	w.WriteHeader(http.StatusNoContent)
}

// probers returns the fewest and the most workers that have probed an expected endpoint since its
// last call.
func (s *site) probers() (least, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	workers := make(map[string]int)
	for pair := range s.by {
		workers[pair[0]]++
	}
	clear(s.by)
	least = math.MaxInt
	for name := range s.probed {
		least, most = min(least, workers[name]), max(most, workers[name])
	}
	return least, most
}

// names returns the names of the expected endpoints, with spaces in between.
func (s *site) names() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(s.probed)), " ")
}

// endpointsAt returns the endpoints with some names of a site.
func endpointsAt(url string, names []string) (all []endpoint) {
	for _, name := range names {
		all = append(all, endpoint{Name: name, URL: url + "/" + name})
	}
	return all
}

// longestGap returns the longest gap since its last call, including gaps that have
// not ended.
func (s *site) longestGap() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.probed {
		s.measure(name)
	}
	text := fmt.Sprintf("%.2f s (%s)", s.gap.Seconds(), s.of)
	s.gap, s.of = 0, ""
	return text
}

// measure compares the gap of an endpoint with the longest. The caller holds mu.
func (s *site) measure(name string) {
	if gap := time.Since(s.probed[name]); gap > s.gap {
		s.gap, s.of = gap, name
	}
}
