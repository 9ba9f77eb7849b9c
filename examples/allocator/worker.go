package main

// The worker: what a task does here, and what is said of it.

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
	opts := make([]etcd.MemberOption, 0, len(n.options))
	for _, o := range n.options {
		opts = append(opts, o)
	}
	return etcd.NewMember(n.client, n.name, w, opts...)
}

// work runs a task. A real one would poll, consume or serve; whatever it writes
// to a store goes with the token, which the store compares with the highest it
// has seen. This one only says that it runs.
func (n *node) work(ctx context.Context, task string) error {
	content, version := worker.Content(ctx)
	token, _ := worker.Token(ctx)
	n.journal.say("started %s: assigned here, token %d, content of revision %d: %s", word(task), token, version, brief(content))
	<-ctx.Done()
	n.journal.say("stopped %s: %s", word(task), why(context.Cause(ctx)))
	return context.Cause(ctx)
}

// why says what has ended a task, to a person.
func why(cause error) string {
	switch {
	case errors.Is(cause, worker.ErrRemoved):
		return "the leader took it away, and says why"
	case errors.Is(cause, worker.ErrClosed):
		return "this process leaves"
	case errors.Is(cause, worker.ErrLeaseLost):
		return "the lease may end, and others may start it: " + cause.Error()
	default:
		return cause.Error()
	}
}

func (n *node) update(ctx context.Context, task string) error {
	content, version := worker.Content(ctx)
	n.journal.say("updated %s: its content is now of revision %d: %s", word(task), version, brief(content))
	return nil
}
