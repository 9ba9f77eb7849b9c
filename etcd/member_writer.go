package etcd

// The writer of a member: one transaction after the other, each with whatever
// has accumulated, and each repeated until etcd has answered.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// errEvicted says that the member's key is not what it was, or its lease is
// gone.
var errEvicted = errors.New("the membership is gone")

// writer makes the writes of one membership.
type writer struct {
	client  *clientv3.Client
	id      identity
	log     *slog.Logger
	attempt time.Duration // how long the first attempt at a transaction may take
	// answer is called with each entry that was made, and for a claim with what
	// came of it. load returns how many tasks are claimed.
	answer func(entry, gain)
	load   func() int

	mu     sync.Mutex
	queue  []entry
	signal chan struct{} // capacity 1

	written  int // the load that was written last; -1: none
	refusals refusals
}

// add puts an entry into the queue. It does not wait.
func (w *writer) add(e entry) {
	w.mu.Lock()
	w.queue = append(w.queue, e)
	w.mu.Unlock()
	w.wake()
}

func (w *writer) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// run makes the writes until ctx ends, whose cause it returns, or the
// membership is gone.
func (w *writer) run(ctx context.Context) error {
	for {
		entries, ops := w.take()
		// What it will be once these are made: written behind them, the load would
		// be a transaction of its own. A claim that comes to nothing has it put
		// right by the next.
		load := w.load() + change(entries)
		if load != w.written {
			ops = append(ops, clientv3.OpPut(w.id.layout.Load(w.id.name), fmt.Sprintf("%06d", load), clientv3.WithLease(w.id.lease)))
		}
		ops = append(ops, w.forget(entries)...)
		if len(ops) == 0 {
			select {
			case <-w.signal:
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		resp, err := w.commit(ctx, ops)
		if err != nil {
			return err
		}
		w.written = load
		for i, e := range entries {
			var g gain
			if e.kind == doClaim {
				if g, err = w.id.gained(resp.Header.Revision, resp.Responses[i].GetResponseTxn()); err != nil {
					return err
				}
			}
			w.answer(e, g)
		}
	}
}

// change returns by how much entries change the load, if all are made.
func change(entries []entry) (n int) {
	for _, e := range entries {
		switch e.kind {
		case doClaim:
			n++
		case doLeave:
			n--
		}
	}
	return n
}

// take takes as many entries out of the queue as one transaction holds, no two
// of the same task, with their operations.
func (w *writer) take() (entries []entry, ops []clientv3.Op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	size := 2 // the comparison, and the load
	tasks := make(map[string]bool)
	var rest []entry
	for i, e := range w.queue {
		if tasks[e.task] {
			rest = append(rest, e)
			continue
		}
		op := w.id.operation(e)
		if size += count(op) + w.refusals.cost(e); size > maxOps {
			rest = append(rest, w.queue[i:]...)
			break
		}
		tasks[e.task] = true
		entries, ops = append(entries, e), append(ops, op)
	}
	w.queue = rest
	return entries, ops
}

// forget returns what deletes the refusals that are not to be kept any more,
// once the entries are made.
func (w *writer) forget(entries []entry) (ops []clientv3.Op) {
	for _, task := range w.refusals.note(entries) {
		ops = append(ops, clientv3.OpDelete(w.id.layout.Refused(w.id.name, task)))
	}
	return ops
}

// commit makes a transaction, and repeats it until it was answered. Where none
// came in time it waits longer the next time, so that a line on which even this
// takes long does not keep it from ever being answered.
func (w *writer) commit(ctx context.Context, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	patience := w.attempt
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, w.attempt) {
		resp, err := w.try(ctx, ops, patience)
		switch {
		case err == nil && resp.Header.ClusterId != w.id.cluster:
			return nil, fmt.Errorf("%w: %w", errEvicted, ErrClusterChanged)
		case err == nil && !resp.Succeeded, errors.Is(err, rpctypes.ErrLeaseNotFound):
			return nil, errEvicted
		case err == nil && len(resp.Responses) != len(ops):
			return nil, errShape
		case err == nil:
			return resp, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			patience *= 2
		}
		w.log.Warn("write has no answer, to be made again", "worker", w.id.name, "err", err)
		if !sleep(ctx, pause) {
			return nil, context.Cause(ctx)
		}
	}
}

func (w *writer) try(ctx context.Context, ops []clientv3.Op, patience time.Duration) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	resp, err := w.client.Txn(ctx).If(w.id.there()).Then(ops...).Commit()
	if err != nil && ctx.Err() != nil {
		err = ctx.Err() // whatever form it has
	}
	return resp, err
}
