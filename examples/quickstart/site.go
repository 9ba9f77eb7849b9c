package main

// The site: the endpoints that the workers probe, and when.

import (
	"fmt"
	"net/http"
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
}

func startSite() (*site, error) {
	s := &site{probed: make(map[string]time.Time)}
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
	}
	w.WriteHeader(http.StatusNoContent)
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
