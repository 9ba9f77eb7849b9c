package etcd

// The Communicator, its List calls, and the fence of a term: the write with which a
// term begins, and which every later write of the term compares.

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
)

// Communicator carries the leader's calls to the workers through etcd. It writes the
// assignments, and watches the claims and refusals of the workers. It implements the
// whole contract of [orchestrator.Communicator], and [orchestrator.Applier]. A
// Communicator belongs to one leadership and serves one Orchestrator. After the end
// of the leadership, every call fails with [orchestrator.ErrDeposed].
//
// The first call of a term writes the term's number. Every later write of the term
// compares that write and the leader's key, so no write that is delayed past its
// term lands. List answers from a copy that is at least as new as that write.
//
// Give it to [LeadWith], which makes the Orchestrator, and let [Membership.Feed] add
// and remove the workers. [Election.Lead] does all of this.
type Communicator struct {
	client *clientv3.Client
	layout keys.Layout
	log    *slog.Logger
	guard  clientv3.Cmp // holds while the leader leads
	mirror *mirror.Mirror
	cache  *assignmentCache
	fences fences
	// longestCall is the longest timeout of any call so far, in nanoseconds; 0: no call
	// had a deadline. A worker may leave an assignment unclaimed for so long.
	longestCall atomic.Int64
}

var (
	_ orchestrator.Communicator[WorkerID, string] = (*Communicator)(nil)
	_ orchestrator.Applier[WorkerID, string]      = (*Communicator)(nil)
)

// NewCommunicator returns the Communicator of a leadership when it has read the
// current state. Its options are WithPrefix, which must match the election's, and
// WithLogger.
//
// It fails if an option is invalid, or if ctx or the leadership ends first.
func NewCommunicator(ctx context.Context, client *clientv3.Client, l *Leadership, opts ...Option) (*Communicator, error) {
	s, err := newSettings(opts)
	if err != nil {
		return nil, fmt.Errorf("new communicator: %w", err)
	}
	c, err := newCommunicator(ctx, client, l, s)
	if err != nil {
		return nil, fmt.Errorf("new communicator: %w", err)
	}
	return c, nil
}

func newCommunicator(ctx context.Context, client *clientv3.Client, l *Leadership, s settings) (*Communicator, error) {
	if err := l.checkPrefix(s.prefix); err != nil {
		return nil, err
	}
	guard := l.Guard()
	c := &Communicator{
		client: client,
		layout: s.layout,
		log:    s.logger,
		guard:  guard,
		cache:  newAssignmentCache(s.layout, string(guard.KeyBytes()), int64(l.Epoch())),
	}
	// The range from active/ to refused/ holds all that is needed except the term's
	// number, and no contents.
	c.mirror = mirror.New(client, mirror.Options{
		From: s.layout.ActivePrefix(), End: s.layout.RegistryPrefix(), Keep: c.cache.kept, Logger: s.logger,
	})
	l.Go(func(ctx context.Context) error {
		err := c.mirror.Run(ctx, c.cache.apply)
		c.cache.end(fmt.Errorf("%w: leadership has ended: %w", orchestrator.ErrDeposed, err))
		return err
	})
	if err := c.mirror.Reached(ctx, 1); err != nil {
		return nil, ended(err)
	}
	if err := c.cache.ended(); err != nil {
		return nil, err
	}
	return c, nil
}

// List returns the tasks that worker was told to run and may not have stopped: those
// assigned to it and those that it has claimed. It first withdraws assignments that
// have been unclaimed for longer than a call may take.
//
// With a term in ctx, List answers from the copy, and returns the very same slice
// while nothing has changed. Without a term it reads from etcd. It fails if the
// worker is not a member.
func (c *Communicator) List(ctx context.Context, worker WorkerID) ([]string, error) {
	term, ok := orchestrator.TermFromContext(ctx)
	if !ok {
		return c.read(ctx, worker)
	}
	c.noteDeadline(ctx)
	rev, err := c.begin(ctx, term)
	if err != nil {
		return nil, err
	}
	if err := c.reached(ctx, rev); err != nil {
		return nil, fmt.Errorf("list %s: %w", worker.Name, err)
	}
	if late := c.cache.unclaimed(worker.Name, time.Now().Add(-c.claimTimeout())); len(late) > 0 {
		c.withdrawAndWait(ctx, rev, worker, late)
	}
	return c.cache.list(worker)
}

// read is List without a term. It raises no fence.
func (c *Communicator) read(ctx context.Context, worker WorkerID) ([]string, error) {
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

// defaultClaimTimeout is the result of claimTimeout if no call had a deadline.
const defaultClaimTimeout = 10 * time.Second

// reached waits until the cache includes the given revision.
func (c *Communicator) reached(ctx context.Context, rev int64) error {
	err := c.mirror.Reached(ctx, rev)
	if over := c.cache.ended(); over != nil {
		return over
	}
	return err
}

// noteDeadline raises longestCall to the remaining time of a call.
func (c *Communicator) noteDeadline(ctx context.Context) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return
	}
	left := int64(time.Until(deadline))
	for known := c.longestCall.Load(); left > known; known = c.longestCall.Load() {
		if c.longestCall.CompareAndSwap(known, left) {
			return
		}
	}
}

// claimTimeout returns how long a worker may leave an assignment unclaimed.
func (c *Communicator) claimTimeout() time.Duration {
	if known := c.longestCall.Load(); known > 0 {
		return time.Duration(known)
	}
	return defaultClaimTimeout
}

// gone returns the error for a worker that is not a member, or is another
// incarnation than the call's. The lease of the incarnation that was meant has
// ended, so its tasks have stopped.
func gone(w WorkerID) error {
	return fmt.Errorf("%w: worker %s of incarnation %d is not a member", orchestrator.ErrRejected, w.Name, w.Incarnation)
}

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
	if err := c.cache.ended(); err != nil {
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
	worker              WorkerID
}

// guards returns the guards of a write to w in the term that began at rev.
func (c *Communicator) guards(rev int64, w WorkerID) guards {
	member := c.layout.Member(w.Name)
	return guards{
		compare: []clientv3.Cmp{
			c.guard,
			clientv3.Compare(clientv3.ModRevision(c.layout.Term()), "=", rev),
			clientv3.Compare(clientv3.CreateRevision(member), "=", w.Incarnation),
		},
		read: []clientv3.Op{
			clientv3.OpGet(c.cache.leader, clientv3.WithKeysOnly()),
			clientv3.OpGet(c.layout.Term(), clientv3.WithKeysOnly()),
			clientv3.OpGet(member, clientv3.WithKeysOnly()),
		},
		epoch: c.cache.epoch, term: rev, member: w.Incarnation, worker: w,
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
