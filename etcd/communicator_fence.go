package etcd

// The fence of a term: the write that every term begins with, and by which
// every other write of it is compared.

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/f8949c05/orchestrator"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// fences keeps the fence of the present term.
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

// admit says whether a call of that term still has a say. The lock is held.
func (f *fences) admit(term orchestrator.Term) error {
	if f.present == nil || term.Compare(f.present.term) >= 0 {
		return nil
	}
	seen := f.present.term
	if term.Epoch < seen.Epoch {
		return fmt.Errorf("%w: the call is of epoch %d, one of %d came before", orchestrator.ErrDeposed, term.Epoch, seen.Epoch)
	}
	return fmt.Errorf("%w: the call is of term %d, one of %d came before", orchestrator.ErrStale, term.Number, seen.Number)
}

// enter returns the attempt to begin a term that is under way or has succeeded,
// and whether the caller has to make it.
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

// begin returns the revision of the write that began a term. The first call of
// the term makes that write, the others wait for it; where it fails, the next
// makes it again. An attempt that failed may land all the same, after one that
// succeeded: then the writes of this term are refused, like those of any that
// is over, and the next term begins anew.
func (c *Communicator) begin(ctx context.Context, term orchestrator.Term) (int64, error) {
	if err := c.board.ended(); err != nil {
		return 0, err // whatever the number: who was deposed has to hear of that
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

// writeTerm writes the term's number, which makes whatever of an earlier term
// is still on its way come too late.
func (c *Communicator) writeTerm(ctx context.Context, term orchestrator.Term) (int64, error) {
	number := strconv.FormatUint(term.Number, 10)
	resp, err := c.client.Txn(ctx).
		If(c.guard).
		// The second is in the range of the copy, which knows by it how far it is.
		Then(clientv3.OpPut(c.layout.Term(), number), clientv3.OpPut(c.layout.Begun(), number)).
		Commit()
	if err != nil {
		return 0, fmt.Errorf("begin term %d: %w", term.Number, err)
	}
	if !resp.Succeeded {
		return 0, fmt.Errorf("begin term %d: %w: the leader's key is gone", term.Number, orchestrator.ErrDeposed)
	}
	return resp.Header.Revision, nil
}

// guards are what every write of a term compares, and what tells which of them
// did not hold.
type guards struct {
	compare []clientv3.Cmp
	read    []clientv3.Op

	epoch, term, member int64
	worker              Worker
}

// guards returns those of a write to a worker in the term that began at rev.
func (c *Communicator) guards(rev int64, w Worker) guards {
	member := c.layout.Member(w.Name)
	return guards{
		compare: []clientv3.Cmp{
			c.guard,
			clientv3.Compare(clientv3.ModRevision(c.layout.Term()), "=", rev),
			clientv3.Compare(clientv3.CreateRevision(member), "=", w.Incarnation),
		},
		read: []clientv3.Op{
			clientv3.OpGet(c.board.leader, clientv3.WithKeysOnly()),
			clientv3.OpGet(c.layout.Term(), clientv3.WithKeysOnly()),
			clientv3.OpGet(member, clientv3.WithKeysOnly()),
		},
		epoch: c.board.epoch, term: rev, member: w.Incarnation, worker: w,
	}
}

// size returns how many operations the guards of a transaction count for.
func (g guards) size() int { return len(g.compare) + len(g.read) }

// broken says which guard did not hold, by what the transaction read instead of
// writing: the worst first, since a leader that was deposed is told so whatever
// else there is.
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
		return fmt.Errorf("%w: the leader's key is gone", orchestrator.ErrDeposed)
	case term == nil || term.ModRevision != g.term:
		return fmt.Errorf("%w: a later one has begun", orchestrator.ErrStale)
	case member == nil || member.CreateRevision != g.member:
		return gone(g.worker)
	}
	return errShape
}
