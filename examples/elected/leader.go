package main

// A candidate: it waits to be elected, and leads until it is deposed. The election,
// the tasks and the members are in etcd. The leader calls its workers directly.

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/etcd"
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
		defer func() { _ = comm.Close() }() // Close never fails
		connect := func(m etcd.MemberState) (grpc.WorkerID, error) {
			w := grpc.WorkerID{Name: m.Name, Incarnation: m.Process}
			return w, comm.Connect(w, m.Attributes[addressKey])
		}
		return etcd.LeadWith(ctx, l, comm, time.Second, func(o *leader) error {
			return errors.Join(
				registry.Feed(ctx, l, &tasks{ctx: ctx, contents: c, o: o}),
				etcd.FeedWorkers(ctx, members, l, o, connect, comm.Disconnect))
		})
	})
}

type leader = orchestrator.Orchestrator[grpc.WorkerID, string]

// contents holds the contents of the tasks in memory.
type contents struct {
	registry *etcd.Registry
	mu       sync.Mutex
	items    map[string]etcd.Item
}

// Content implements the Communicator's source of contents. Revisions rise, even
// across deletions.
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
			return false, nil // RemoveTask follows
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// tasks loads each task's content before passing the task to the orchestrator.
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
