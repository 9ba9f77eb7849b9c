package etcd

// The Communicator: how a leader reaches the workers through etcd. What it is
// made of, and List; the writes are in communicator_write.go.

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Communicator reaches the workers by writing to etcd what they are to run, and
// by watching what they make of it. It belongs to one leadership, which has one
// of them, for one Orchestrator: with the leadership it ends, and every call then
// fails with [orchestrator.ErrDeposed]. It is an [orchestrator.Applier] too, and
// the contract is that of [orchestrator.Communicator], all of it.
//
// The first call of a term writes the term's number, which every write of the
// term compares together with the leader's key: so nothing that was delayed past
// its term lands. List answers from a copy that is at least as new as that
// write.
//
// Give the Orchestrator the leadership's epoch with [orchestrator.WithEpoch],
// [orchestrator.HoldUntilRemoved] as its grace period, since only the end of a
// worker's lease tells that its tasks have stopped, and let [Membership.Feed]
// add and remove the workers.
type Communicator struct {
	client *clientv3.Client
	layout keys.Layout
	log    *slog.Logger
	guard  clientv3.Cmp // that the leader leads
	copied *mirror.Mirror
	board  *board
	fences fences
	// patience is for how long a worker may leave an assignment unclaimed: the
	// longest time that any call was given, in nanoseconds.
	patience atomic.Int64
}

var (
	_ orchestrator.Communicator[Worker, string] = (*Communicator)(nil)
	_ orchestrator.Applier[Worker, string]      = (*Communicator)(nil)
)

// NewCommunicator returns the Communicator of a leadership, once it has read
// what there is. Its options are WithPrefix, which has to be that of the
// election, and WithLogger.
//
// It fails where an option is out of range, where ctx ends or where the
// leadership does.
func NewCommunicator(ctx context.Context, client *clientv3.Client, l *Leadership, opts ...Option) (*Communicator, error) {
	s, err := newSettings(opts)
	if err != nil {
		return nil, fmt.Errorf("new communicator: %w", err)
	}
	if err := l.under(s.prefix); err != nil {
		return nil, fmt.Errorf("new communicator: %w", err)
	}
	guard := l.Guard()
	c := &Communicator{
		client: client,
		layout: s.layout,
		log:    s.logger,
		guard:  guard,
		board:  newBoard(s.layout, string(guard.KeyBytes()), int64(l.Epoch())),
	}
	// From active/ to refused/: all that is needed, but for the term's number, and no
	// contents.
	c.copied = mirror.New(client, mirror.Options{
		From: s.layout.ActivePrefix(), End: s.layout.RegistryPrefix(), Keep: c.board.kept, Logger: s.logger,
	})
	l.Go(func(ctx context.Context) error {
		err := c.copied.Run(ctx, c.board.apply)
		c.board.end(fmt.Errorf("%w: the leadership has ended: %w", orchestrator.ErrDeposed, err))
		return err
	})
	if err := c.copied.Reached(ctx, 1); err != nil {
		return nil, fmt.Errorf("new communicator: %w", err)
	}
	if err := c.board.ended(); err != nil {
		return nil, fmt.Errorf("new communicator: %w", err)
	}
	return c, nil
}

// List returns what worker was told to run and has not certainly stopped:
// everything that is assigned to it or that it has claimed. What it has left
// unclaimed for longer than a call may take is withdrawn first.
//
// In a term it answers from the copy, and with the very same slice while
// nothing has changed; without one it reads from etcd. A worker that is not a
// member, or not any more, is an error.
func (c *Communicator) List(ctx context.Context, worker Worker) ([]string, error) {
	term, ok := orchestrator.TermFromContext(ctx)
	if !ok {
		return c.read(ctx, worker)
	}
	c.learnPatience(ctx)
	rev, err := c.begin(ctx, term)
	if err != nil {
		return nil, err
	}
	if err := c.reached(ctx, rev); err != nil {
		return nil, fmt.Errorf("list %s: %w", worker.Name, err)
	}
	if late := c.board.unclaimed(worker.Name, time.Now().Add(-c.wait())); len(late) > 0 {
		c.tidy(ctx, rev, worker, late)
	}
	return c.board.list(worker)
}

// read is List without a term: it fences nobody, and sees what there is.
func (c *Communicator) read(ctx context.Context, worker Worker) ([]string, error) {
	resp, err := c.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(c.layout.Member(worker.Name)), "=", worker.Incarnation)).
		Then(
			clientv3.OpGet(c.layout.AssignedOf(worker.Name), clientv3.WithPrefix(), clientv3.WithKeysOnly()),
			clientv3.OpGet(c.layout.ActiveOf(worker.Name), clientv3.WithPrefix(), clientv3.WithKeysOnly()),
		).Commit()
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", worker.Name, err)
	}
	if !resp.Succeeded {
		return nil, gone(worker)
	}
	var tasks []string
	for _, r := range resp.Responses {
		for _, kv := range r.GetResponseRange().GetKvs() {
			if _, _, task, ok := c.layout.Parse(string(kv.Key)); ok {
				tasks = append(tasks, task)
			}
		}
	}
	slices.Sort(tasks)
	return slices.Compact(tasks), nil
}

// defaultPatience is how long a worker may leave an assignment unclaimed where
// no call had a deadline.
const defaultPatience = 10 * time.Second

// reached waits until the board shows what etcd held at a revision.
func (c *Communicator) reached(ctx context.Context, rev int64) error {
	err := c.copied.Reached(ctx, rev)
	if over := c.board.ended(); over != nil {
		return over
	}
	return err
}

// learnPatience takes a communicator timeout from a call's deadline.
func (c *Communicator) learnPatience(ctx context.Context) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return
	}
	left := int64(time.Until(deadline))
	for known := c.patience.Load(); left > known; known = c.patience.Load() {
		if c.patience.CompareAndSwap(known, left) {
			return
		}
	}
}

// wait returns for how long a worker may leave an assignment unclaimed.
func (c *Communicator) wait() time.Duration {
	if known := c.patience.Load(); known > 0 {
		return time.Duration(known)
	}
	return defaultPatience
}

// gone is what is answered for a worker that is no member, or is another
// process than the one that was meant. Nothing can be done to it any more, and
// what it ran has stopped: its lease is over.
func gone(w Worker) error {
	return fmt.Errorf("%w: worker %s of incarnation %d is no member", orchestrator.ErrRejected, w.Name, w.Incarnation)
}
