//go:build peers

package main

// Reaction time: how long a user waits after a change until the tasks run. The
// leader uses Run with the default settle time, so the wait for the next term is
// included. The systems are in reaction_systems.go, the worker processes in
// worker_process.go.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/f8949c05/orchestrator"
)

// The goals for the 99th percentile.
const (
	settle          = 200 * time.Millisecond // the default of WithSettle
	addTerms        = 2.5                    // steady terms beyond settle until an added task runs
	joinGoal        = time.Second
	beyondLeaseGoal = 500 * time.Millisecond
	goalPercentile  = 99
	memoryTransport = "memory"
	grpcTransport   = "gRPC"
)

// reactionConfig selects what is measured, and how often.
type reactionConfig struct {
	over     []transport
	rounds   int           // of every event except restarts
	interval time.Duration // of Run
	timeout  time.Duration // time limit for one event
}

// transport is a system to measure. Its size includes the worker that joins.
type transport struct {
	name string
	size
	restarts   int           // rounds
	lease      time.Duration // of the members that stay
	shortLease time.Duration // of the worker that joins and is killed
	start      func(context.Context, transport, time.Duration) (system, error)
}

// system is a cluster and a leader that runs terms.
type system interface {
	// observed returns the context that ends when the system fails, the running
	// tasks, and the terms.
	observed() (context.Context, *taskLog, *termLog)
	add(task string) error
	remove(tasks []string) error
	// join makes one more worker join, and returns when it began to join.
	join(worker string) (time.Time, error)
	// kill kills a worker that has joined, and returns when its lease ends.
	kill(worker string) (time.Time, error)
	// stopLeader ends the leader; startLeader starts the next one.
	stopLeader()
	startLeader() error
	close() error
}

// reactions are the times measured over one transport.
type reactions struct {
	transport
	steady               samples // terms without a change, while tasks were added
	added, joined, freed reaction
	restarts             samples
	late                 samples // delays of timers beyond their time
}

// reaction holds the times from a change until its tasks run, and until the term
// begins that starts them.
type reaction struct{ took, began samples }

func measureReactions(ctx context.Context, cfg config) (reactionResults, error) {
	var all reactionResults
	for _, t := range cfg.reaction.over {
		r, err := measureReaction(ctx, cfg, t)
		if err != nil {
			return all, fmt.Errorf("reaction over %s: %w", t.name, err)
		}
		all = append(all, r)
	}
	return all, nil
}

func measureReaction(ctx context.Context, cfg config, t transport) (r reactions, err error) {
	r.transport = t
	c := cfg.reaction
	cfg.log("reaction time over %s: %s start", t.name, t.size)
	s, err := t.start(ctx, t, c.interval)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	o := observer{system: s, reactionConfig: c, tasks: t.instances, workers: t.workers - 1}
	o.ctx, o.taskLog, o.terms = s.observed()
	if err := o.whole(0); err != nil {
		return r, err
	}
	cfg.log("reaction time over %s: tasks are added", t.name)
	if err := o.adds(&r); err != nil {
		return r, fmt.Errorf("add a task: %w", err)
	}
	cfg.log("reaction time over %s: workers join and are killed; until an added task runs: %s", t.name, r.added.took)
	if err := o.joinsAndKills(&r); err != nil {
		return r, err
	}
	cfg.log("reaction time over %s: the leader is restarted; joins: %s; beyond the lease: %s", t.name, r.joined.took, r.freed.took)
	for range t.restarts {
		took, err := o.restart(&r)
		if err != nil {
			return r, fmt.Errorf("restart the leader: %w", err)
		}
		r.restarts = append(r.restarts, took)
	}
	return r, nil
}

// observer changes a system and measures the reaction times.
type observer struct {
	system
	reactionConfig
	ctx            context.Context
	taskLog        *taskLog
	terms          *termLog
	tasks, workers int // the present numbers
}

// within bounds the time of one event.
func (o *observer) within() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(o.ctx, o.timeout, fmt.Errorf("not done after %v", o.timeout))
}

// pause waits for a random time up to limit, so that changes come at any moment
// between two terms. It records the delay of its timer.
func (o *observer) pause(r *reactions, limit time.Duration) error {
	start, d := time.Now(), rand.N(limit)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		r.late = append(r.late, time.Since(start)-d)
		return nil
	case <-o.ctx.Done():
		return context.Cause(o.ctx)
	}
}

// firstWhole waits for the first term after the first n that all workers answered
// and that left all tasks running.
func (o *observer) firstWhole(n int) (orchestrator.TermStats, error) {
	ctx, cancel := o.within()
	defer cancel()
	return o.terms.wait(ctx, n, func(s orchestrator.TermStats) bool {
		return s.Err == nil && s.Workers.Answering == o.workers && s.Workers.Silent+s.Workers.Lost == 0 &&
			s.Instances.Running == o.tasks && s.Spread <= 1
	})
}

// whole waits for such a term, and until all tasks run.
func (o *observer) whole(n int) error {
	if _, err := o.firstWhole(n); err != nil {
		return err
	}
	_, err := o.allRun()
	return err
}

// allRun waits until all tasks run, and returns when the last one started.
func (o *observer) allRun() (time.Time, error) {
	ctx, cancel := o.within()
	defer cancel()
	return o.taskLog.wait(ctx, o.tasks)
}

// reacted records a reaction that lasted from since to ran. The term that began it
// comes after the first n.
func (o *observer) reacted(r *reaction, n int, since, ran time.Time) error {
	ctx, cancel := o.within()
	defer cancel()
	s, err := o.terms.wait(ctx, n, func(s orchestrator.TermStats) bool { return s.Adds > 0 })
	r.took, r.began = append(r.took, ran.Sub(since)), append(r.began, s.Start.Sub(since))
	return err
}

// adds adds one task in each round, and removes all of them at the end.
func (o *observer) adds(r *reactions) error {
	runtime.GC()
	before := o.terms.len()
	var added []string
	for range o.rounds {
		if err := o.pause(r, o.interval); err != nil {
			return err
		}
		task := taskName(o.tasks)
		n, start := o.terms.len(), time.Now()
		if err := o.add(task); err != nil {
			return err
		}
		o.tasks++
		ran, err := o.allRun()
		if err != nil {
			return err
		}
		if err := o.reacted(&r.added, n, start, ran); err != nil {
			return err
		}
		added = append(added, task)
	}
	steady := func(s orchestrator.TermStats) bool { return s.Err == nil && len(s.Changes) == 0 }
	ctx, cancel := o.within()
	defer cancel()
	if _, err := o.terms.wait(ctx, o.terms.len(), steady); err != nil {
		return err
	}
	for _, s := range o.terms.since(before) {
		if steady(s) {
			r.steady = append(r.steady, s.Total)
		}
	}
	before = o.terms.len()
	if err := o.remove(added); err != nil {
		return err
	}
	o.tasks -= len(added)
	return o.whole(before)
}

// joinsAndKills makes a worker join and kills it, in each round.
func (o *observer) joinsAndKills(r *reactions) error {
	runtime.GC()
	for round := range o.rounds {
		if err := o.pause(r, o.interval/4); err != nil {
			return err
		}
		name := fmt.Sprintf("joiner-%03d", round)
		if err := o.joins(r, name); err != nil {
			return fmt.Errorf("%s joins: %w", name, err)
		}
		if err := o.dies(r, name); err != nil {
			return fmt.Errorf("%s is killed: %w", name, err)
		}
	}
	return nil
}

// joins makes a worker join, and waits until it runs its share.
func (o *observer) joins(r *reactions, name string) error {
	n := o.terms.len()
	start, err := o.join(name)
	if err != nil {
		return err
	}
	o.workers++
	ctx, cancel := o.within()
	defer cancel()
	ran, err := o.taskLog.waitFor(ctx, name, r.instances/r.workers)
	if err != nil {
		return err
	}
	return errors.Join(o.reacted(&r.joined, n, start, ran), o.whole(n))
}

// dies kills a worker, and waits until its tasks run elsewhere.
func (o *observer) dies(r *reactions, name string) error {
	n := o.terms.len()
	ends, err := o.kill(name)
	if err != nil {
		return err
	}
	o.workers--
	ran, err := o.allRun()
	if err != nil {
		return err
	}
	if ran.Before(ends) {
		return fmt.Errorf("all tasks ran elsewhere %v before the lease ended", ends.Sub(ran))
	}
	return errors.Join(o.reacted(&r.freed, n, ends, ran), o.whole(n))
}

// restart returns the time from the end of one leader until the end of the next
// leader's first whole term.
func (o *observer) restart(r *reactions) (time.Duration, error) {
	if err := o.pause(r, o.interval/4); err != nil {
		return 0, err
	}
	o.stopLeader()
	start, before := time.Now(), o.terms.len()
	if err := o.startLeader(); err != nil {
		return 0, err
	}
	s, err := o.firstWhole(before)
	return s.Start.Add(s.Total).Sub(start), err
}

// reactionResults are the results for all transports.
type reactionResults []reactions

func (all reactionResults) goals() []goal {
	var goals []goal
	for _, r := range all {
		steady := r.steady.median()
		late := fmt.Sprintf("timers %s ms late", ms(r.late.percentile(goalPercentile)))
		within := func(what string, took samples, limit time.Duration, note string) {
			goals = append(goals, goal{
				What: fmt.Sprintf("reaction over %s, %s, %dth percentile: %s", r.name, r.size, goalPercentile, what),
				Op:   "<=", Measured: ms(took.percentile(goalPercentile)), Limit: ms(limit), Unit: "ms", Note: note,
			})
		}
		within("a task is added, until it runs", r.added.took, settle+time.Duration(addTerms*float64(steady)),
			fmt.Sprintf("limit: WithSettle and %g steady terms of %s ms; %s", addTerms, ms(steady), late))
		within(fmt.Sprintf("a worker joins, until it runs its %d tasks", r.instances/r.workers), r.joined.took, joinGoal, late)
		within("a worker is killed, from the end of its lease until its tasks run elsewhere", r.freed.took, beyondLeaseGoal, late)
	}
	return goals
}

// String returns the median and the percentile of the goals, in milliseconds.
func (s samples) String() string {
	return ms(s.median()).String() + " · " + ms(s.percentile(goalPercentile)).String()
}

func (all reactionResults) tables() []table {
	t := table{Title: "reaction time, ms"}
	for _, r := range all {
		name := r.name + ", " + r.String()
		t.Columns = append(t.Columns, name, fmt.Sprintf("%s: %dth percentile", r.name, goalPercentile))
	}
	times := func(name string, f func(reactions) samples) {
		var values []number
		for _, r := range all {
			values = append(values, ms(f(r).median()), ms(f(r).percentile(goalPercentile)))
		}
		t.add(name, values...)
	}
	both := func(event, end string, f func(reactions) reaction) {
		times(event+", until "+end, func(r reactions) samples { return f(r).took })
		times(event+", until its term begins", func(r reactions) samples { return f(r).began })
	}
	both("a task is added", "it runs", func(r reactions) reaction { return r.added })
	both("a worker joins", "it runs its share", func(r reactions) reaction { return r.joined })
	both("a worker's lease ends after it was killed", "its tasks run", func(r reactions) reaction { return r.freed })
	times("the leader is restarted, until the first whole term", func(r reactions) samples { return r.restarts })
	times("a steady term", func(r reactions) samples { return r.steady })
	times("a timer fires late", func(r reactions) samples { return r.late })

	how := table{Title: "how it was measured"}
	for _, r := range all {
		how.Columns = append(how.Columns, r.name)
	}
	how.add("rounds of restarts", eachOf(all, func(r reactions) number { return count(len(r.restarts)) })...)
	seconds := func(d time.Duration) number {
		if d == 0 {
			return missing()
		}
		return number(d.Seconds())
	}
	how.add("lease of the killed worker, s", eachOf(all, func(r reactions) number { return seconds(r.shortLease) })...)
	how.add("lease of the others, s", eachOf(all, func(r reactions) number { return seconds(r.lease) })...)
	return []table{t, how}
}
