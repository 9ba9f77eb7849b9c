package main

import (
	"context"
	"errors"

	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/worker"
)

func (n *node) newMember() (*etcd.Member, error) {
	w, err := worker.New(n.work,
		worker.WithUpdate(n.update),
		worker.WithLease(n.lease, n.lease/4),
		worker.WithLastResort(n.die),
		worker.WithLogger(n.logger),
	)
	if err != nil {
		return nil, err
	}
	opts := []etcd.MemberOption{etcd.WithAttributes(n.attributes()), etcd.WithSettings(n.placement), etcd.WithDrain(0)} // leave drains
	for _, o := range n.options {
		opts = append(opts, o)
	}
	return etcd.NewMember(n.client, n.name, w, opts...)
}

// work is the function of every task. A real one would poll, consume or serve, and
// send the token with each write to a store. The store would compare the token with
// the highest it has seen. This one only logs.
func (n *node) work(ctx context.Context, task string) error {
	content, version := worker.Content(ctx)
	token, _ := worker.Token(ctx)
	n.journal.say("started %s: assigned here, token %d, content revision %d: %s", word(task), token, version, brief(content))
	<-ctx.Done()
	n.journal.say("stopped %s: %s", word(task), why(context.Cause(ctx)))
	return context.Cause(ctx)
}

// why returns the reason for the end of a task as text.
func why(cause error) string {
	switch {
	case errors.Is(cause, worker.ErrRemoved):
		return "removed by the leader, whose log has the reason"
	case errors.Is(cause, worker.ErrClosed):
		return "this process is leaving"
	case errors.Is(cause, worker.ErrLeaseLost):
		return "the lease may expire, and other processes may start the task: " + cause.Error()
	default:
		return cause.Error()
	}
}

func (n *node) update(ctx context.Context, task string) error {
	content, version := worker.Content(ctx)
	n.journal.say("updated %s: content revision %d: %s", word(task), version, brief(content))
	return nil
}
