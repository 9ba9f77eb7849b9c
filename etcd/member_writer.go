package etcd

// One transaction at a time, each with all entries that have accumulated, and each
// repeated until etcd has answered.

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

// errEvicted reports that the member's key was deleted or replaced, or that its
// lease is gone.
var errEvicted = errors.New("membership is gone")

// writer makes the writes of one membership.
type writer struct {
	client  *clientv3.Client
	id      identity
	log     *slog.Logger
	attempt time.Duration // timeout of the first attempt at a transaction
	// answer is called with each entry that was written, and the outcome of a claim.
	// load returns the number of claimed tasks.
	answer func(entry, claimResult)
	load   func() int

	mu     sync.Mutex
	queue  []entry
	signal chan struct{} // capacity 1

	written  int // the last load written; -1: none
	refusals refusals
}

// add appends an entry to the queue. It does not wait.
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

// run writes entries until ctx ends, and returns its cause, or until the membership
// is gone.
func (w *writer) run(ctx context.Context) error {
	for {
		entries, ops := w.take()
		// Write the load as it will be after these entries, because writing it later
		// would take another transaction. If a claim fails, the next transaction
		// corrects the load.
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
			var g claimResult
			if e.kind == doClaim {
				if g, err = w.id.gained(resp.Header.Revision, resp.Responses[i].GetResponseTxn()); err != nil {
					return err
				}
			}
			w.answer(e, g)
		}
	}
}

// change returns the change of the load if all entries succeed.
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

// take removes from the queue as many entries as fit into one transaction, no two
// for the same task. It returns them with their operations.
func (w *writer) take() (entries []entry, ops []clientv3.Op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	size := 2 // the comparison and the load
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

// forget returns the operations that delete the refusals that are obsolete once the
// entries are written.
func (w *writer) forget(entries []entry) (ops []clientv3.Op) {
	for _, task := range w.refusals.note(entries) {
		ops = append(ops, clientv3.OpDelete(w.id.layout.Refused(w.id.name, task)))
	}
	return ops
}

// commit makes a transaction and repeats it until etcd has answered. After a timeout
// it doubles the next one, so that it succeeds even on a slow connection.
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
		w.log.Warn("write not answered, retrying", "worker", w.id.name, "err", err)
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
		err = ctx.Err() // err may be a gRPC status instead
	}
	return resp, err
}
