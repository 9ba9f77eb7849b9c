package main

// A candidate: it waits to be elected, and leads until it is deposed. The election,
// the tasks and the members are in etcd. The leader calls its workers directly.

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
		defer func() { _ = comm.Close() }() // Close never fails
		// Workers fence leaders by their epoch. etcd.WithoutAssignments explains why
		// the epoch and HoldUntilRemoved are needed.
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

// follow reports the members to comm and o for as long as the leadership lasts. It
// returns when both know all members as of its call, which is after the election.
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
			for w := range gone { // UpdateWorkers came first, so they are no longer called
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

// tasks reports tasks to an orchestrator once their contents are loaded.
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
