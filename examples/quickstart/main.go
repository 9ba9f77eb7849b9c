// Quickstart watches HTTP endpoints with worker processes. It shows what an
// orchestrator does while one worker is killed, one joins, one is drained,
// endpoints are added and removed, and the leader is killed and starts again.
//
//	go run ./examples/quickstart
//
// The first time, Go compiles for about half a minute before the first line.
//
// Each endpoint is a task with two instances, so two workers probe it. Each worker is
// a separate process, which registers with the leader. The leader, which is this process
// until it is replaced, calls it over HTTP.
//
// Read four files: main.go has the leader, which calls NextTerm on a ticker; worker.go
// has a worker; register.go has how a leader learns of its workers, also after a restart;
// http.go has the transport between them, for you to copy.
//
//	-duration D     the minimum duration (30s)
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/examples/internal/stage"
)

const (
	termEvery   = 250 * time.Millisecond
	callTimeout = time.Second
	gracePeriod = 2 * time.Second
	// timeout is the longest time for the fleet to settle before the program fails.
	timeout = 20 * time.Second
	// instances is how many workers probe an endpoint.
	instances = 2
)

func main() {
	if role := strings.Fields(stage.Role()); len(role) > 0 {
		stage.Main(role[0], func(context.Context) error {
			if role[0] == "leader" {
				return runLeader(stage.Child(), role[1], endpointsAt(role[2], role[3:]))
			}
			return runWorker(stage.Child(), role[0], role[1], os.Stdout)
		})
	}
	lasts := flag.Duration("duration", 30*time.Second, "the minimum duration")
	flag.Parse()
	stage.Main("quickstart", func(ctx context.Context) error {
		if flag.NArg() > 0 {
			return fmt.Errorf("unexpected argument %q", flag.Arg(0))
		}
		return run(ctx, *lasts, os.Stdout)
	})
}

// endpoint is a task. Any comparable value can be a task; this one contains all that
// a worker needs.
type endpoint struct{ Name, URL string }

func (e endpoint) String() string { return e.Name }

// leader runs a fleet of worker processes.
type leader struct {
	*orchestrator.Orchestrator[member, endpoint]
	site  *site
	door  *stage.Server // where workers register
	log   *stage.Log
	fleet map[string]*process // the workers that have not stopped, by name
	state map[string]orchestrator.State
}

// run runs the demonstration, and ends all its processes.
func run(ctx context.Context, lasts time.Duration, out io.Writer) (err error) {
	o, err := newOrchestrator()
	if err != nil {
		return err
	}
	site, err := startSite()
	if err != nil {
		return err
	}
	l := &leader{
		Orchestrator: o, site: site, log: stage.NewLog(out),
		fleet: make(map[string]*process), state: make(map[string]orchestrator.State),
	}
	defer func() {
		for name := range l.fleet {
			l.stop(name)
		}
		err = errors.Join(err, site.Close())
	}()
	if l.door, err = stage.Serve(stage.Loopback, registrations(func(m member) error { return l.AddWorker(m) })); err != nil {
		return err
	}
	if err = l.demonstrate(ctx, lasts); err != nil {
		return errors.Join(err, l.door.Close())
	}
	if err = l.restart(ctx, lasts/events); err != nil {
		return err
	}
	l.log.Title("the end")
	return nil
}

// The endpoints, and those added and removed at the end.
const (
	names = "api auth blog cart cdn chat docs faq feed geo home jobs " +
		"login mail maps news pay push search shop stock tax video wiki"
	added   = "help live sso"
	removed = "blog faq"
)

// events is their number.
const events = 6

// demonstrate makes all events happen but the last one. After each, terms follow until the
// fleet has settled, and until the event's share of the time has passed.
func (l *leader) demonstrate(ctx context.Context, lasts time.Duration) error {
	acts := []struct {
		title  string
		happen func() error
		settle func() // nil: nothing
	}{{
		title: "4 workers join, and 24 endpoints are added",
		happen: func() error {
			return errors.Join(l.join(ctx, "w1", "w2", "w3", "w4"), l.add(names))
		},
	}, {
		title:  "w2 is killed (SIGKILL)",
		happen: func() error { return l.fleet["w2"].Signal(os.Kill) },
		settle: func() {
			// The leader cannot know that w2 has ended, so it waits for the grace period.
			// We know it.
			l.RemoveWorker(l.fleet["w2"].member)
			l.stop("w2")
			l.log.Say("w2 has certainly ended, so the leader removes it")
		},
	}, {
		title:  "w5 joins",
		happen: func() error { return l.join(ctx, "w5") },
	}, {
		title:  "w1 is drained, then stopped",
		happen: func() error { return l.DrainWorker(l.fleet["w1"].member) },
		settle: func() {
			member := l.fleet["w1"].member
			l.stop("w1") // before it is removed, because it registers again
			l.RemoveWorker(member)
			l.log.Say("w1 has no tasks left, so the leader stops and removes it")
		},
	}, {
		title: "3 endpoints are added, 2 are removed",
		happen: func() error {
			for name := range strings.FieldsSeq(removed) {
				l.RemoveTask(l.site.endpoint(name))
				l.site.forget(name)
			}
			return l.add(added)
		},
	}}

	tick := time.NewTicker(termEvery)
	defer tick.Stop()
	l.log.Say("a term every %v; a call may take %v; a worker silent for %v is lost", termEvery, callTimeout, gracePeriod)
	l.log.Say("workers register within %v; a new leader waits for them for %v", registerEvery, initialWait)
	for i, e := range acts {
		l.log.Title("%d/%d  %s", i+1, events, e.title)
		began := time.Now()
		if err := e.happen(); err != nil {
			return err
		}
		var sum changes
		for settled := false; !settled || time.Since(began) < lasts/events; {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-tick.C:
			}
			if err := l.term(ctx); err != nil {
				return err
			}
			sum.add(l.LastPlan())
			switch s := l.LastPlan().Stats; {
			case settled:
			case len(s.Changes) == 0 && s.Instances.Running == s.Instances.Wanted:
				settled = true
				l.log.Say("settled after %.1f s: %v", time.Since(began).Seconds(), sum)
				if e.settle != nil {
					e.settle()
				}
			case time.Since(began) > timeout:
				return fmt.Errorf("the fleet has not settled after %v:\n%v", timeout, l.LastPlan())
			}
		}
		l.log.Say("longest time without a probe of an endpoint: %s", l.site.longestGap())
	}
	return nil
}

// restart ends the leadership of this process, and starts a leader in a process of its own, at the
// same address. Then it kills that leader and starts another. Each knows no worker at first. The
// site says how many workers probe an endpoint.
func (l *leader) restart(ctx context.Context, lasts time.Duration) error {
	l.log.Title("%d/%d  the leader is killed (SIGKILL) and starts again, twice", events, events)
	role := strings.Join([]string{"leader", strings.TrimPrefix(l.door.URL, "http://"), l.site.URL, l.site.names()}, " ")
	if err := l.door.Close(); err != nil { // this process leads no more
		return err
	}
	for range 2 {
		p, err := stage.Start(ctx, role, 2*callTimeout, nil, os.Stderr)
		if err != nil {
			return err
		}
		l.log.Say("the leader is process %d, and knows no worker", p.PID())
		l.site.probers()
		l.site.longestGap()
		pause := max(lasts/2, initialWait+4*termEvery)
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-p.Ended():
			err = fmt.Errorf("the leader has ended: %w", p.Err())
		case <-time.After(pause):
			err = p.Signal(os.Kill)
		}
		p.Stop()
		if err != nil {
			return err
		}
		least, most := l.site.probers()
		if least != instances || most != instances {
			return fmt.Errorf("after the restart endpoints were probed by %d to %d workers, want %d", least, most, instances)
		}
		l.log.Say("%.1f s later each endpoint was probed by %d workers, so none ran twice", pause.Seconds(), instances)
		l.log.Say("longest time without a probe since then: %s", l.site.longestGap())
	}
	return nil
}

// term runs a term, and prints its changes.
func (l *leader) term(ctx context.Context) error {
	err := l.NextTerm(ctx)
	// Calls to a killed worker fail; the next term retries.
	_, onlyCalls := errors.AsType[*orchestrator.TermError](err)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && !onlyCalls, errors.Is(err, orchestrator.ErrDeposed):
		return err
	}

	plan, actual := l.LastPlan(), l.LastActual()
	quiet := len(plan.Changes) == 0
	var loads []string
	for _, w := range actual {
		load := fmt.Sprintf("%v: %d", w.Name, len(w.Tasks))
		if w.State != orchestrator.Answering {
			load = fmt.Sprintf("%v: %v", w.Name, w.State)
		}
		loads = append(loads, load)
		if before, known := l.state[w.Name.Name]; known && before != w.State {
			quiet = false
			switch w.State {
			case orchestrator.Silent:
				l.log.Say("%v is silent: it may still run its %d tasks, so nothing moves yet", w.Name, len(w.Tasks))
			case orchestrator.Lost:
				l.log.Say("%v was silent for %v and is lost: its tasks start elsewhere", w.Name, gracePeriod)
			case orchestrator.Answering:
				l.log.Say("%v answers again", w.Name)
			}
		}
		l.state[w.Name.Name] = w.State
	}
	if !quiet {
		stage.SayChanges(l.log, plan.Changes)
		l.log.Say("now %s", strings.Join(loads, ", "))
	}
	return nil
}

// join starts worker processes, which register with the leader.
func (l *leader) join(ctx context.Context, names ...string) error {
	for _, name := range names {
		p, err := startWorker(ctx, name, l.door.URL)
		if err != nil {
			return err
		}
		l.fleet[name] = p
		l.log.Say("%s is process %d", name, p.PID())
	}
	return nil
}

// stop stops a worker process, if it still runs.
func (l *leader) stop(name string) {
	l.fleet[name].Stop()
	delete(l.fleet, name)
}

// add adds endpoints.
func (l *leader) add(names string) error {
	for name := range strings.FieldsSeq(names) {
		if err := l.AddTask(l.site.endpoint(name), orchestrator.WithTaskInstances(instances)); err != nil {
			return err
		}
		l.site.expect(name)
	}
	return nil
}

// changes counts the changes of several terms.
type changes struct{ starts, moves, stops, fewest int }

func (c *changes) add(p orchestrator.Plan[member, endpoint]) {
	for kind, n := range p.Stats.Changes {
		switch kind.Op {
		case orchestrator.Start:
			c.starts += n
		case orchestrator.Move:
			c.moves += n
		case orchestrator.Stop:
			c.stops += n
		}
	}
	c.fewest += p.Stats.LowerBound
}

func (c changes) String() string {
	return fmt.Sprintf("%d starts, %d moves, %d stops; fewest possible: %d", c.starts, c.moves, c.stops, c.fewest)
}
