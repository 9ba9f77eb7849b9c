package main

// A worker process, and how the leader starts it.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator/examples/internal/stage"
	"github.com/f8949c05/orchestrator/worker"
)

const (
	probeEvery   = 250 * time.Millisecond
	probeTimeout = 2 * time.Second
)

// runWorker runs a worker until ctx ends, and registers it with the leader at a URL. When the
// leader knows it, it prints the URL at which the leader reaches it.
func runWorker(ctx context.Context, name, leader string, stdout io.Writer) error {
	w, err := worker.New(func(ctx context.Context, e endpoint) error { return probe(ctx, name, e) })
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/%s/%d", name, w.Incarnation())
	srv, err := stage.Serve(stage.Loopback, newHandler(path, w))
	if err != nil {
		return err
	}
	keepRegistered(ctx, leader, member{Name: name, URL: srv.URL + path}, func() {
		_, _ = fmt.Fprintln(stdout, srv.URL+path) // if it fails, the parent has gone, and ctx ends
	})
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	return errors.Join(srv.Close(), w.Close(limited))
}

// probe is the function of every task of a worker: it probes an endpoint until ctx ends.
func probe(ctx context.Context, name string, e endpoint) error {
	client := &http.Client{Timeout: probeTimeout}
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		if err := get(ctx, client, e.URL+"?by="+name); err != nil && ctx.Err() == nil {
			slog.Warn("probe failed", "endpoint", e.Name, "err", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func get(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	return send(client, req)
}

// send sends a request, and returns an error unless it succeeds.
func send(client *http.Client, req *http.Request) error {
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxMessage))
	if resp.StatusCode >= http.StatusBadRequest {
		err = errors.New(resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}

// process is a worker process.
type process struct {
	*stage.Process
	member member
}

// startWorker starts a worker process, and returns when the worker has registered with the leader
// at a URL. The process ends with ctx, or with this process.
func startWorker(ctx context.Context, name, leader string) (*process, error) {
	stdout, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = stdout.Close() }()
	p, err := stage.Start(ctx, name+" "+leader, 2*probeTimeout, in, os.Stderr)
	err = errors.Join(err, in.Close()) // the process has a copy
	if err != nil {
		return nil, err
	}
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil { // the process has ended
		p.Stop()
		return nil, fmt.Errorf("start worker %s: %w", name, errors.Join(context.Cause(ctx), p.Err()))
	}
	return &process{Process: p, member: member{Name: name, URL: strings.TrimSpace(url)}}, nil
}
