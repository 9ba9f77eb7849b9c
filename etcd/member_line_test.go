package etcd

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// readers starts n reads. leave ends one of those that have entered, with its size.
func readers(t *testing.T, l *line, n int) (entered func() int, leave func(size int)) {
	leaves := make(chan func(), n)
	for range n {
		go func() {
			if leave, err := l.enter(t.Context()); err == nil {
				leaves <- leave
			}
		}()
	}
	return func() int { synctest.Wait(); return len(leaves) }, func(size int) { (<-leaves)(); l.learn(size) }
}

// A line admits few large contents or many small ones.
func TestE5_LineHoldsSoMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		const all = 1000
		entered, leave := readers(t, l, all)
		require.Equal(t, 2, entered(), "no size is known")
		left := 0
		for ; entered() < lineParts; left++ {
			leave(100)
			require.Less(t, left, 100)
		}
		leave(1 << 20)
		left++
		for range lineParts - 1 {
			leave(1 << 20)
			left++
		}
		require.LessOrEqual(t, entered(), 2, "a large content counts immediately")
		for ; left < all; left++ {
			entered()
			leave(1 << 20)
		}
		require.Zero(t, entered())
		require.Empty(t, l.room)
	})
}

func TestE5_LineIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine()
		entered, leave := readers(t, l, 2)
		require.Equal(t, 2, entered())
		ctx, cancel := context.WithCancelCause(t.Context())
		over := make(chan error)
		for range 2 { // one waits for room, the other for its turn
			go func() {
				_, err := l.enter(ctx)
				over <- err
			}()
		}
		synctest.Wait()
		cancel(errRefused)
		require.ErrorIs(t, <-over, errRefused)
		require.ErrorIs(t, <-over, errRefused)
		leave(0)
		leave(0)
		require.Empty(t, l.room)
		require.Empty(t, l.turn)
	})
}

// slowKV is an etcd that delays each answer.
type slowKV struct {
	clientv3.KV
	takes    time.Duration
	attempts int
}

func (k *slowKV) wait(ctx context.Context) error {
	k.attempts++
	select {
	case <-time.After(k.takes):
		return nil
	case <-ctx.Done():
		return errors.New("rpc error: code = DeadlineExceeded")
	}
}

func (k *slowKV) Get(ctx context.Context, key string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if err := k.wait(ctx); err != nil {
		return nil, err
	}
	return &clientv3.GetResponse{Header: &pb.ResponseHeader{ClusterId: 1, Revision: 9}, Kvs: []*mvccpb.KeyValue{{Key: []byte(key), ModRevision: 7}}}, nil
}

func (k *slowKV) Txn(ctx context.Context) clientv3.Txn {
	return &slowTxn{loggedTxn{log: &txnLog{}}, k, ctx}
}

type slowTxn struct {
	loggedTxn
	kv  *slowKV
	ctx context.Context
}

func (t *slowTxn) If(...clientv3.Cmp) clientv3.Txn      { return t }
func (t *slowTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.ops = ops; return t }

func (t *slowTxn) Commit() (*clientv3.TxnResponse, error) {
	if err := t.kv.wait(t.ctx); err != nil {
		return nil, err
	}
	return t.loggedTxn.Commit()
}

// Timeouts double until an attempt succeeds.
func TestE5_TimeoutsGrowUntilAnAttemptSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		layout, err := keys.New("/work/")
		require.NoError(t, err)
		kv := &slowKV{takes: 10 * time.Second}
		id := identity{layout: layout, name: "w", cluster: 1}
		c := newContents(t.Context(), &clientv3.Client{KV: kv}, id, defaults().logger, nil, time.Second)
		got, err := c.read(t.Context(), "t")
		require.NoError(t, err)
		require.Equal(t, content{value: []byte{}, version: 7, as: 9}, got)
		require.Equal(t, 5, kv.attempts, "timeouts of 1, 2, 4, 8 and 16 seconds")
		ctx, cancel := context.WithCancelCause(t.Context())
		kv.takes = time.Hour
		time.AfterFunc(time.Minute, func() { cancel(errRefused) })
		_, err = c.read(ctx, "t")
		require.ErrorIs(t, err, errRefused)

		kv.takes, kv.attempts = 10*time.Second, 0
		id.cluster = 0
		w := &writer{client: &clientv3.Client{KV: kv}, id: id, log: defaults().logger, attempt: time.Second}
		_, err = w.commit(t.Context(), []clientv3.Op{clientv3.OpDelete("k")})
		require.NoError(t, err)
		require.Equal(t, 5, kv.attempts)
	})
}

// The oldest refusals beyond the limit are deleted, and those of claimed tasks.
func TestE5_RefusalsAreForgotten(t *testing.T) {
	var r refusals
	refuse := func(task string) entry { return entry{kind: doRefuse, task: task, reason: errRefused} }
	claim := func(task string) entry { return entry{kind: doClaim, task: task} }
	for i := range keptRefusals {
		require.Empty(t, r.note([]entry{refuse(fmt.Sprint(i))}))
	}
	require.Zero(t, r.cost(claim("other")))
	require.Equal(t, 1, r.cost(claim("3")))
	require.Equal(t, 1, r.cost(refuse("3")))
	require.Empty(t, r.note([]entry{claim("other"), refuse("0"), {kind: doRefuse, task: "foreign"}, {kind: doLeave, task: "5"}}))
	require.Equal(t, []string{"1", "2"}, r.note([]entry{refuse("x"), {kind: doLeave, task: "y", reason: errRefused}}), "0 was refused again, so it is not the oldest")
	require.Equal(t, []string{"3"}, r.note([]entry{refuse("z"), claim("3")}))
	require.Equal(t, []string{"4"}, r.note([]entry{refuse("a")}))
	require.Len(t, r.tasks, keptRefusals)
}
