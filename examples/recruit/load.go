package main

// Clients that send the same requests to both services, one right after the other,
// in alternating order, so that other load of the machine affects both services
// alike.

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	clients = 8
	fields  = 5000 // number of fields that are written and read
)

// results holds the measurements.
type results struct {
	names     [2]string
	requests  int // to each
	latencies [2][]time.Duration
	samples   []sample
	cut       bool // interrupted before the end
}

// sample counts the expired fields that still existed at a moment.
type sample struct {
	at      time.Duration
	expired [2]int
}

func (s sample) second() int { return int(s.at.Round(time.Second) / time.Second) }

// load sends requests until ctx ends. It stops at the first error.
func load(ctx context.Context, rate int, sides ...*side) (*results, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	asking, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	all := make([]*client, clients)
	var wg sync.WaitGroup
	for i := range all {
		all[i] = &client{http: &http.Client{Transport: transport}, sides: sides}
		wg.Go(func() {
			if err := all[i].load(asking, time.Second*clients/time.Duration(rate)); err != nil {
				fail(err)
			}
		})
	}
	r := new(results)
	if err := r.watch(asking, sides); err != nil {
		fail(err)
	}
	wg.Wait()
	if ctx.Err() == nil {
		return nil, context.Cause(asking)
	}
	for _, c := range all {
		r.requests += len(c.latencies[0])
		for i := range r.latencies {
			r.latencies[i] = append(r.latencies[i], c.latencies[i]...)
		}
	}
	return r, nil
}

// watch takes a sample each second, and a last one when ctx ends.
func (r *results) watch(ctx context.Context, sides []*side) error {
	began := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		s := sample{at: time.Since(began)}
		for i, side := range sides {
			n, err := side.cache.expired(context.WithoutCancel(ctx))
			if err != nil {
				return err
			}
			s.expired[i], r.names[i] = n, side.name
		}
		r.add(s)
	}
	return nil
}

// add adds a sample, or replaces one of the same second: the last sample may come
// right after a regular one.
func (r *results) add(s sample) {
	if n := len(r.samples); n > 0 && r.samples[n-1].second() == s.second() {
		r.samples = r.samples[:n-1]
	}
	r.samples = append(r.samples, s)
}

// client sends requests to all services.
type client struct {
	http      *http.Client
	sides     []*side
	latencies [2][]time.Duration
	items     [2][]string // the items that it has added
}

func (c *client) load(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		ask := c.choose()
		for i := range c.sides {
			i = (i + n) % len(c.sides)
			began := time.Now()
			// A request under way is completed, so that both services receive the
			// same requests.
			if err := ask(context.WithoutCancel(ctx), i); err != nil {
				return fmt.Errorf("ask the service %q: %w", c.sides[i].name, err)
			}
			c.latencies[i] = append(c.latencies[i], time.Since(began))
		}
	}
}

// choose draws a request: 50% reads, 30% writes, 10% new items, and 10% that finish
// items or, one in ten of these, reopen them.
func (c *client) choose() func(ctx context.Context, i int) error {
	field := fmt.Sprintf("/cache/%d", rand.IntN(fields))
	ttl := 500 + rand.IntN(2500) // milliseconds
	chosen := rand.IntN(100)
	which := rand.Uint64()
	return func(ctx context.Context, i int) error {
		switch {
		case chosen < 50:
			_, err := c.ask(ctx, i, http.MethodGet, field)
			return err
		case chosen < 80:
			_, err := c.ask(ctx, i, http.MethodPut, fmt.Sprintf("%s?ttl=%dms", field, ttl))
			return err
		case chosen < 90 || len(c.items[i]) == 0:
			id, err := c.ask(ctx, i, http.MethodPost, "/items")
			c.items[i] = append(c.items[i], id)
			return err
		}
		verb := "/finish"
		if chosen == 99 {
			verb = "/reopen"
		}
		_, err := c.ask(ctx, i, http.MethodPost, "/items/"+c.items[i][which%uint64(len(c.items[i]))]+verb)
		return err
	}
}

// ask sends a request to the i-th service, and reads the whole answer.
func (c *client) ask(ctx context.Context, i int, method, path string) (string, error) {
	var body io.Reader
	if method == http.MethodPut {
		body = strings.NewReader("value")
	}
	req, err := http.NewRequestWithContext(ctx, method, c.sides[i].server.URL+path, body)
	if err != nil {
		return "", err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return "", err
	}
	absent := res.StatusCode == http.StatusNotFound && method == http.MethodGet
	if res.StatusCode != http.StatusOK && !absent {
		return "", fmt.Errorf("%s %s: %s: %s", method, path, res.Status, strings.TrimSpace(string(text)))
	}
	return string(text), nil
}
