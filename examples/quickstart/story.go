package main

// The demonstration in five chapters: when a chapter has settled, and the summary.

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
)

// chapter is a part of the demonstration: an event, and the time that the fleet
// takes to settle. then, if not nil, runs after the fleet has settled.
type chapter struct {
	title  string
	happen func(ctx context.Context) error
	then   func()
}

// chapters returns all chapters. The endpoints of the demonstration are served below
// base. With the user's own endpoints there is no last chapter, because it would
// remove some.
func (l *leader) chapters(s settings, base string) []chapter {
	var names []string
	for i := range s.workers {
		names = append(names, fmt.Sprintf("w%d", i+1))
	}
	drained, killed, joining := names[0], names[1], fmt.Sprintf("w%d", s.workers+1)
	tasks := s.tasks
	if tasks == nil {
		tasks = storyTasks(base, storyNames)
	}

	all := []chapter{{
		title: "an even start",
		happen: func(ctx context.Context) error {
			if err := l.join(ctx, names...); err != nil {
				return err
			}
			return l.expect(tasks)
		},
	}, {
		title:  killed + " is killed (SIGKILL)",
		happen: func(context.Context) error { return l.fleet[killed].kill() },
		then:   func() { l.dismiss(killed, "has certainly ended, and is removed from the fleet") },
	}, {
		title:  joining + " joins",
		happen: func(ctx context.Context) error { return l.join(ctx, joining) },
	}, {
		title:  drained + " is drained, then stopped",
		happen: func(context.Context) error { return l.DrainWorker(l.fleet[drained].member) },
		then:   func() { l.dismiss(drained, "has no tasks left, and is stopped") },
	}}
	if s.tasks != nil {
		return all
	}
	added, removed := storyTasks(base, storyAdded), storyTasks(base, storyRemoved)
	return append(all, chapter{
		title: fmt.Sprintf("%d endpoints added, %d removed", len(added), len(removed)),
		happen: func(context.Context) error {
			for _, t := range removed {
				l.RemoveTask(t.Name)
				l.ledger.end(t.Name.Name)
				l.gone = append(l.gone, t.Name.Name)
			}
			return l.expect(added)
		},
	})
}

// expect adds tasks to the expected ones.
func (l *leader) expect(tasks []task) error {
	l.ledger.begin(tasks)
	for _, t := range tasks {
		if err := l.AddTask(t.Name, orchestrator.WithTaskInstances(t.Instances)); err != nil {
			return err
		}
	}
	return nil
}

// tell runs all chapters. Each chapter gets its share of the time, or more if the
// fleet needs more.
func (l *leader) tell(ctx context.Context, s settings, base string) error {
	all := l.chapters(s, base)
	share := s.lasts / time.Duration(len(all))
	l.view.say(fmt.Sprintf("a term every %v; call timeout %v; a worker silent for %v is lost", termEvery, callTimeout, gracePeriod))
	for i, c := range all {
		began := time.Now()
		l.phases = append(l.phases, phase{title: c.title})
		l.ledger.turn()
		l.view.chapter(fmt.Sprintf("%d/%d  %s", i+1, len(all), c.title))
		if err := c.happen(ctx); err != nil {
			return err
		}
		rest := func() time.Duration { return share - time.Since(began) }
		if c.then == nil {
			if err := l.settle(ctx, rest()); err != nil {
				return err
			}
			continue
		}
		if err := l.settle(ctx, rest()/2); err != nil {
			return err
		}
		c.then()
		if err := l.until(ctx, rest(), l.settled); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until the fleet has settled, and reports it.
func (l *leader) settle(ctx context.Context, least time.Duration) error {
	began, said := time.Now(), false
	return l.until(ctx, least, func() error {
		err := l.settled()
		if err == nil && !said {
			said = true
			l.view.say(fmt.Sprintf("settled after %.1f s; longest unprobed %v",
				time.Since(began).Seconds(), l.ledger.longest()))
		}
		return err
	})
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

// phase counts the changes in one chapter.
type phase struct {
	title                string
	terms                int
	starts, stops, moves int // planned
	undone               int // changes that did not succeed in their term
	adds, fewest         int // starts including those in moves, and the fewest possible
	longest              gap
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

// summary returns the summary of the run.
func (l *leader) summary(took time.Duration) string {
	var b strings.Builder
	total := phase{title: "in all"}
	for _, p := range l.phases {
		total.terms += p.terms
		total.starts += p.starts
		total.stops += p.stops
		total.moves += p.moves
		total.undone += p.undone
		total.adds += p.adds
		total.fewest += p.fewest
		total.longest = longer(total.longest, p.longest)
	}

	fmt.Fprintf(&b, "\nThe end, after %.1f s: %d terms, %d changes.\n\n", took.Seconds(), total.terms, total.starts+total.stops+total.moves)
	fmt.Fprintf(&b, "  %-28s%7s%6s%6s%6s%8s  %s\n", "", "starts", "stops", "moves", "adds", "fewest", "unprobed")
	for _, p := range append(l.phases, total) {
		fmt.Fprintf(&b, "  %-28s%7d%6d%6d%6d%8d  %v\n", p.title, p.starts, p.stops, p.moves, p.adds, p.fewest, p.longest)
	}
	fmt.Fprintf(&b, `
  adds      starts, including those that are part of a move
  fewest    the fewest starts that any plan needs for the same result
  unprobed  the longest time without a probe of an endpoint; each of its
            workers probes it every %v
`, l.every)
	if total.undone > 0 {
		fmt.Fprintf(&b, "\n  %d changes did not succeed in their term, and were retried.\n", total.undone)
	}

	fmt.Fprintf(&b, "\n  %-7s%5s%8s%8s  %s\n", "worker", "load", "probes", "failed", "endpoints")
	for _, w := range l.LastActual() {
		rows := wrap(names(w.Tasks), 48, len(w.Tasks)+1)
		t := l.ledger.tally(w.Name.Name)
		fmt.Fprintf(&b, "  %-7v%5d%8d%8d  %s\n", w.Name, len(w.Tasks), t.done, t.failed, rows[0])
		for _, more := range rows[1:] {
			fmt.Fprintf(&b, "%32s%s\n", "", more)
		}
		if t.failed > 0 {
			fmt.Fprintf(&b, "%32slast failed: %s\n", "", t.lastFailure)
		}
	}
	return b.String()
}
