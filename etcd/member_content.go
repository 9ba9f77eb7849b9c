package etcd

// Reading and following the contents of the tasks that a member has claimed (W7).
// Each content is read after the claim, then followed by a separate watch from the
// revision of that read, so that no change is missed. A member receives no contents
// of other tasks.

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/semaphore"

	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/internal/backoff"
	"github.com/f8949c05/orchestrator/worker"
)

// content is the content of a task as of some revision.
type content struct {
	value   []byte
	version int64 // 0: no content
	as      int64 // the revision as of which it was read
}

// contents reads the contents of a worker's tasks, and passes their changes to the
// worker.
type contents struct {
	client  *clientv3.Client
	layout  keys.Layout
	cluster uint64
	log     *slog.Logger
	update  func(ctx context.Context, task string, g worker.Grant) error
	attempt time.Duration // timeout of the first attempt at a read
	limiter *readLimiter

	membership context.Context // ends with the membership
	watcher    clientv3.Watcher
	close      func() // closes all watches; may be called repeatedly
}

// newContents returns the contents of a membership, which ends with ctx. The caller
// closes them then. attempt is the timeout of the first attempt at a read.
func newContents(ctx context.Context, client *clientv3.Client, id identity, log *slog.Logger,
	update func(ctx context.Context, task string, g worker.Grant) error, attempt time.Duration,
) *contents {
	c := &contents{
		client: client, layout: id.layout, cluster: id.cluster, log: log,
		update: update, attempt: attempt, limiter: newReadLimiter(),
		membership: ctx, watcher: clientv3.NewWatcher(client),
	}
	c.close = sync.OnceFunc(func() {
		if err := c.watcher.Close(); err != nil {
			log.Debug("closing the content watches failed", "err", err)
		}
	})
	return c
}

// read returns the content of a task, no older than the call. It retries until ctx
// ends, and doubles the timeout after each attempt that exceeds it. So it succeeds
// even on a slow connection.
func (c *contents) read(ctx context.Context, task string) (content, error) {
	timeout := c.attempt
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		got, err := c.try(ctx, task, timeout)
		if err == nil {
			return got, nil
		}
		if ctx.Err() != nil {
			return content{}, context.Cause(ctx)
		}
		c.log.Warn("content not read, retrying", "task", task, "err", err)
		if errors.Is(err, context.DeadlineExceeded) {
			timeout *= 2
		}
		if !backoff.Sleep(ctx, pause) {
			return content{}, context.Cause(ctx)
		}
	}
}

// try reads a content once, after waiting for its turn.
func (c *contents) try(ctx context.Context, task string, timeout time.Duration) (content, error) {
	leave, err := c.limiter.enter(ctx)
	if err != nil {
		return content{}, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := c.client.Get(ctx, c.layout.Registry(task))
	switch {
	case err != nil && ctx.Err() != nil:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.limiter.learn(readBytes) // the content is large or the connection slow
		}
		return content{}, ctx.Err() // err may be a gRPC status instead
	case err != nil:
		return content{}, err
	case resp.Header.ClusterId != c.cluster:
		return content{}, ErrClusterChanged // it ends the membership, too
	}
	got := content{as: resp.Header.Revision}
	for _, kv := range resp.Kvs {
		got.value, got.version = notNil(kv.Value), kv.ModRevision
	}
	c.limiter.learn(len(got.value))
	return got, nil
}

// notNil returns the value as a non-nil slice, because nil means that there is no
// content, and an empty content is not the same.
func notNil(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}

// follow passes every content newer than was to the worker, until ctx ends.
func (c *contents) follow(ctx context.Context, task string, was content) {
	from, pause := was.as+1, time.Duration(0)
	for {
		next, err := c.watch(ctx, task, from)
		if next > from {
			pause = 0
		}
		pause = min(max(2*pause, 20*time.Millisecond), 2*time.Second)
		if !backoff.Sleep(ctx, pause) {
			return
		}
		c.log.Debug("content watch ended, reading again", "task", task, "err", err)
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

// watch passes on changes from a revision until it fails. It returns the revision
// from which to continue.
//
// The content watches share a separate stream. The client resumes the watches of a
// stream one by one after a disconnect. Thousands of them on the member's other
// stream would delay its assignments. When the membership ends, the whole stream is
// closed, because cancelling thousands of watches at the same time makes client and
// server send until neither reads.
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

// hand passes a content to the worker. It retries while the worker does not know the
// task, because the task may be about to be added.
func (c *contents) hand(ctx context.Context, task string, value []byte, version int64) {
	value = notNil(value)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := c.update(ctx, task, worker.Grant{Content: value, Version: version})
		if err == nil {
			c.log.Info("content updated", "task", task, "version", version)
			return
		}
		c.log.Debug("content not updated yet", "task", task, "version", version, "err", err)
		if !backoff.Sleep(ctx, pause) {
			return
		}
	}
}

// readLimiter limits the volume of contents that a member reads at a time. Keepalives
// and writes share the connection, so unlimited reads could delay them past the
// lease. The size of a content is unknown before it arrives, so a readLimiter assumes
// the largest recent size.
type readLimiter struct {
	// turn is held while waiting for room. So the next read takes the number of parts
	// that is known when it is first in line, not when it began to wait.
	turn  *semaphore.Weighted
	room  *semaphore.Weighted // readParts
	parts atomic.Int64        // number of parts of the next read
}

const (
	// readBytes is the total size of all parts.
	readBytes = 2 << 20
	// readParts is the number of parts, and so the maximum number of reads.
	readParts = 64
	// maxParts is the maximum number of parts of a read, and the number if no size is
	// known. Two such reads fit.
	maxParts = readParts / 2
)

func newReadLimiter() *readLimiter {
	l := &readLimiter{turn: semaphore.NewWeighted(1), room: semaphore.NewWeighted(readParts)}
	l.parts.Store(maxParts)
	return l
}

// enter waits until another content may be read, in the order of the calls. The
// caller calls leave once, after the read. enter returns the cause of ctx if ctx ends
// first.
func (l *readLimiter) enter(ctx context.Context) (leave func(), err error) {
	if l.turn.Acquire(ctx, 1) != nil {
		return nil, context.Cause(ctx)
	}
	defer l.turn.Release(1)
	parts := l.parts.Load()
	if l.room.Acquire(ctx, parts) != nil {
		return nil, context.Cause(ctx)
	}
	return func() { l.room.Release(parts) }, nil
}

// learn records the size of a content. A larger size counts immediately; a smaller
// one reduces the number of parts by one.
func (l *readLimiter) learn(size int) {
	parts := int64(min(1+size*readParts/readBytes, maxParts))
	for {
		known := l.parts.Load()
		if l.parts.CompareAndSwap(known, max(parts, known-1)) {
			return
		}
	}
}
