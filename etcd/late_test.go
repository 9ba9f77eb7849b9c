package etcd_test

// Writes that arrive twice, or late, after the state has changed.

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// tape records the transactions of a client.
type tape struct {
	clientv3.KV
	mu   sync.Mutex
	txns []*tapedTxn
}

type tapedTxn struct {
	tape               *tape
	ctx                context.Context
	ifs                []clientv3.Cmp
	success, otherwise []clientv3.Op
}

// taped returns a client that records its transactions.
func (s *stage) taped() (*clientv3.Client, *tape) {
	s.Helper()
	c := s.connect()
	r := &tape{KV: c.KV}
	c.KV = r
	return c, r
}

func (r *tape) Txn(ctx context.Context) clientv3.Txn { return &tapedTxn{tape: r, ctx: ctx} }

func (t *tapedTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { t.ifs = cs; return t }
func (t *tapedTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.success = ops; return t }
func (t *tapedTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.otherwise = ops; return t }

func (t *tapedTxn) Commit() (*clientv3.TxnResponse, error) {
	t.tape.mu.Lock()
	t.tape.txns = append(t.tape.txns, t)
	t.tape.mu.Unlock()
	return t.tape.commit(t.ctx, t)
}

func (r *tape) commit(ctx context.Context, t *tapedTxn) (*clientv3.TxnResponse, error) {
	return r.KV.Txn(ctx).If(t.ifs...).Then(t.success...).Else(t.otherwise...).Commit()
}

// length returns the number of recorded transactions.
func (r *tape) length() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.txns)
}

// replay makes the first n transactions again.
func (s *stage) replay(r *tape, n int) {
	s.Helper()
	r.mu.Lock()
	txns := slices.Clone(r.txns[:n])
	r.mu.Unlock()
	for _, t := range txns {
		_, err := r.commit(s.Context(), t)
		require.NoError(s, err)
	}
}

// held returns the keys of members, assignments and claims with their revisions.
func (s *stage) held() map[string][2]int64 {
	s.Helper()
	held := map[string][2]int64{}
	for _, prefix := range []string{"/work/assigned/", "/work/active/", "/work/members/"} {
		resp, err := s.client.Get(s.Context(), prefix, clientv3.WithPrefix())
		require.NoError(s, err)
		for _, kv := range resp.Kvs {
			revs := [2]int64{kv.CreateRevision, kv.ModRevision}
			if prefix == "/work/active/" {
				revs[1] = 0 // a claim may be confirmed repeatedly
			}
			held[string(kv.Key)] = revs
		}
	}
	return held
}

// Writes of a member or a leader that arrive again, when the same task runs under
// another claim, change nothing.
func TestE5_LateWritesChangeNothing(t *testing.T) {
	s := newStage(t)
	client, members := s.taped()
	w := s.hire(client, "a", 20*time.Second).joined()
	client, leaders := s.taped()
	l := s.elect(client, "l1", 20*time.Second)
	l.list(1, w)
	require.NoError(t, l.add(1, w, "t"))
	require.NoError(t, l.remove(1, w, "t"))
	require.NoError(t, l.add(1, w, "u"))
	s.replay(members, members.length())
	require.Equal(t, []string{"u"}, l.list(1, w))
	require.NoError(t, l.add(1, w, "t"))
	past := leaders.length()
	s.ledger.wait(t, "both run", func(l *ledger) bool { return len(l.running) == 2 })
	before := s.held()
	require.Len(t, before, 5)
	s.replay(members, members.length())
	require.Equal(t, before, s.held())

	require.Equal(t, []string{"t", "u"}, l.list(2, w))
	// The exception is the write of a term's number, which only refuses more writes.
	s.replay(leaders, past)
	require.Equal(t, before, s.held())
	require.ErrorIs(t, l.add(2, w, "v"), orchestrator.ErrStale)
	require.Equal(t, []string{"t", "u"}, l.list(3, w))
	require.NoError(t, l.remove(3, w, "t"))
	require.Equal(t, 2, s.ledger.started("t"))
}

// A write for a worker that is already in flight does not reach its successor of the
// same name.
func TestE5_WritesAreForOneIncarnation(t *testing.T) {
	s := newStage(t)
	a := s.hire(s.client, "a", 5*time.Second)
	w := a.joined()
	client, gate := s.gated()
	l := s.elect(client, "l1", 5*time.Second)
	l.list(1, w)
	require.NoError(t, l.add(1, w, "t"))
	release := gate.hold("/work/assigned/a/")
	ctx, cancel := l.term(1, soon)
	defer cancel()
	removed := make(chan error, 1)
	go func() { removed <- l.comm.Remove(ctx, w, "t") }()
	receive(t, gate.arrived)
	a.quit()
	successor := s.hire(s.client, "a", 5*time.Second).joined()
	_, err := s.client.Put(t.Context(), "/work/assigned/a/t", fmt.Sprintf(`{"member":%d}`, successor.Incarnation))
	require.NoError(t, err)
	s.ledger.wait(t, "the successor runs it", func(l *ledger) bool { return l.starts["t"] == 2 })
	release()
	require.ErrorIs(t, receive(t, removed), orchestrator.ErrRejected)
	require.True(t, s.there("/work/assigned/a/t"))
	ctx, cancel = l.term(1, time.Second)
	defer cancel()
	_, err = l.comm.List(ctx, w)
	require.Error(t, err)
	require.Equal(t, []string{"t"}, l.list(1, successor))
}

// A withdrawal that arrives after the claim withdraws nothing.
func TestE5_WithdrawalsAndClaimsExcludeEachOther(t *testing.T) {
	s := newStage(t)
	worker, claims := s.gated()
	w := s.hire(worker, "a", 20*time.Second).joined()
	client, gate := s.gated()
	l := s.elect(client, "l1", 20*time.Second)
	l.list(1, w)
	claim := claims.hold("/work/active/a/")
	ctx, cancel := l.term(1, 4*time.Second)
	defer cancel()
	added := make(chan error, 1)
	go func() { added <- l.comm.Add(ctx, w, "t") }()
	receive(t, claims.arrived)
	withdraw := gate.hold("/work/assigned/a/")
	receive(t, gate.arrived)
	claim()
	s.ledger.wait(t, "t runs", func(l *ledger) bool { return len(l.running) == 1 })
	withdraw()
	require.NoError(t, receive(t, added))
	require.Equal(t, []string{"t"}, l.list(2, w))
	require.Equal(t, 1, s.ledger.started("t"))
}

// operations returns the number of operations in a transaction: comparisons and both
// branches, including nested transactions.
func operations(ifs []clientv3.Cmp, branches ...[]clientv3.Op) int {
	n := len(ifs)
	for _, op := range slices.Concat(branches...) {
		n++
		if op.IsTxn() {
			ifs, then, otherwise := op.Txn()
			n += operations(ifs, then, otherwise) - 1
		}
	}
	return n
}

func TestE6_TransactionsStayBelowAHundred(t *testing.T) {
	s := newStage(t)
	client, members := s.taped()
	w := s.hire(client, "a", 20*time.Second, worker.WithAccept(func(_ context.Context, task string, _ []byte) error {
		if strings.HasPrefix(task, "no") {
			return errLost
		}
		return nil
	})).joined()
	client, leaders := s.taped()
	l := s.elect(client, "l1", 20*time.Second)
	l.list(1, w)
	var adds, removes []orchestrator.Write[string]
	for i := range 250 {
		name := []string{"yes", "no"}[i%2] + fmt.Sprint(i)
		adds = append(adds, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: name})
		removes = append(removes, orchestrator.Write[string]{Op: orchestrator.OpRemove, Task: name})
	}
	ctx, cancel := l.term(1, soon)
	defer cancel()
	l.comm.Apply(ctx, w, adds)
	require.Len(t, l.list(2, w), 125)
	ctx, cancel = l.term(2, soon)
	defer cancel()
	require.Nil(t, l.comm.Apply(ctx, w, removes))
	require.Empty(t, l.list(3, w))
	for _, r := range []*tape{members, leaders} {
		largest := 0
		for _, txn := range r.txns {
			largest = max(largest, operations(txn.ifs, txn.success, txn.otherwise))
		}
		require.Less(t, largest, 100)
		require.Greater(t, largest, 80, "transactions must be filled")
	}
}
