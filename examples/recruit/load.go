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
	"time"
)

const (
	clients = 8
	rate    = 300  // requests a second to each service
	fields  = 5000 // number of fields that are written and read
)

// client sends requests to both services.
type client struct {
	http      *http.Client
	services  [2]*service
	latencies [2][]time.Duration
	items     [2][]string // the items that it has added
}

func newClient(services [2]*service) *client {
	return &client{http: &http.Client{Transport: &http.Transport{}}, services: services}
}

// load sends requests until ctx ends. It stops at the first error.
func (c *client) load(ctx context.Context) error {
	defer c.http.CloseIdleConnections()
	tick := time.NewTicker(time.Second * clients / rate)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		ask := c.choose()
		for i := range c.services {
			i = (i + n) % len(c.services)
			began := time.Now()
			// A request under way is completed, so that both services receive the
			// same requests.
			if err := ask(context.WithoutCancel(ctx), i); err != nil {
				return fmt.Errorf("ask the service %q: %w", c.services[i].name, err)
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
	req, err := http.NewRequestWithContext(ctx, method, c.services[i].server.URL+path, body)
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
