package main

// A candidate: it waits to be elected, and leads until it is deposed. The
// election, the tasks and the members are in etcd; what it has workers do, it
// tells them itself.

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/etcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func stand(ctx context.Context, client *clientv3.Client, name string) error {
	election, err1 := etcd.NewElection(client, name, etcd.WithLeaseDuration(lease))
	registry, err2 := etcd.NewRegistry(client)
	members, err3 := etcd.NewMembership(client)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	return election.Run(ctx, func(ctx context.Context, l *etcd.Leadership) error {
		say(name, "leads")
		c := &contents{registry: registry, items: make(map[string]etcd.Item)}
		comm, err := grpc.NewCommunicator(grpc.WithContents(c))
		if err != nil {
			return err
		}
		defer func() { _ = comm.Close() }() // it never fails
		// The epoch is what workers know their leader by: see etcd.WithoutAssignments
		// for what it, and HoldUntilRemoved, are needed for.
		o, err := orchestrator.New(comm, orchestrator.WithEpoch(l.Epoch()),
			orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved))
		if err != nil {
			return err
		}
		if err := registry.Feed(ctx, l, &tasks{ctx: ctx, contents: c, o: o}); err != nil {
			return err
		}
		if err := follow(ctx, l, members, comm, o); err != nil {
			return err
		}
		return o.Run(ctx, time.Second)
	})
}

type leader = orchestrator.Orchestrator[grpc.Worker, string]

// follow tells comm and o who is a member for as long as the leadership lasts. It
// returns when they have been told of all who were there when it began, which
// is after the election.
func follow(ctx context.Context, l *etcd.Leadership, members *etcd.Membership, comm *grpc.Communicator, o *leader) error {
	told := make(chan struct{})
	tell := sync.OnceFunc(func() { close(told) })
	known := make(map[grpc.Worker]bool)
	l.Go(func(ctx context.Context) error {
		var failed error
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		err := members.Watch(ctx, func(all []etcd.MemberState) {
			var workers []orchestrator.Worker[grpc.Worker]
			gone := known
			known = make(map[grpc.Worker]bool)
			for _, m := range all {
				w := grpc.Worker{Name: m.Name, Incarnation: m.Process}
				if err := comm.Connect(w, m.Attributes[addressKey]); err != nil {
					failed = err
					cancel(err)
					return
				}
				workers = append(workers, orchestrator.Worker[grpc.Worker]{Name: w, Draining: m.Draining})
				known[w] = true
				delete(gone, w)
			}
			if err := o.UpdateWorkers(workers); err != nil {
				failed = err
				cancel(err)
			}
			for w := range gone { // the orchestrator knows: they are not called any more
				comm.Disconnect(w)
			}
			tell()
		})
		if failed != nil {
			return failed
		}
		return err
	})
	select {
	case <-told:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// contents are what the tasks are to work on, in memory.
type contents struct {
	registry *etcd.Registry
	mu       sync.Mutex
	items    map[string]etcd.Item
}

// Content is for the Communicator. Revisions rise, also over deletions.
func (c *contents) Content(task string) ([]byte, int64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	item, ok := c.items[task]
	return item.Content, item.Revision, ok
}

// load reads a task's content, and reports whether there is such a task.
func (c *contents) load(ctx context.Context, task string) (bool, error) {
	for {
		item, err := c.registry.Get(ctx, task)
		switch {
		case err == nil:
			c.mu.Lock()
			c.items[task] = item
			c.mu.Unlock()
			return true, nil
		case errors.Is(err, etcd.ErrNotFound):
			return false, nil // that it is gone is told next
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// tasks tells an orchestrator of tasks once their contents are here.
type tasks struct {
	ctx      context.Context // the leadership's
	contents *contents
	o        *leader
}

func (t *tasks) UpdateTasks(all []orchestrator.Task[string]) error {
	for _, task := range all {
		if _, err := t.contents.load(t.ctx, task.Name); err != nil {
			return err
		}
	}
	return t.o.UpdateTasks(all)
}

func (t *tasks) AddTask(name string, opts ...orchestrator.TaskOption) error {
	if ok, err := t.contents.load(t.ctx, name); err != nil || !ok {
		return err
	}
	return t.o.AddTask(name, opts...)
}

func (t *tasks) RemoveTask(name string) {
	t.o.RemoveTask(name)
	t.contents.mu.Lock()
	defer t.contents.mu.Unlock()
	delete(t.contents.items, name)
}
