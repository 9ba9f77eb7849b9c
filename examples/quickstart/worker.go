package main

// A worker process, and how the leader starts it. It probes its endpoints until the
// leader ends.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/examples/internal/stage"
	"github.com/f8949c05/orchestrator/worker"
)

// agent identifies the worker to the endpoints, as "agent/w1".
const agent = "orchestrator-quickstart"

// report is a line on a worker's standard output: first the URL at which it listens,
// and then every probe.
type report struct {
	URL      string `json:"url,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`
	Error    string `json:"error,omitempty"`
}

// workerMain is the main function of a worker process. Its role is its name and its
// probe interval.
func workerMain(role string) error {
	name, interval, _ := strings.Cut(role, " ")
	every, err := time.ParseDuration(interval)
	if err != nil {
		return fmt.Errorf("role %q: %w", role, err)
	}
	return runWorker(stage.Child(), name, every, os.Stdout)
}

// runWorker runs a worker until ctx ends.
func runWorker(ctx context.Context, name string, every time.Duration, stdout io.Writer) error {
	p := &prober{
		name:  name,
		every: every,
		client: &http.Client{
			Timeout:   probeTimeout,
			Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 64},
		},
		out: json.NewEncoder(stdout),
	}
	w, err := worker.New(p.run)
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/%s/%d", name, w.Incarnation())
	srv, err := stage.Serve(stage.Loopback, newHandler(path, w))
	if err != nil {
		return err
	}
	if err := p.tell(report{URL: srv.URL + path}); err != nil {
		return err
	}
	<-ctx.Done()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	return errors.Join(srv.Close(), w.Close(ctx))
}

// prober is the shared state of a worker's tasks.
type prober struct {
	name   string
	every  time.Duration
	client *http.Client

	mu  sync.Mutex // guards out
	out *json.Encoder
}

// run is a task: it probes its endpoint until it is stopped.
func (p *prober) run(ctx context.Context, e endpoint) error {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		r := report{Endpoint: e.Name}
		if err := p.probe(ctx, e); ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil {
			r.Error = err.Error()
		}
		if err := p.tell(r); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func (p *prober) probe(ctx context.Context, e endpoint) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", agent+"/"+p.name)
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxMessage))
	if resp.StatusCode >= http.StatusBadRequest {
		err = errors.New(resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}

func (p *prober) tell(r report) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Encode(r)
}

// process is a worker process.
type process struct {
	*stage.Process
	member member
}

// startProcess starts a worker, and returns when it listens. heard is called with
// each of its reports, in order, from one goroutine.
func startProcess(ctx context.Context, name string, every time.Duration, stderr io.Writer, heard func(worker string, r report)) (*process, error) {
	reports, stdout := io.Pipe()
	started, err := stage.Start(ctx, name+" "+every.String(), 2*probeTimeout, stdout, stderr)
	if err != nil {
		return nil, err
	}
	url := make(chan string, 1)
	go func() {
		defer func() { _ = reports.Close() }()
		for out := json.NewDecoder(reports); ; {
			var r report
			if err := out.Decode(&r); err != nil {
				return
			}
			if r.URL != "" {
				url <- r.URL
				continue
			}
			heard(name, r)
		}
	}()
	go func() {
		<-started.Ended()
		_ = stdout.Close()
	}()
	select {
	case u := <-url:
		return &process{Process: started, member: member{Name: name, URL: u}}, nil
	case <-started.Ended():
		err = fmt.Errorf("worker %s ended before it listened: %w", name, started.Err())
	case <-time.After(startTimeout):
		err = fmt.Errorf("worker %s did not listen within %v", name, startTimeout)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	started.Stop()
	return nil, err
}

// kill ends the process as kill -9 does, and returns when it has ended.
func (p *process) kill() error {
	err := p.Signal(os.Kill)
	p.Stop()
	return err
}
