package etcd

// Following the content of the tasks that a member has claimed (W7): each by a
// watch of its own, from the revision of the claim on, so that nothing between
// the two is lost, and so that nobody hears of the tasks of others.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// contents hands a worker what the contents of its tasks become.
type contents struct {
	client *clientv3.Client
	layout keys.Layout
	log    *slog.Logger
	update func(ctx context.Context, task string, content []byte, version int64) error
}

// follow hands on every content of a task that is newer than that of g, until
// ctx ends.
func (c contents) follow(ctx context.Context, task string, g gain) {
	from, pause := g.as+1, time.Duration(0)
	for {
		next, err := c.watch(ctx, task, from)
		if next > from {
			pause = 0
		}
		pause = min(max(2*pause, 20*time.Millisecond), 2*time.Second)
		if !sleep(ctx, pause) {
			return
		}
		c.log.Debug("content read again", "task", task, "err", err)
		from = next
		if next, err := c.read(ctx, task); err == nil {
			from = next
		}
	}
}

// watch hands on what comes from a revision on, until that fails. It returns the
// revision to go on from.
func (c contents) watch(ctx context.Context, task string, from int64) (int64, error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for resp := range c.client.Watch(ctx, c.layout.Registry(task), clientv3.WithRev(from)) {
		if err := resp.Err(); err != nil {
			return from, err
		}
		for _, ev := range resp.Events {
			if ev.Type == clientv3.EventTypePut {
				c.hand(ctx, task, ev.Kv.Value, ev.Kv.ModRevision)
			}
			from = ev.Kv.ModRevision + 1
		}
	}
	return from, errors.New("the watch ended")
}

// read hands on what there is, and returns the revision to go on from.
func (c contents) read(ctx context.Context, task string) (int64, error) {
	resp, err := c.client.Get(ctx, c.layout.Registry(task))
	if err != nil {
		return 0, fmt.Errorf("read content of task %s: %w", task, err)
	}
	for _, kv := range resp.Kvs {
		c.hand(ctx, task, kv.Value, kv.ModRevision)
	}
	return resp.Header.Revision + 1, nil
}

// hand gives the worker a content, again and again while it does not know the
// task: it may be about to be told of it.
func (c contents) hand(ctx context.Context, task string, content []byte, version int64) {
	if content == nil {
		content = []byte{} // empty, which is not the same as none
	}
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := c.update(ctx, task, content, version)
		if err == nil {
			c.log.Info("content updated", "task", task, "version", version)
			return
		}
		c.log.Debug("content not taken yet", "task", task, "version", version, "err", err)
		if !sleep(ctx, pause) {
			return
		}
	}
}

// sleep waits, and reports whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
