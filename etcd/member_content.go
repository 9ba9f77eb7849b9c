package etcd

// Reading and following the content of the tasks that a member has claimed (W7):
// each is read after the claim, and followed by a watch of its own from the
// revision of that read on, so that nothing between the two is lost, and so that
// nobody hears of the tasks of others.

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/worker"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// content is what a task is about, as of some revision.
type content struct {
	value   []byte
	version int64 // 0: there is none
	as      int64 // the revision as of which this is the content
}

// contents reads what the tasks of a worker are about, and hands it what that
// becomes.
type contents struct {
	client  *clientv3.Client
	layout  keys.Layout
	cluster uint64
	log     *slog.Logger
	update  func(ctx context.Context, task string, g worker.Grant) error
	attempt time.Duration // for how long a read is waited for at first
	line    *line

	membership context.Context // that all this is for
	watcher    clientv3.Watcher
	close      func() // ends all watches; may be called again
}

// newContents returns the contents of one membership, which lasts as long as ctx;
// then they are to be closed. A read is first waited for as long as attempt.
func newContents(ctx context.Context, client *clientv3.Client, id identity, log *slog.Logger,
	update func(ctx context.Context, task string, g worker.Grant) error, attempt time.Duration,
) *contents {
	c := &contents{
		client: client, layout: id.layout, cluster: id.cluster, log: log,
		update: update, attempt: attempt, line: newLine(),
		membership: ctx, watcher: clientv3.NewWatcher(client),
	}
	c.close = sync.OnceFunc(func() {
		if err := c.watcher.Close(); err != nil {
			log.Debug("watches of contents not closed as they should", "err", err)
		}
	})
	return c
}

// read returns the content of a task, no older than the call. It tries until ctx
// ends, and each time for longer than the last that had no answer in time:
// however slow the line is, one of them gets it.
func (c *contents) read(ctx context.Context, task string) (content, error) {
	patience := c.attempt
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		got, err := c.try(ctx, task, patience)
		if err == nil {
			return got, nil
		}
		if ctx.Err() != nil {
			return content{}, context.Cause(ctx)
		}
		c.log.Warn("content has no answer, to be read again", "task", task, "err", err)
		if errors.Is(err, context.DeadlineExceeded) {
			patience *= 2
		}
		if !sleep(ctx, pause) {
			return content{}, context.Cause(ctx)
		}
	}
}

// try reads a content once, when it is its turn.
func (c *contents) try(ctx context.Context, task string, patience time.Duration) (content, error) {
	leave, err := c.line.enter(ctx)
	if err != nil {
		return content{}, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	resp, err := c.client.Get(ctx, c.layout.Registry(task))
	switch {
	case err != nil && ctx.Err() != nil:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.line.learn(lineBytes) // it is large, or the line is slow, which comes to the same
		}
		return content{}, ctx.Err() // whatever form it has
	case err != nil:
		return content{}, err
	case resp.Header.ClusterId != c.cluster:
		return content{}, ErrClusterChanged // which ends the membership, too
	}
	got := content{as: resp.Header.Revision}
	for _, kv := range resp.Kvs {
		got.value, got.version = notNil(kv.Value), kv.ModRevision
	}
	c.line.learn(len(got.value))
	return got, nil
}

// notNil returns a content that there is, which may be empty. That is not the same
// as none.
func notNil(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}

// follow hands on every content of a task that is newer than what it was, until
// ctx ends.
func (c *contents) follow(ctx context.Context, task string, was content) {
	from, pause := was.as+1, time.Duration(0)
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
		now, err := c.read(ctx, task)
		if err != nil {
			return
		}
		if now.version != 0 {
			c.hand(ctx, task, now.value, now.version)
		}
		from = now.as + 1
	}
}

// watch hands on what comes from a revision on, until that fails. It returns the
// revision to go on from.
//
// The watches have a stream of their own. On that of the member's other watches,
// which the client resumes one by one after a cut, thousands of these would leave it
// deaf for its assignments. And when the membership ends, the stream is closed as
// a whole: to cancel thousands of watches at once has the client send, and the
// server answer, until neither reads any more.
func (c *contents) watch(ctx context.Context, task string, from int64) (int64, error) {
	watching, cancel := context.WithCancel(clientv3.WithRequireLeader(context.WithoutCancel(ctx)))
	defer cancel()
	responses := c.watcher.Watch(watching, c.layout.Registry(task), clientv3.WithRev(from))
	for {
		select {
		case resp, ok := <-responses:
			if !ok {
				return from, errors.New("the watch ended")
			}
			if err := resp.Err(); err != nil {
				return from, err
			}
			for _, ev := range resp.Events {
				if ev.Type == clientv3.EventTypePut {
					c.hand(ctx, task, ev.Kv.Value, ev.Kv.ModRevision)
				}
				from = ev.Kv.ModRevision + 1
			}
		case <-ctx.Done():
			if c.membership.Err() != nil {
				c.close()
			}
			return from, context.Cause(ctx)
		}
	}
}

// hand gives the worker a content, again and again while it does not know the
// task: it may be about to be told of it.
func (c *contents) hand(ctx context.Context, task string, value []byte, version int64) {
	value = notNil(value)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := c.update(ctx, task, worker.Grant{Content: value, Version: version})
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
