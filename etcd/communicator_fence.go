package etcd

// The fence of a term: the write with which a term begins, and which every later
// write of the term compares.

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/f8949c05/orchestrator"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// fences holds the fence of the current term.
type fences struct {
	mu      sync.Mutex
	present *fence // nil before the first term
}

// fence is one attempt to begin a term.
type fence struct {
	term orchestrator.Term
	done chan struct{} // closed when rev or err is known
	rev  int64         // of the write that began the term
	err  error         // why the attempt failed
}

// admit returns an error if the call's term is over. The caller holds mu.
func (f *fences) admit(term orchestrator.Term) error {
	if f.present == nil || term.Compare(f.present.term) >= 0 {
		return nil
	}
	seen := f.present.term
	if term.Epoch < seen.Epoch {
		return fmt.Errorf("%w: epoch %d is lower than %d", orchestrator.ErrDeposed, term.Epoch, seen.Epoch)
	}
	return fmt.Errorf("%w: term %d is lower than %d", orchestrator.ErrStale, term.Number, seen.Number)
}

// enter returns the attempt to begin a term that is under way or has succeeded. If
// mine is true, the attempt is new and the caller must make it.
func (f *fences) enter(term orchestrator.Term) (attempt *fence, mine bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.admit(term); err != nil {
		return nil, false, err
	}
	if f.present != nil && f.present.term == term && !f.present.failed() {
		return f.present, false, nil
	}
	f.present = &fence{term: term, done: make(chan struct{})}
	return f.present, true, nil
}

func (a *fence) failed() bool {
	select {
	case <-a.done:
		return a.err != nil
	default:
		return false
	}
}

// begin returns the revision of the write that began a term. The first call of the
// term makes that write, and the others wait for it. If it fails, the next call
// makes it again. A failed attempt may still land after a later one that succeeded.
// The writes of this term are then refused like those of an earlier term, and the
// next term begins normally.
func (c *Communicator) begin(ctx context.Context, term orchestrator.Term) (int64, error) {
	if err := c.assignmentCache.ended(); err != nil {
		return 0, err // first, because a deposed leader must get ErrDeposed, whatever the term
	}
	for {
		attempt, mine, err := c.fences.enter(term)
		if err != nil {
			return 0, err
		}
		if mine {
			attempt.rev, attempt.err = c.writeTerm(ctx, term)
			close(attempt.done)
			return attempt.rev, attempt.err
		}
		select {
		case <-attempt.done:
		case <-ctx.Done():
			return 0, fmt.Errorf("begin term %d: %w", term.Number, context.Cause(ctx))
		}
		if attempt.err == nil {
			return attempt.rev, nil
		}
	}
}

// writeTerm writes the term's number. Writes of earlier terms that are still in
// flight fail from then on.
func (c *Communicator) writeTerm(ctx context.Context, term orchestrator.Term) (int64, error) {
	number := strconv.FormatUint(term.Number, 10)
	resp, err := c.client.Txn(ctx).
		If(c.guard).
		// The mirror watches the second key, and learns from it that it has reached
		// this revision.
		Then(clientv3.OpPut(c.layout.Term(), number), clientv3.OpPut(c.layout.Begun(), number)).
		Commit()
	if err != nil {
		return 0, fmt.Errorf("begin term %d: %w", term.Number, err)
	}
	if !resp.Succeeded {
		return 0, fmt.Errorf("begin term %d: %w: leader's key is gone", term.Number, orchestrator.ErrDeposed)
	}
	return resp.Header.Revision, nil
}

// guards holds the comparisons of every write in a term, and the reads that reveal
// which of them failed.
type guards struct {
	compare []clientv3.Cmp
	read    []clientv3.Op

	epoch, term, member int64
	worker              Worker
}

// guards returns the guards of a write to w in the term that began at rev.
func (c *Communicator) guards(rev int64, w Worker) guards {
	member := c.layout.Member(w.Name)
	return guards{
		compare: []clientv3.Cmp{
			c.guard,
			clientv3.Compare(clientv3.ModRevision(c.layout.Term()), "=", rev),
			clientv3.Compare(clientv3.CreateRevision(member), "=", w.Incarnation),
		},
		read: []clientv3.Op{
			clientv3.OpGet(c.assignmentCache.leader, clientv3.WithKeysOnly()),
			clientv3.OpGet(c.layout.Term(), clientv3.WithKeysOnly()),
			clientv3.OpGet(member, clientv3.WithKeysOnly()),
		},
		epoch: c.assignmentCache.epoch, term: rev, member: w.Incarnation, worker: w,
	}
}

// size returns the number of operations that the guards count for.
func (g guards) size() int { return len(g.compare) + len(g.read) }

// broken returns the error of the guard that failed, from the reads of the
// transaction. It checks the leader first, because a deposed leader must learn that
// in any case.
func (g guards) broken(resp *clientv3.TxnResponse) error {
	if len(resp.Responses) != len(g.read) {
		return errShape
	}
	kvs := make([]*mvccpb.KeyValue, len(g.read))
	for i := range kvs {
		if r := resp.Responses[i].GetResponseRange(); r != nil && len(r.Kvs) > 0 {
			kvs[i] = r.Kvs[0]
		}
	}
	switch leader, term, member := kvs[0], kvs[1], kvs[2]; {
	case leader == nil || leader.CreateRevision != g.epoch:
		return fmt.Errorf("%w: leader's key is gone", orchestrator.ErrDeposed)
	case term == nil || term.ModRevision != g.term:
		return fmt.Errorf("%w: a later term has begun", orchestrator.ErrStale)
	case member == nil || member.CreateRevision != g.member:
		return gone(g.worker)
	}
	return errShape
}
