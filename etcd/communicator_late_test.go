package etcd_test

// Writes of leaders and members that are late, lost or made twice.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/worker"
)

// gate holds back transactions on their way to etcd. A held transaction outlives the
// context of its caller, like one in a queue.
type gate struct {
	mu   sync.Mutex
	held map[string]chan struct{} // by prefix; closed on release
	late sync.WaitGroup           // transactions that outlive their callers
	// arrived receives a value for each transaction that is held back.
	arrived chan struct{}
}

// gated returns a client whose transactions pass a gate.
func (s *stage) gated() (*clientv3.Client, *gate) {
	s.Helper()
	c := s.connect()
	return c, gateBefore(c)
}

// gateBefore makes the transactions of a client pass a gate.
func gateBefore(c *clientv3.Client) *gate {
	g := &gate{held: map[string]chan struct{}{}, arrived: make(chan struct{}, 1000)}
	etcd.NewIntercept(c).OnTxn = g.pass
	return g
}

// hold holds back writes below a prefix. release returns when all of them were made.
func (g *gate) hold(prefix string) (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	free := make(chan struct{})
	g.held[prefix] = free
	return func() {
		g.mu.Lock()
		delete(g.held, prefix)
		close(free)
		g.mu.Unlock()
		g.late.Wait()
	}
}

// closedFor returns the channel to wait for before making the operations, or nil.
func (g *gate) closedFor(ops []clientv3.Op) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	for prefix, free := range g.held {
		if writesBelow(ops, prefix) {
			g.late.Add(1)
			g.arrived <- struct{}{}
			return free
		}
	}
	return nil
}

func writesBelow(ops []clientv3.Op, prefix string) bool {
	return slices.ContainsFunc(ops, func(op clientv3.Op) bool {
		if op.IsTxn() {
			_, then, otherwise := op.Txn()
			return writesBelow(then, prefix) || writesBelow(otherwise, prefix)
		}
		key := string(op.KeyBytes())
		return (op.IsPut() || op.IsDelete()) && len(key) > len(prefix) && key[:len(prefix)] == prefix
	})
}

// pass makes a transaction, perhaps after its caller has returned.
func (g *gate) pass(ctx context.Context, txn *etcd.Txn) (*clientv3.TxnResponse, error) {
	free := g.closedFor(txn.Success)
	if free == nil {
		return txn.Make(ctx)
	}
	type answer struct {
		resp *clientv3.TxnResponse
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		defer g.late.Done()
		<-free
		resp, err := txn.Make(context.WithoutCancel(ctx))
		answers <- answer{resp, err}
	}()
	select {
	case a := <-answers:
		return a.resp, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// tape records the transactions of a client.
type tape struct {
	mu   sync.Mutex
	txns []*etcd.Txn
}

// taped returns a client that records its transactions.
func (s *stage) taped() (*clientv3.Client, *tape) {
	s.Helper()
	c := s.connect()
	r := &tape{}
	etcd.NewIntercept(c).OnTxn = r.record
	return c, r
}

func (r *tape) record(ctx context.Context, txn *etcd.Txn) (*clientv3.TxnResponse, error) {
	r.mu.Lock()
	r.txns = append(r.txns, txn)
	r.mu.Unlock()
	return txn.Make(ctx)
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
	for _, txn := range txns {
		_, err := txn.Make(s.Context())
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
	w := s.startMember(client, "a", 20*time.Second).joined()
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
	s.taskLog.wait(t, "both run", func(l *taskLog) bool { return len(l.running) == 2 })
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
	require.Equal(t, 2, s.taskLog.started("t"))
}

// A write for a worker that is already in flight does not reach its successor of the
// same name.
func TestE5_WritesAreForOneIncarnation(t *testing.T) {
	s := newStage(t)
	a := s.startMember(s.client, "a", 5*time.Second)
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
	successor := s.startMember(s.client, "a", 5*time.Second).joined()
	_, err := s.client.Put(t.Context(), "/work/assigned/a/t", fmt.Sprintf(`{"member":%d}`, successor.Incarnation))
	require.NoError(t, err)
	s.taskLog.wait(t, "the successor runs it", func(l *taskLog) bool { return l.starts["t"] == 2 })
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
	w := s.startMember(worker, "a", 20*time.Second).joined()
	client, gate := s.gated()
	l := s.elect(client, "l1", 20*time.Second)
	l.list(1, w)
	claim := claims.hold("/work/active/a/")
	ctx, cancel := l.term(1, 5*time.Second) // of which the last second is for the withdrawal
	defer cancel()
	added := make(chan error, 1)
	go func() { added <- l.comm.Add(ctx, w, "t") }()
	receive(t, claims.arrived)
	withdraw := gate.hold("/work/assigned/a/")
	receive(t, gate.arrived)
	claim()
	s.taskLog.wait(t, "t runs", func(l *taskLog) bool { return len(l.running) == 1 })
	withdraw()
	require.NoError(t, receive(t, added))
	require.Equal(t, []string{"t"}, l.list(2, w))
	require.Equal(t, 1, s.taskLog.started("t"))
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
	w := s.startMember(client, "a", 20*time.Second, worker.WithAccept(func(_ context.Context, task string, _ []byte) error {
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
			largest = max(largest, operations(txn.Compares, txn.Success, txn.Otherwises))
		}
		require.Less(t, largest, 100)
		require.Greater(t, largest, 80, "transactions must be filled")
	}
}

// lossy makes transactions of a client fail at random.
type lossy struct {
	mu     sync.Mutex
	random *rand.Rand
	on     bool
	late   sync.WaitGroup
	lost   map[string]int
	script []string // fates of the next transactions; replaces the random ones
}

var errLost = errors.New("lost in transit")

// fate returns the fate of the next transaction.
func (k *lossy) fate() (fate string, delay time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.script) > 0 {
		fate, k.script = k.script[0], k.script[1:]
		return fate, 0
	}
	if !k.on {
		return "", 0
	}
	fate = []string{"", "request", "answer", "late", "twice"}[k.random.IntN(5)]
	k.lost[fate]++
	if fate == "late" || fate == "twice" {
		k.late.Add(1)
	}
	return fate, time.Duration(k.random.IntN(50)) * time.Millisecond
}

func (k *lossy) set(on bool) {
	k.mu.Lock()
	k.on = on
	k.mu.Unlock()
	k.late.Wait()
}

// pass makes a transaction as its fate says.
func (k *lossy) pass(ctx context.Context, txn *etcd.Txn) (*clientv3.TxnResponse, error) {
	fate, delay := k.fate()
	landsLate := func() {
		go func() {
			defer k.late.Done()
			timer := time.NewTimer(delay)
			<-timer.C
			_, _ = txn.Make(context.WithoutCancel(ctx))
		}()
	}
	switch fate {
	case "request":
		return nil, errLost
	case "answer":
		_, _ = txn.Make(ctx)
		return nil, errLost
	case "late":
		landsLate()
		return nil, errLost
	case "twice":
		landsLate()
	}
	return txn.Make(ctx)
}

// A member's writes and answers get lost, late or doubled. Every running task is
// claimed, none runs twice, and finally exactly the assigned tasks are claimed and
// run.
func TestE5_EveryWriteCanBeMadeAgain(t *testing.T) {
	s := newStage(t)
	client := s.connect()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	k := &lossy{random: rand.New(rand.NewPCG(seed, 0)), lost: map[string]int{}}
	etcd.NewIntercept(client).OnTxn = k.pass
	w := s.startMember(client, "a", 10*time.Second).joined()
	k.set(true)
	l := s.elect(s.connect(), "l1", 5*time.Second)
	random := rand.New(rand.NewPCG(seed, 1))
	const tasks = 6
	for term := uint64(1); term <= 40; term++ {
		l.list(term, w)
		var writes []orchestrator.Write[string]
		for i := range tasks {
			if op := orchestrator.Op(random.IntN(3)) + orchestrator.OpList; op != orchestrator.OpList {
				writes = append(writes, orchestrator.Write[string]{Op: op, Task: fmt.Sprint(i)})
			}
		}
		ctx, cancel := l.term(term, time.Duration(random.IntN(100))*time.Millisecond)
		l.comm.Apply(ctx, w, writes)
		cancel()
	}
	k.set(false)
	t.Log(k.lost)
	// Wait until stopping tasks have stopped and assigned tasks are claimed.
	term, errs := uint64(41), []error(nil)
	writes := []orchestrator.Write[string]{{Op: orchestrator.OpAdd, Task: "0"}, {Op: orchestrator.OpAdd, Task: "1"}}
	for i := 2; i < tasks; i++ {
		writes = append(writes, orchestrator.Write[string]{Op: orchestrator.OpRemove, Task: fmt.Sprint(i)})
	}
	s.eventually("all writes succeed", func() bool {
		ctx, cancel := l.term(term, soon)
		defer cancel()
		term++
		errs = l.comm.Apply(ctx, w, writes)
		return errs == nil
	})
	require.Equal(t, []string{"0", "1"}, l.list(term, w))
	s.taskLog.wait(t, "the assigned tasks run", func(l *taskLog) bool { return len(l.running) == 2 })
	require.Contains(t, s.taskLog.snapshot(), "0")
	resp, err := s.client.Get(t.Context(), "/work/active/a/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, resp.Kvs, 2)
	running := s.taskLog.snapshot()
	for _, kv := range resp.Kvs {
		by := running[string(kv.Key[len("/work/active/a/"):])]
		require.Equal(t, fmt.Sprintf("a/%d", kv.CreateRevision), by, "the token must be the claim's revision")
	}
}

// If one of several transactions of a batch fails, the writes of earlier ones get
// their own results.
func TestE5_PartOfABatch(t *testing.T) {
	s := newStage(t)
	w := s.startMember(s.connect(), "a", 10*time.Second).joined()
	client := s.connect()
	k := &lossy{}
	etcd.NewIntercept(client).OnTxn = k.pass
	l := s.elect(client, "l1", 5*time.Second)
	l.list(1, w)
	var adds []orchestrator.Write[string]
	for i := range 150 {
		adds = append(adds, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: fmt.Sprintf("%03d", i)})
	}
	k.mu.Lock()
	k.script = []string{"", "request"}
	k.mu.Unlock()
	ctx, cancel := l.term(1, soon)
	defer cancel()
	errs := l.comm.Apply(ctx, w, adds)
	require.Len(t, errs, len(adds))
	done := 0
	for done < len(errs) && errs[done] == nil {
		done++
	}
	require.Less(t, 50, done)
	require.Less(t, done, len(errs))
	for _, err := range errs[done:] {
		require.ErrorIs(t, err, errLost)
	}
	require.Len(t, l.list(2, w), done)
	s.taskLog.wait(t, "the claimed tasks run", func(l *taskLog) bool { return len(l.running) == done })
}

// A leader is paused in the middle of its writes while another is elected. None of
// its later writes lands.
func TestE2_PausedLeaderWritesNothing(t *testing.T) {
	s := newStage(t)
	w := s.startMember(s.client, "a", 5*time.Second).joined()
	client, gate := s.gated()
	l := s.elect(client, "l1", 5*time.Second)
	l.list(1, w)
	require.NoError(t, l.add(1, w, "stays"))
	release := gate.hold("/work/assigned/a/")
	writes := []orchestrator.Write[string]{
		{Op: orchestrator.OpRemove, Task: "stays"},
		{Op: orchestrator.OpAdd, Task: "late"},
	}
	errs := make(chan []error, 1)
	ctx, cancel := l.term(1, soon)
	defer cancel()
	go func() { errs <- l.comm.Apply(ctx, w, writes) }()
	receive(t, gate.arrived)
	// Its lease ends, as during a pause; the leader does not learn of it.
	_, err := s.client.Delete(t.Context(), "/work/leader/", clientv3.WithPrefix())
	require.NoError(t, err)
	next := s.elect(s.connect(), "l2", 5*time.Second)
	require.Equal(t, []string{"stays"}, next.list(1, w))
	release()
	for _, err := range receive(t, errs) {
		require.ErrorIs(t, err, orchestrator.ErrDeposed)
	}
	require.Equal(t, []string{"stays"}, next.list(1, w))
	require.NoError(t, next.add(1, w, "more"))
	require.Equal(t, []string{"more", "stays"}, next.list(1, w))
	s.eventually("both tasks run", func() bool { return len(s.taskLog.snapshot()) == 2 }) // they start after the acknowledgement
	require.Zero(t, s.taskLog.started("late"))
	require.Equal(t, 1, s.taskLog.started("stays"))
	for _, call := range []error{l.add(1, w, "u"), l.remove(1, w, "stays")} {
		require.ErrorIs(t, call, orchestrator.ErrDeposed)
	}
}

// A claim reaches etcd but its answer is lost: the task runs exactly once.
func TestE5_ClaimWithoutAnAnswer(t *testing.T) {
	s := newStage(t)
	client, cable := s.behind()
	gate := gateBefore(client)
	a := s.startMember(client, "a", 10*time.Second)
	w := a.joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	release := gate.hold("/work/active/a/")
	ctx, cancel := l.term(1, soon)
	defer cancel()
	added := make(chan error, 1)
	go func() { added <- l.comm.Add(ctx, w, "t") }()
	receive(t, gate.arrived)
	cable.Cut(netfault.Down)
	go release()
	s.eventually("t is claimed", func() bool { return s.there("/work/active/a/t") })
	require.Zero(t, s.taskLog.started("t"))
	cable.Reset() // the answer is lost
	cable.Heal()
	require.NoError(t, receive(t, added))
	s.taskLog.wait(t, "t runs", func(l *taskLog) bool { return l.running["t"] != "" })
	require.Equal(t, 1, s.taskLog.started("t"))
	require.Equal(t, []string{"t"}, l.list(1, w))
	require.NoError(t, l.remove(1, w, "t"))
	require.Empty(t, s.taskLog.snapshot())
}
