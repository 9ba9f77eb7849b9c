// The leader: it calls NextTerm on a ticker, checks when the fleet has settled, and
// starts and stops the worker processes.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/examples/internal/stage"
)

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

// phase counts the changes in one chapter.
type phase struct {
	title                string
	terms                int
	starts, stops, moves int // planned
	undone               int // changes that did not succeed in their term
	adds, fewest         int // starts including those in moves, and the fewest possible
	longest              gap
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

func (p *phase) add(plan orchestrator.Plan[member, endpoint]) {
	p.terms++
	p.adds += plan.Stats.Adds
	p.fewest += plan.Stats.LowerBound
	for _, c := range plan.Changes {
		switch c.Kind.Op {
		case orchestrator.Start:
			p.starts++
		case orchestrator.Stop:
			p.stops++
		case orchestrator.Move:
			p.moves++
		}
		if c.Outcome != orchestrator.OutcomeDone {
			p.undone++
		}
	}
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

// settled returns what is left to wait for. It returns nil when every endpoint runs
// on the right number of workers, evenly, and each of these has probed it since the
// last change.
func (l *leader) settled() error {
	runs := make(map[endpoint][]string)
	open := 0
	for _, w := range l.LastActual() {
		switch {
		case w.State != orchestrator.Answering:
			continue
		case !w.Draining:
			open++
		case len(w.Tasks) > 0:
			return fmt.Errorf("%v is draining and still has %d endpoints", w.Name, len(w.Tasks))
		}
		for _, e := range w.Tasks {
			runs[e] = append(runs[e], w.Name.Name)
		}
	}
	for _, t := range l.ListExpectedTasks() {
		on := runs[t.Name]
		if want := min(t.Instances, open); len(on) != want {
			return fmt.Errorf("%v runs on %v: want %d workers", t.Name, on, want)
		}
		for _, worker := range on {
			if !l.ledger.probedSince(l.changed, t.Name.Name, worker) {
				return fmt.Errorf("%s has not probed %v yet", worker, t.Name)
			}
		}
		delete(runs, t.Name)
	}
	if len(runs) > 0 {
		return fmt.Errorf("%d endpoints run that are not expected", len(runs))
	}
	if spread := l.LastPlan().Stats.Spread; spread > 1 {
		return fmt.Errorf("the loads differ by %d", spread)
	}
	for _, name := range l.gone {
		// A probe may have been under way when the endpoint was removed.
		if l.ledger.strayedSince(l.changed.Add(termEvery), name) {
			return fmt.Errorf("%s is still probed", name)
		}
	}
	return nil
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
