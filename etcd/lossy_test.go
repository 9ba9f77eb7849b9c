package etcd_test

// A member whose requests or answers are lost, or whose writes land twice, the
// second time late.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// lossy makes transactions of a client fail at random.
type lossy struct {
	clientv3.KV
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

func (k *lossy) Txn(ctx context.Context) clientv3.Txn { return &lossyTxn{kv: k, ctx: ctx} }

type lossyTxn struct {
	kv              *lossy
	ctx             context.Context
	ifs             []clientv3.Cmp
	then, otherwise []clientv3.Op
}

func (t *lossyTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { t.ifs = cs; return t }
func (t *lossyTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.then = ops; return t }
func (t *lossyTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.otherwise = ops; return t }

func (t *lossyTxn) Commit() (*clientv3.TxnResponse, error) {
	commit := func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return t.kv.KV.Txn(ctx).If(t.ifs...).Then(t.then...).Else(t.otherwise...).Commit()
	}
	fate, delay := t.kv.fate()
	landsLate := func() {
		go func() {
			defer t.kv.late.Done()
			timer := time.NewTimer(delay)
			<-timer.C
			_, _ = commit(context.WithoutCancel(t.ctx))
		}()
	}
	switch fate {
	case "request":
		return nil, errLost
	case "answer":
		_, _ = commit(t.ctx)
		return nil, errLost
	case "late":
		landsLate()
		return nil, errLost
	case "twice":
		landsLate()
	}
	return commit(t.ctx)
}

// A member's writes and answers get lost, late or doubled. Every running task is
// claimed, none runs twice, and finally exactly the assigned tasks are claimed and
// run.
func TestE5_EveryWriteCanBeMadeAgain(t *testing.T) {
	s := newStage(t)
	client := s.connect()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	k := &lossy{KV: client.KV, random: rand.New(rand.NewPCG(seed, 0)), lost: map[string]int{}}
	client.KV = k
	w := s.hire(client, "a", 10*time.Second).joined()
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
	s.ledger.wait(t, "the assigned tasks run", func(l *ledger) bool { return len(l.running) == 2 })
	require.Contains(t, s.ledger.snapshot(), "0")
	resp, err := s.client.Get(t.Context(), "/work/active/a/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, resp.Kvs, 2)
	running := s.ledger.snapshot()
	for _, kv := range resp.Kvs {
		by := running[string(kv.Key[len("/work/active/a/"):])]
		require.Equal(t, fmt.Sprintf("a/%d", kv.CreateRevision), by, "the token must be the claim's revision")
	}
}

// If one of several transactions of a batch fails, the writes of earlier ones get
// their own results.
func TestE5_PartOfABatch(t *testing.T) {
	s := newStage(t)
	w := s.hire(s.connect(), "a", 10*time.Second).joined()
	client := s.connect()
	k := &lossy{KV: client.KV}
	client.KV = k
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
	s.ledger.wait(t, "the claimed tasks run", func(l *ledger) bool { return len(l.running) == done })
}
