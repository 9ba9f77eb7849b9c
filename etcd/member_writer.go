package etcd

// The writes of a member. Each is one operation for one task, in a transaction that
// compares the member's own key, and has no effect if its own comparisons fail. The
// writer makes one transaction at a time, with all operations that have accumulated.
// A transaction without an answer may have been applied. It is repeated until etcd
// has answered, and the repeated one detects whether the first was applied.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/internal/backoff"
)

// claimOp is one write of a member for one task.
type claimOp struct {
	kind   action // doClaim, doRefuse, doConfirm or doRelease
	task   string
	basis  int64
	claim  int64
	reason error // why the assignment is refused; nil: no refusal is written
}

// identity holds what a member needs to write its keys.
type identity struct {
	layout      keys.Layout
	name        string
	incarnation string // the worker's
	lease       clientv3.LeaseID
	member      int64 // create revision of the member's key
	cluster     uint64
}

// stillMember compares that this membership still exists.
func (id identity) stillMember() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(id.layout.Member(id.name)), "=", id.member)
}

// operation returns the operation that writes a claimOp.
func (id identity) operation(c claimOp) clientv3.Op {
	assigned, active := id.layout.Assigned(id.name, c.task), id.layout.Active(id.name, c.task)
	asAssigned := clientv3.Compare(clientv3.ModRevision(assigned), "=", c.basis)
	asClaimed := clientv3.Compare(clientv3.CreateRevision(active), "=", c.claim) // 0: not claimed
	value := claim{Incarnation: id.incarnation, Starting: c.kind == doClaim}
	put := clientv3.OpPut(active, encode(value), clientv3.WithLease(id.lease))
	decline := func() clientv3.Op {
		ops := []clientv3.Op{clientv3.OpDelete(assigned)}
		if c.reason != nil {
			ops = append(ops, clientv3.OpPut(id.layout.Refused(id.name, c.task),
				encode(newRefusal(c.reason, c.basis)), clientv3.WithLease(id.lease)))
		}
		return clientv3.OpTxn([]clientv3.Cmp{asAssigned}, ops, nil)
	}
	switch c.kind {
	case doClaim:
		// Do not read the content here. With many claims in one transaction, the
		// contents could delay the answer past its timeout. A claim without an
		// answer blocks all other writes of the member.
		return clientv3.OpTxn([]clientv3.Cmp{asAssigned, asClaimed}, []clientv3.Op{put}, []clientv3.Op{clientv3.OpGet(active)})
	case doConfirm:
		return clientv3.OpTxn([]clientv3.Cmp{asClaimed}, []clientv3.Op{put}, nil)
	case doRefuse:
		return decline()
	}
	release := clientv3.OpTxn([]clientv3.Cmp{asClaimed}, []clientv3.Op{clientv3.OpDelete(active)}, nil)
	if c.reason == nil {
		return release
	}
	return clientv3.OpTxn(nil, []clientv3.Op{release, decline()}, nil)
}

// claimResult is the outcome of a claim. If neither field is set, the assignment has
// changed.
type claimResult struct {
	claim   int64 // the revision of the claim
	blocked error // another worker of this name has a claim
}

// claimOutcome returns the outcome of a claim. A claim of this membership that it
// finds was made by an earlier attempt whose answer was lost.
func (id identity) claimOutcome(rev int64, resp *etcdserverpb.TxnResponse) (claimResult, error) {
	if len(resp.GetResponses()) != 1 {
		return claimResult{}, errShape
	}
	if resp.Succeeded {
		return claimResult{claim: rev}, nil
	}
	switch kv := first(resp.Responses[0]); {
	case kv == nil:
		return claimResult{}, nil
	case decode[claim](kv.Value).Incarnation == id.incarnation:
		return claimResult{claim: kv.CreateRevision}, nil
	}
	return claimResult{blocked: errors.New("claimed by another worker of this name")}, nil
}

// errEvicted reports that the member's key was deleted or replaced, or that its
// lease is gone.
var errEvicted = errors.New("membership is gone")

// writer makes the writes of one membership.
type writer struct {
	client  *clientv3.Client
	id      identity
	log     *slog.Logger
	attempt time.Duration // timeout of the first attempt at a transaction
	// answer is called with each claimOp that was written, and the outcome of a
	// claim. load returns the number of claimed tasks.
	answer func(claimOp, claimResult)
	load   func() int

	mu     sync.Mutex
	queue  []claimOp
	signal chan struct{} // capacity 1

	written  int // the last load written; -1: none
	refusals refusals
}

// add appends a claimOp to the queue. It does not wait.
func (w *writer) add(c claimOp) {
	w.mu.Lock()
	w.queue = append(w.queue, c)
	w.mu.Unlock()
	w.wake()
}

func (w *writer) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// run makes the queued writes until ctx ends, and returns its cause, or until the
// membership is gone.
func (w *writer) run(ctx context.Context) error {
	for {
		writes, ops := w.take()
		// Write the load as it will be after these writes, because writing it later
		// would take another transaction. If a claim fails, the next transaction
		// corrects the load.
		load := w.load() + loadChange(writes)
		if load != w.written {
			ops = append(ops, clientv3.OpPut(w.id.layout.Load(w.id.name), fmt.Sprintf("%06d", load), clientv3.WithLease(w.id.lease)))
		}
		ops = append(ops, w.forget(writes)...)
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
		for i, c := range writes {
			var result claimResult
			if c.kind == doClaim {
				if result, err = w.id.claimOutcome(resp.Header.Revision, resp.Responses[i].GetResponseTxn()); err != nil {
					return err
				}
			}
			w.answer(c, result)
		}
	}
}

// loadChange returns the change of the load if all writes succeed.
func loadChange(writes []claimOp) (n int) {
	for _, c := range writes {
		switch c.kind {
		case doClaim:
			n++
		case doRelease:
			n--
		}
	}
	return n
}

// take removes from the queue as many writes as fit into one transaction, no two
// for the same task. It returns them with their operations.
func (w *writer) take() (writes []claimOp, ops []clientv3.Op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	size := 2 // the comparison and the load
	tasks := make(map[string]bool)
	var rest []claimOp
	for i, c := range w.queue {
		if tasks[c.task] {
			rest = append(rest, c)
			continue
		}
		op := w.id.operation(c)
		if size += count(op) + w.refusals.cost(c); size > maxOps {
			rest = append(rest, w.queue[i:]...)
			break
		}
		tasks[c.task] = true
		writes, ops = append(writes, c), append(ops, op)
	}
	w.queue = rest
	return writes, ops
}

// forget returns the operations that delete the refusals that are obsolete once the
// writes are written.
func (w *writer) forget(writes []claimOp) (ops []clientv3.Op) {
	for _, task := range w.refusals.note(writes) {
		ops = append(ops, clientv3.OpDelete(w.id.layout.Refused(w.id.name, task)))
	}
	return ops
}

// commit makes a transaction and repeats it until etcd has answered. After a timeout
// it doubles the next one, so that it succeeds even on a slow connection.
func (w *writer) commit(ctx context.Context, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	timeout := w.attempt
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, w.attempt) {
		resp, err := w.try(ctx, ops, timeout)
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
			timeout *= 2
		}
		w.log.Warn("write not answered, retrying", "worker", w.id.name, "err", err)
		if !backoff.Sleep(ctx, pause) {
			return nil, context.Cause(ctx)
		}
	}
}

func (w *writer) try(ctx context.Context, ops []clientv3.Op, timeout time.Duration) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := w.client.Txn(ctx).If(w.id.stillMember()).Then(ops...).Commit()
	if err != nil && ctx.Err() != nil {
		err = ctx.Err() // err may be a gRPC status instead
	}
	return resp, err
}

// keptRefusals is the maximum number of refusals that a member keeps at etcd. Each
// is for the leader's call that waits for it, and for human readers. If a leader
// misses one, its call reports the task as unclaimed, which is also a refusal.
const keptRefusals = 128

// refusals holds the tasks that a membership has refused and not claimed since, the
// oldest first. The zero value is empty. A membership begins with it, because the
// refusals of earlier ones ended with their leases.
type refusals struct{ tasks []string }

// refuses reports whether a claimOp writes a refusal.
func (c claimOp) refuses() bool {
	return c.reason != nil && (c.kind == doRefuse || c.kind == doRelease)
}

// cost returns the number of deletions that a claimOp may need.
func (r *refusals) cost(c claimOp) int {
	if c.refuses() || c.kind == doClaim && slices.Contains(r.tasks, c.task) {
		return 1
	}
	return 0
}

// note records writes, no two of which concern the same task. It returns the tasks
// whose refusals must be deleted with them: those that are claimed, and the oldest
// beyond keptRefusals. The result contains no task that one of the writes refuses.
func (r *refusals) note(writes []claimOp) (gone []string) {
	for _, c := range writes {
		if !c.refuses() && c.kind != doClaim {
			continue
		}
		i := slices.Index(r.tasks, c.task)
		if i >= 0 {
			r.tasks = slices.Delete(r.tasks, i, i+1)
		}
		switch {
		case c.refuses():
			r.tasks = append(r.tasks, c.task)
		case i >= 0:
			gone = append(gone, c.task)
		}
	}
	excess := max(len(r.tasks)-keptRefusals, 0)
	gone = append(gone, r.tasks[:excess]...)
	r.tasks = slices.Delete(r.tasks, 0, excess)
	return gone
}
