// Quickstart watches HTTP endpoints with worker processes. It shows what an
// orchestrator does while one worker is killed, one joins, one is drained, and
// endpoints are added and removed.
//
//	go run ./examples/quickstart
//
// The first time, Go compiles for about half a minute before the first line.
//
// Each endpoint is a task with two instances, so two workers probe it. Each worker is
// a separate process. The leader, which is this process, calls it over HTTP.
//
// Read three files: main.go has the leader, which calls NextTerm on a ticker; worker.go
// has a worker; http.go has the transport between them, for you to copy.
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
)

func main() {
	if name := stage.Role(); name != "" {
		stage.Main(name, func(context.Context) error { return runWorker(stage.Child(), name, os.Stdout) })
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
	log   *stage.Log
	fleet map[string]*process // the workers that have not stopped, by name
	state map[string]orchestrator.State
}

// run runs the demonstration, and ends all its processes.
func run(ctx context.Context, lasts time.Duration, out io.Writer) (err error) {
	o, err := orchestrator.New(newCommunicator(),
		orchestrator.WithCommunicatorTimeout(callTimeout),
		orchestrator.WithGracePeriod(gracePeriod),
	)
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
	return l.demonstrate(ctx, lasts)
}

// The endpoints, and those added and removed at the end.
const (
	names = "api auth blog cart cdn chat docs faq feed geo home jobs " +
		"login mail maps news pay push search shop stock tax video wiki"
	added   = "help live sso"
	removed = "blog faq"
)

// demonstrate makes five events happen. After each, terms follow until the fleet has
// settled, and until the event's share of the time has passed.
func (l *leader) demonstrate(ctx context.Context, lasts time.Duration) error {
	events := []struct {
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
			l.RemoveWorker(l.fleet["w1"].member)
			l.stop("w1")
			l.log.Say("w1 has no tasks left, so the leader removes and stops it")
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
	for i, e := range events {
		l.log.Title("%d/%d  %s", i+1, len(events), e.title)
		began := time.Now()
		if err := e.happen(); err != nil {
			return err
		}
		var sum changes
		for settled := false; !settled || time.Since(began) < lasts/time.Duration(len(events)); {
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
	l.log.Title("the end")
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

// join starts worker processes and adds them to the fleet.
func (l *leader) join(ctx context.Context, names ...string) error {
	for _, name := range names {
		p, err := startWorker(ctx, name)
		if err != nil {
			return err
		}
		l.fleet[name] = p
		l.log.Say("%s is process %d", name, p.PID())
		if err := l.AddWorker(p.member); err != nil {
			return err
		}
	}
	return nil
}

// stop stops a worker process, if it still runs.
func (l *leader) stop(name string) {
	l.fleet[name].Stop()
	delete(l.fleet, name)
}

// add adds endpoints, with two instances each.
func (l *leader) add(names string) error {
	for name := range strings.FieldsSeq(names) {
		if err := l.AddTask(l.site.endpoint(name), orchestrator.WithTaskInstances(2)); err != nil {
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
