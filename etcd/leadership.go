package etcd

// A leadership: what one has while one leads.

import (
	"context"
	"fmt"
	"sync"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Leadership is one period of leading. It is handed to the function given to
// [Election.Run], and over when that has returned. Its methods may be called
// from many goroutines at once.
type Leadership struct {
	c     *candidacy
	epoch int64

	ctx    context.Context // the leadership's, for Go: it is one period, as ctx is
	cancel context.CancelCauseFunc

	mu   sync.Mutex // guards what follows
	wg   sync.WaitGroup
	over bool
}

func newLeadership(ctx context.Context, c *candidacy, epoch int64) *Leadership {
	l := &Leadership{c: c, epoch: epoch}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	return l
}

// Epoch returns what tells this leadership from those before, which are lower:
// the revision at which its key was created. It is what orchestrator.WithEpoch
// wants.
func (l *Leadership) Epoch() uint64 { return uint64(l.epoch) }

// under refuses what is used under another prefix than that of the election: its
// writes would be guarded by nothing, and it would know of other tasks or workers.
func (l *Leadership) under(prefix string) error {
	if prefix != l.c.prefix {
		return fmt.Errorf("%w: its prefix is %q, the election's is %q", orchestrator.ErrInvalid, prefix, l.c.prefix)
	}
	return nil
}

// Guard returns what every transaction of a leader has to compare: that its key
// is there, and the one that it was elected by. One that does so writes nothing
// once the leadership is over, however late it arrives.
func (l *Leadership) Guard() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(l.c.key), "=", l.epoch)
}

// Go calls f in a goroutine of its own, with a context that ends with the
// leadership, however it ends; f has to return then, and Election.Run waits for
// it. An error of f ends the leadership, with it as the cause; nil does not.
//
// Once the leadership is over, Go calls f itself, with a context that has ended:
// whoever waits for something that f does hears of it from f in any case.
func (l *Leadership) Go(f func(ctx context.Context) error) {
	if !l.begin(f) {
		_ = f(l.ctx) // it has nothing to say any more
	}
}

func (l *Leadership) begin(f func(ctx context.Context) error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	l.wg.Go(func() {
		if err := f(l.ctx); err != nil {
			l.cancel(ended(err)) // only the first cause counts
		}
	})
	return true
}

// run calls lead and returns when all of it has ended, with why it did. ctx ends
// when lead is to return, and with the leadership.
func (l *Leadership) run(ctx context.Context, lead func(ctx context.Context, l *Leadership) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
	l.Go(l.watch)
	err := lead(ctx, l)
	if cause := context.Cause(l.ctx); cause != nil {
		err = cause // lead returned because of it
	}
	l.cancel(errOver)
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.wg.Wait()
	return err
}

// watch ends the leadership when its key is not what it was.
func (l *Leadership) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m := mirror.New(l.c.client, mirror.Options{From: l.c.key, End: l.c.key + "\x00", Logger: l.c.log})
	there := false
	err := m.Run(ctx, func(at mirror.At, changes []mirror.Change) {
		for _, ch := range changes {
			there = ch.New != nil && ch.New.Create == l.epoch
		}
		switch {
		case at.Cluster != l.c.held.cluster:
			cancel(fmt.Errorf("%w: it was %x and is %x", ErrClusterChanged, l.c.held.cluster, at.Cluster))
		case !there:
			cancel(fmt.Errorf("%w: the leader's key is gone", orchestrator.ErrDeposed))
		}
	})
	return err
}
