// Quickstart watches HTTP endpoints with a fleet of worker processes. It shows what
// an orchestrator does while one worker is killed, one joins, one is drained, and
// endpoints are added and removed.
//
//	go run ./examples/quickstart
//
// The first time, Go compiles for about half a minute before the first line.
//
// Each endpoint is a task with two instances, so two workers probe it. Every worker
// is a separate process with its own loopback port. The leader calls it through a
// Communicator over net/http, which is part of this example.
//
// Read three files: main.go calls NextTerm on a ticker, communicator.go shows how to
// write your own transport, and worker.go is a worker. The other files are about the
// demonstration. The tests check the Communicator with communicatortest.Run.
//
//	-tasks FILE     watch your own endpoints: a CSV file of name,url,instances
//	-workers N      begin with that many workers (4)
//	-duration D     the minimum duration (30s)
//	-metrics ADDR   serve /metrics there, and continue until interrupted
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/examples/internal/stage"
	"github.com/f8949c05/orchestrator/stats"
)

func main() {
	if role := stage.Role(); role != "" {
		stage.Main("quickstart", func(context.Context) error { return workerMain(role) })
	}
	stage.Main("quickstart", func(ctx context.Context) error {
		s, err := parse(os.Args[1:])
		if err != nil {
			return err
		}
		return run(ctx, s, os.Stdout, os.Stderr)
	})
}

// run runs the demonstration, and ends all its processes.
func run(ctx context.Context, s settings, stdout *os.File, stderr io.Writer) (err error) {
	began := time.Now()
	reg := prometheus.NewRegistry()
	collector, err := stats.Register(reg)
	if err != nil {
		return err
	}
	var pages *stage.Server
	if s.metrics != "" {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
		if pages, err = stage.Serve(s.metrics, mux); err != nil {
			return fmt.Errorf("-metrics: %w", err)
		}
		defer func() { err = errors.Join(err, pages.Close()) }()
	}
	l, err := newLeader(s.tasks != nil, stderr, orchestrator.WithStats(collector.Observe))
	if err != nil {
		return err
	}
	defer l.close()
	target, err := stage.Serve(stage.Loopback, newTarget(l.ledger.probed))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()

	if err := l.show(ctx, s, target.URL, newView(stdout, began), pages); err != nil {
		return err
	}
	if _, err := io.WriteString(stdout, l.summary(time.Since(began))); err != nil || pages == nil {
		return err
	}
	l.view = &plain{out: stdout, began: began}
	l.view.chapter("the fleet and " + pages.URL + "/metrics continue until interrupted")
	if err := l.until(ctx, forever, l.settled); ctx.Err() == nil {
		return err
	}
	return nil
}

// show runs the demonstration in a view, which it always closes.
func (l *leader) show(ctx context.Context, s settings, base string, v view, pages *stage.Server) error {
	defer v.close()
	l.view = v
	if pages != nil {
		v.say("metrics are at " + pages.URL + "/metrics")
	}
	return l.tell(ctx, s, base)
}

const (
	termEvery   = 250 * time.Millisecond
	callTimeout = time.Second
	gracePeriod = 2 * time.Second

	storyProbes  = 250 * time.Millisecond
	ownProbes    = time.Second
	probeTimeout = 2 * time.Second
	startTimeout = 10 * time.Second
	// patience is the longest time for the fleet to settle before the program fails.
	patience = 20 * time.Second
	forever  = time.Duration(math.MaxInt64)
)

// leader runs a fleet of worker processes.
type leader struct {
	*orchestrator.Orchestrator[member, endpoint]

	ledger *ledger
	view   view
	tick   *time.Ticker
	every  time.Duration // how often a worker probes an endpoint
	start  func(ctx context.Context, name string) (*process, error)

	fleet   map[string]*process // the workers not stopped, by name
	gone    []string            // endpoints that are no longer probed
	changed time.Time           // when a term last changed anything
	phases  []phase             // the last one is under way
}

// newLeader returns a leader without a fleet. The user's own endpoints are probed
// less often, and only the workers report their probes.
func newLeader(own bool, stderr io.Writer, opts ...orchestrator.Option) (*leader, error) {
	l := &leader{
		ledger: newLedger(),
		tick:   time.NewTicker(termEvery),
		fleet:  make(map[string]*process),
	}
	l.every = storyProbes
	heard := l.ledger.reported
	if own {
		l.every = ownProbes
		heard = func(worker string, r report) {
			l.ledger.reported(worker, r)
			l.ledger.probed(r.Endpoint, worker, time.Now())
		}
	}
	l.start = func(ctx context.Context, name string) (*process, error) {
		return startProcess(ctx, name, l.every, stderr, heard)
	}
	var err error
	l.Orchestrator, err = orchestrator.New(
		communicator{client: &http.Client{Transport: &http.Transport{}}},
		append(opts,
			orchestrator.WithCommunicatorTimeout(callTimeout),
			orchestrator.WithGracePeriod(gracePeriod),
		)...)
	return l, err
}

// term runs a term and records it. Failed calls are expected, and the next term
// retries.
func (l *leader) term(ctx context.Context) error {
	err := l.NextTerm(ctx)
	_, whole := errors.AsType[*orchestrator.TermError](err)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && !whole, errors.Is(err, orchestrator.ErrDeposed):
		return err
	}
	plan := l.LastPlan()
	if len(plan.Changes) > 0 {
		l.changed = time.Now()
	}
	p := &l.phases[len(l.phases)-1]
	p.add(plan)
	p.longest = l.ledger.longest()
	l.view.term(frame{plan: plan, actual: l.LastActual(), longest: p.longest})
	return nil
}

// until runs terms on the ticker, for at least the time least and until waitingFor
// returns nil.
func (l *leader) until(ctx context.Context, least time.Duration, waitingFor func() error) error {
	began := time.Now()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.tick.C:
		}
		if err := l.term(ctx); err != nil {
			return err
		}
		why := waitingFor()
		switch took := time.Since(began); {
		case why == nil && took >= least:
			return nil
		case why != nil && took-least >= patience:
			return fmt.Errorf("not settled after %v: %w", took.Round(time.Second), why)
		}
	}
}

// join starts worker processes and makes them members of the fleet.
func (l *leader) join(ctx context.Context, names ...string) error {
	for _, name := range names {
		p, err := l.start(ctx, name)
		if err != nil {
			return err
		}
		l.fleet[name] = p
		l.view.say(fmt.Sprintf("%s is process %d, at %s", name, p.PID(), p.member.URL))
	}
	for _, name := range names {
		if err := l.AddWorker(l.fleet[name].member); err != nil {
			return err
		}
	}
	return nil
}

// dismiss removes a worker that has certainly stopped its tasks: it is dead or
// drained.
func (l *leader) dismiss(name, because string) {
	l.RemoveWorker(l.fleet[name].member)
	l.fleet[name].Stop()
	delete(l.fleet, name)
	l.view.say(name + " " + because)
}

// close stops the rest of the fleet.
func (l *leader) close() {
	l.tick.Stop()
	for _, name := range slices.Sorted(maps.Keys(l.fleet)) {
		l.fleet[name].End()
	}
	for _, p := range l.fleet {
		p.Stop()
	}
}
