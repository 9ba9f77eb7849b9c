package main

import (
	"context"
	"fmt"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
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
	var o *orchestrator.Orchestrator[etcd.Worker, string]
	o, err = orchestrator.New(comm,
		orchestrator.WithEpoch(l.Epoch()),
		orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved), // a task is free only when its worker's lease ends
		orchestrator.WithCommunicatorTimeout(n.lease/2),
		orchestrator.WithLogger(n.logger),
		orchestrator.WithStats(collector.Observe),
		orchestrator.WithStats(func(orchestrator.TermStats) {
			plan := o.LastPlan()
			n.tell(plan)
			n.shortages.Store(newShortages(plan))
		}),
	)
	if err != nil {
		return err
	}
	n.shortages.Store(&shortages{})
	defer n.shortages.Store(nil)
	if err := n.registry.Feed(ctx, l, o); err != nil {
		return err
	}
	if err := n.membership.Feed(ctx, l, o); err != nil {
		return err
	}
	return o.Run(ctx, n.interval)
}

// tell logs the changes of a term, with reasons.
func (n *node) tell(p orchestrator.Plan[etcd.Worker, string]) {
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
