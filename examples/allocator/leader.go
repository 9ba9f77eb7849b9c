package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/examples/allocator/api"
	"github.com/f8949c05/orchestrator/stats"
)

func (n *node) newElection() (*etcd.Election, error) {
	opts := []etcd.ElectionOption{etcd.WithLeaseDuration(n.lease)}
	for _, o := range n.options {
		opts = append(opts, o)
	}
	return etcd.NewElection(n.client, n.name, opts...)
}

// lead loads the tasks and the members, and runs terms until ctx ends. Everything
// here is created for one leadership, because state of an earlier one is invalid.
func (n *node) lead(ctx context.Context, l *etcd.Leadership) error {
	comm, err := etcd.NewCommunicator(ctx, n.client, l, n.options...)
	if err != nil {
		return err
	}
	collector, err := stats.Register(n.metrics)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	n.shortages.Store(&shortages{})
	defer n.shortages.Store(nil)
	stopShowing := func() {}
	defer func() { stopShowing() }()
	var o *orchestrator.Orchestrator[etcd.WorkerID, string]
	load := func(made *orchestrator.Orchestrator[etcd.WorkerID, string]) error {
		o = made
		if n.board != nil {
			stopShowing = dashboard.Lead(n.board.Handler, o)
		}
		return errors.Join(n.registry.Feed(ctx, l, o), n.membership.Feed(ctx, l, o))
	}
	return etcd.LeadWith(ctx, l, comm, n.interval, load,
		orchestrator.WithCommunicatorTimeout(n.lease/2),
		orchestrator.WithLogger(n.logger),
		orchestrator.WithStats(collector.Observe),
		orchestrator.WithStats(func(orchestrator.TermStats) {
			plan := o.LastPlan()
			n.tell(plan)
			n.shortages.Store(newShortages(plan))
		}),
	)
}

// tell logs the changes of a term, with reasons.
func (n *node) tell(p orchestrator.Plan[etcd.WorkerID, string]) {
	for _, c := range p.Changes {
		where := ""
		if c.From.Name != "" {
			where += " from " + word(c.From.Name)
		}
		if c.To.Name != "" {
			where += " to " + word(c.To.Name)
		}
		n.journal.say("leader: %s %s%s, %s: %s", c.Kind.Op, word(c.Task), where, c.Kind.Reason, c.Outcome)
	}
}

// Reasons in addition to those of a plan.
const (
	reasonNoLeader  = "no leader"       // no process leads, so no task is started
	reasonAskLeader = "ask the leader"  // only the leader has a plan; it is another process
	reasonNoTerm    = "not yet planned" // no term has ended since the task or its number of instances changed
)

// shortages holds the missing instances of each task after the leader's last term,
// with reasons. It is immutable.
type shortages struct{ byTask map[string][]api.Waiting }

func newShortages(p orchestrator.Plan[etcd.WorkerID, string]) *shortages {
	s := &shortages{byTask: map[string][]api.Waiting{}}
	failures := map[string]string{}
	for _, pause := range p.Paused {
		if pause.Task != "" {
			failures[pause.Task] = fmt.Sprintf("%s, retry in term %d: %v", pause.Worker.Name, pause.Until, pause.Err)
		}
	}
	for _, c := range p.Changes {
		if c.Err != nil && c.Kind.Op != orchestrator.Stop {
			failures[c.Task] = c.Err.Error()
		}
	}
	for _, w := range p.Waiting {
		waiting := api.Waiting{Instances: w.Instances, Reason: string(w.Reason), Worker: w.Worker.Name}
		if w.Causes != nil {
			waiting.Detail = w.Causes.String()
		}
		switch w.Reason {
		case orchestrator.ReasonPaused, orchestrator.ReasonFailed, orchestrator.ReasonSkipped:
			waiting.Detail = failures[w.Task]
		}
		s.byTask[w.Task] = append(s.byTask[w.Task], waiting)
	}
	return s
}

func (c cluster) Waiting(id string, missing int) []api.Waiting {
	waiting := api.Waiting{Instances: missing}
	s, leader := c.shortages.Load(), c.leader.Load()
	switch {
	case s != nil && s.byTask[id] != nil:
		return s.byTask[id]
	case s != nil:
		waiting.Reason = reasonNoTerm
	case leader != nil:
		waiting.Reason, waiting.Worker = reasonAskLeader, *leader
	default:
		waiting.Reason = reasonNoLeader
	}
	return []api.Waiting{waiting}
}
