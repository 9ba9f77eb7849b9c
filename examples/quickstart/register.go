package main

// Registration: each worker tells the leader its name and its URL, again and again. A leader that has
// restarted knows no worker. It hears from each within registerEvery, and starts nothing that one of
// them may run before initialWait is over (orchestrator.WithInitialWait). Without that wait its first
// term would start the tasks of all workers but the first again.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/examples/internal/stage"
)

const (
	registerEvery = time.Second // at the latest
	initialWait   = 2 * registerEvery
)

// newOrchestrator returns the orchestrator of a leader that knows no worker.
func newOrchestrator() (*orchestrator.Orchestrator[member, endpoint], error) {
	return orchestrator.New(newCommunicator(),
		orchestrator.WithCommunicatorTimeout(callTimeout),
		orchestrator.WithGracePeriod(gracePeriod),
		orchestrator.WithInitialWait(initialWait),
	)
}

// registrations takes the registrations of workers, and adds them. One that is added already keeps
// its state. A worker must end before it is removed, because it registers again. There is no
// authentication; see http.go.
func registrations(add func(member) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout))
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
		var m member
		if err == nil {
			err = json.Unmarshal(text, &m)
		}
		if err == nil && (m.Name == "" || m.URL == "") {
			err = fmt.Errorf("a worker needs a name and a URL: %s", text)
		}
		if err == nil {
			err = add(m)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
}

// register registers a worker once with the leader at a URL.
func register(ctx context.Context, leader string, m member) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, leader, bytes.NewReader(body))
	if err != nil {
		return err
	}
	return send(http.DefaultClient, req)
}

// keepRegistered registers a worker until ctx ends, and calls first after the first success. The leader
// may be away. The pauses are drawn, so that not all workers come at the same time.
func keepRegistered(ctx context.Context, leader string, m member, first func()) {
	for registered := false; ctx.Err() == nil; {
		if err := register(ctx, leader, m); err == nil && !registered {
			registered = true
			first()
		}
		select {
		case <-ctx.Done():
		case <-time.After(registerEvery/2 + rand.N(registerEvery/2)):
		}
	}
}

// runLeader leads in a process of its own until ctx ends. It knows the endpoints, and no worker.
func runLeader(ctx context.Context, address string, endpoints []endpoint) error {
	o, err := newOrchestrator()
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		if err := o.AddTask(e, orchestrator.WithTaskInstances(instances)); err != nil {
			return err
		}
	}
	srv, err := stage.Serve(address, registrations(func(m member) error { return o.AddWorker(m) }))
	if err != nil {
		return err
	}
	err = o.Run(ctx, termEvery)
	if ctx.Err() != nil {
		err = nil
	}
	if closed := srv.Close(); err == nil {
		err = closed
	}
	return err
}
