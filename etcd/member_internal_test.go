package etcd

// The parts of a member: the state of a claim, with a random walk through the events
// of one task, the writer, and the reads of contents.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/internal/membership"
)

var errRefused = errors.New("no room")

// TestE5_ClaimStateStory follows a task through its life at a member.
func TestE5_ClaimStateStory(t *testing.T) {
	var s claimState
	s.assign(5, false)
	require.Equal(t, doClaim, s.next(nil))
	require.Equal(t, nothing, s.next(nil), "one claim at a time")
	s.made(6)
	require.Equal(t, doStart, s.next(nil))
	s.answered(nil)
	require.Equal(t, doConfirm, s.next(nil))
	s.assign(9, false)
	require.Equal(t, nothing, s.next(nil), "assigned again, and still running")
	s.assign(0, false)
	require.Equal(t, doStop, s.next(nil))
	s.assign(12, false)
	require.Equal(t, nothing, s.next(nil), "the stop must complete before the next start")
	s.ended()
	require.Equal(t, doRelease, s.next(nil))
	s.released()
	require.Equal(t, doClaim, s.next(nil))
	require.EqualValues(t, 12, s.basis)
	s.missed()
	require.Equal(t, nothing, s.next(nil), "the assignment is gone, but the watch still shows it")
	s.assign(0, false)
	require.Equal(t, nothing, s.next(nil))
	require.True(t, s.forgotten())
}

// TestE5_ClaimStateRefuses covers the assignments that are refused.
func TestE5_ClaimStateRefuses(t *testing.T) {
	t.Run("by the worker", func(t *testing.T) {
		var s claimState
		s.assign(5, false)
		require.Equal(t, doClaim, s.next(nil))
		s.made(6)
		require.Equal(t, doStart, s.next(nil))
		s.answered(errRefused)
		require.Equal(t, doStop, s.next(nil), "stopped to be certain")
		s.ended()
		require.Equal(t, doRelease, s.next(nil))
		require.Equal(t, errRefused, s.failure)
		require.EqualValues(t, 5, s.basis)
		s.released()
		require.Equal(t, nothing, s.next(nil))
	})
	t.Run("of another membership", func(t *testing.T) {
		var s claimState
		s.assign(5, true)
		require.Equal(t, doRefuse, s.next(nil))
		require.NoError(t, s.failure)
	})
	t.Run("while closing", func(t *testing.T) {
		var s claimState
		s.assign(5, false)
		require.Equal(t, doRefuse, s.next(membership.ErrDraining))
		require.Equal(t, membership.ErrDraining, s.failure)
	})
	t.Run("claimed by another", func(t *testing.T) {
		var s claimState
		s.assign(5, false)
		require.Equal(t, doClaim, s.next(nil))
		s.refused(errRefused)
		require.Equal(t, doRefuse, s.next(nil))
		require.Equal(t, errRefused, s.failure)
	})
	t.Run("unassigned during the start", func(t *testing.T) {
		var s claimState
		s.assign(5, false)
		s.next(nil)
		s.made(6)
		s.next(nil)
		s.assign(0, false)
		require.Equal(t, doCancel, s.next(nil))
		require.Equal(t, nothing, s.next(nil), "doCancel must be returned once")
		s.assign(9, false)
		s.answered(errRefused)
		require.Equal(t, doStop, s.next(nil))
		s.ended()
		require.Equal(t, doRelease, s.next(nil))
		require.NoError(t, s.failure, "a cancelled start is not a failure")
		s.released()
		require.Equal(t, doClaim, s.next(nil))
	})
}

// TestE5_ClaimStateWalk checks that only a claimed task runs, and that no claim ends
// before its task. In the end, the task runs if and only if it is assigned.
func TestE5_ClaimStateWalk(t *testing.T) {
	for seed := range uint64(3000) {
		w := &claimWorld{T: t, random: rand.New(rand.NewPCG(seed, 1)), trouble: true}
		for range 200 {
			w.step()
		}
		w.trouble = false
		for range 500 {
			w.step()
		}
		require.Empty(t, w.todo, "seed %d: %v", seed, w.log)
		require.Equal(t, w.assigned != 0, w.has, "seed %d: %v", seed, w.log)
		require.Equal(t, w.assigned != 0, w.active != 0, "seed %d: %v", seed, w.log)
	}
}

// claimWorld is one task at one member: the keys in etcd, undelivered watch events,
// pending writes, and the worker.
type claimWorld struct {
	*testing.T
	random     *rand.Rand
	claimState claimState
	rev        int64
	assigned   int64
	active     int64
	watch      []int64 // undelivered values of assigned
	todo       []claimOp
	starting   bool // the worker is starting the task
	stopping   bool
	has        bool // the worker has the task
	trouble    bool // inject faults and change assignments
	log        []string
}

func (w *claimWorld) assign(to int64) {
	w.assigned = to
	w.watch = append(w.watch, to)
}

// step makes one random event happen, or none.
func (w *claimWorld) step() {
	switch n := w.random.IntN(5); {
	case n == 0 && w.trouble:
		w.lead()
	case n == 1 && len(w.watch) > 0:
		if w.trouble && w.random.IntN(3) == 0 {
			w.watch = w.watch[len(w.watch)-1:] // a resumed watch may deliver only the last value
		}
		w.happened(func(s *claimState) { s.assign(w.watch[0], false) })
		w.watch = w.watch[1:]
	case n == 2 && len(w.todo) > 0:
		w.write()
	case n == 3 && w.starting:
		w.starting = false
		var err error
		if w.has = !w.trouble || w.random.IntN(2) == 0; !w.has {
			err = errRefused
		}
		w.happened(func(s *claimState) { s.answered(err) })
	case n == 4 && w.trouble && w.has && !w.stopping: // the task has asked to run elsewhere
		w.has = false
		w.happened(func(s *claimState) { s.left(w.active, errRefused) })
	case n == 4 && w.stopping:
		w.stopping, w.has = false, false
		w.happened((*claimState).ended)
	}
	require.True(w, !w.has || w.active != 0, "unclaimed task runs: %v", w.log)
}

// lead assigns the task, perhaps repeatedly, or deletes the assignment. It does not
// wait for a stop, because a member need not trust the leader to do so.
func (w *claimWorld) lead() {
	if w.assigned != 0 && w.random.IntN(2) == 0 {
		w.assign(0)
		return
	}
	w.rev++
	w.assign(w.rev)
}

// write makes the first pending write like identity.operation. Sometimes the answer
// is lost, and the write is made again.
func (w *claimWorld) write() {
	e := w.todo[0]
	switch {
	case e.kind == doClaim && w.assigned == e.basis && w.active == 0:
		w.rev++
		w.active = w.rev
	case e.kind == doRelease && w.active == e.claim:
		require.False(w, w.has, "claim ended before its task: %v", w.log)
		w.active = 0
	}
	if (e.kind == doRefuse || e.kind == doRelease && e.reason != nil) && w.assigned == e.basis {
		w.assign(0)
	}
	active := w.active
	if w.trouble && w.random.IntN(3) == 0 {
		return
	}
	w.todo = w.todo[1:]
	w.happened(func(s *claimState) {
		switch {
		case e.kind == doClaim && active != 0:
			s.made(active)
		case e.kind == doClaim, e.kind == doRefuse:
			s.missed()
		case e.kind == doRelease:
			s.released()
		}
	})
}

// happened reports an event to the claimState and carries out the resulting action.
func (w *claimWorld) happened(event func(*claimState)) {
	event(&w.claimState)
	a := w.claimState.next(nil)
	w.log = append(w.log, fmt.Sprintf("%d %+v", a, w.claimState))
	switch a {
	case doStart:
		require.Equal(w, w.active, w.claimState.claim, "unclaimed task started: %v", w.log)
		w.starting = true
	case doStop:
		require.False(w, w.starting, "stopped while the start is in flight: %v", w.log)
		w.stopping = true
	case doClaim, doRefuse, doConfirm, doRelease:
		w.todo = append(w.todo, claimOp{kind: a, basis: w.claimState.basis, claim: w.claimState.claim, reason: w.claimState.failure})
	}
}

// The load is written in the transaction that changes it, and alone only after a
// failed claim.
func TestE6_LoadTravelsAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		layout, err := keys.New("/work/")
		require.NoError(t, err)
		var log txnLog
		load := 0
		w := &writer{
			client: &clientv3.Client{KV: &Intercept{OnTxn: log.record}}, id: identity{layout: layout, name: "w"},
			log: defaults().logger, attempt: time.Minute, signal: make(chan struct{}, 1), written: -1,
			load: func() int { return load },
		}
		w.answer = func(e claimOp, _ claimResult) {
			switch {
			case e.kind == doClaim && e.task != "lost":
				load++
				w.add(claimOp{kind: doConfirm, task: e.task, claim: 1})
			case e.kind == doRelease:
				load--
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.run(ctx) }()
		wrote := func(txns ...string) {
			t.Helper()
			synctest.Wait()
			require.Equal(t, txns, log.txns)
			log.txns = nil
		}

		wrote("load 000000")
		w.add(claimOp{kind: doClaim, task: "a", basis: 1})
		wrote("txn, load 000001", "txn")
		w.add(claimOp{kind: doRelease, task: "a", claim: 1})
		wrote("txn, load 000000")
		w.add(claimOp{kind: doClaim, task: "lost", basis: 1})
		wrote("txn, load 000001", "load 000000")

		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

// txnLog records the operations of each transaction without making them.
type txnLog struct{ txns []string }

// record reports success for every operation, and empty reads.
func (l *txnLog) record(_ context.Context, txn *Txn) (*clientv3.TxnResponse, error) {
	resp := &clientv3.TxnResponse{Header: &pb.ResponseHeader{Revision: int64(len(l.txns)) + 1}, Succeeded: true}
	var parts []string
	for _, op := range txn.Success {
		part := "load " + string(op.ValueBytes())
		if op.IsTxn() {
			part = "txn"
		}
		parts = append(parts, part)
		resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: &pb.TxnResponse{
			Succeeded: true, Responses: []*pb.ResponseOp{{}},
		}}})
	}
	l.txns = append(l.txns, strings.Join(parts, ", "))
	return resp, nil
}

// stream is a watcher that records whether its watches have ended when it is closed.
type stream struct {
	mu     sync.Mutex
	begun  chan struct{} // receives a value for each watch
	open   []context.Context
	ended  int // watches that had ended before Close
	closed chan struct{}
}

func (s *stream) Watch(ctx context.Context, _ string, _ ...clientv3.OpOption) clientv3.WatchChan {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, ctx)
	s.begun <- struct{}{}
	return make(chan clientv3.WatchResponse)
}

func (*stream) RequestProgress(context.Context) error { return errors.ErrUnsupported }

func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ctx := range s.open {
		if ctx.Err() != nil {
			s.ended++
		}
	}
	close(s.closed)
	return nil
}

// When a membership ends, the stream of its content watches is closed before any of
// them is cancelled, because there may be tens of thousands.
func TestW7_WatchesEndWithTheirStream(t *testing.T) {
	const tasks = 100
	layout, err := keys.New("/work/")
	require.NoError(t, err)
	ctx, end := context.WithCancel(t.Context())
	c := newContents(ctx, &clientv3.Client{}, identity{layout: layout}, slog.New(slog.DiscardHandler), nil, 0)
	s := &stream{begun: make(chan struct{}, tasks), closed: make(chan struct{})}
	c.watcher = s
	var followed sync.WaitGroup
	for range tasks {
		followed.Go(func() { c.follow(ctx, "t", content{}) })
	}
	for range tasks {
		<-s.begun
	}
	end()
	followed.Wait()
	<-s.closed
	require.Zero(t, s.ended)

	// A single task that leaves ends only its own watch.
	c = newContents(t.Context(), &clientv3.Client{}, identity{layout: layout}, slog.New(slog.DiscardHandler), nil, 0)
	s = &stream{begun: make(chan struct{}, 1), closed: make(chan struct{})}
	c.watcher = s
	one, quit := context.WithCancel(t.Context())
	followed.Go(func() { c.follow(one, "t", content{}) })
	<-s.begun
	quit()
	followed.Wait()
	require.Error(t, s.open[0].Err())
	select {
	case <-s.closed:
		require.Fail(t, "the stream was closed for all tasks")
	default:
	}
	c.close()
}

// readers starts n reads. leave ends one of those that have entered, with its size.
func readers(t *testing.T, l *readLimiter, n int) (entered func() int, leave func(size int)) {
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

// A readLimiter admits few large contents or many small ones.
func TestE5_ReadLimiterHoldsSoMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newReadLimiter()
		const all = 1000
		entered, leave := readers(t, l, all)
		require.Equal(t, 2, entered(), "no size is known")
		left := 0
		for ; entered() < readParts; left++ {
			leave(100)
			require.Less(t, left, 100)
		}
		leave(1 << 20)
		left++
		for range readParts - 1 {
			leave(1 << 20)
			left++
		}
		require.LessOrEqual(t, entered(), 2, "a large content counts immediately")
		for ; left < all; left++ {
			entered()
			leave(1 << 20)
		}
		require.Zero(t, entered())
		require.True(t, l.room.TryAcquire(readParts))
	})
}

func TestE5_ReadLimiterIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newReadLimiter()
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
		require.True(t, l.room.TryAcquire(readParts))
		require.True(t, l.turn.TryAcquire(1))
	})
}

// slowKV is an etcd that delays each answer.
type slowKV struct {
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

func (k *slowKV) get(ctx context.Context, key string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if err := k.wait(ctx); err != nil {
		return nil, err
	}
	return &clientv3.GetResponse{Header: &pb.ResponseHeader{ClusterId: 1, Revision: 9}, Kvs: []*mvccpb.KeyValue{{Key: []byte(key), ModRevision: 7}}}, nil
}

func (k *slowKV) commit(ctx context.Context, txn *Txn) (*clientv3.TxnResponse, error) {
	if err := k.wait(ctx); err != nil {
		return nil, err
	}
	return new(txnLog).record(ctx, txn)
}

// Timeouts double until an attempt succeeds.
func TestE5_TimeoutsGrowUntilAnAttemptSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		layout, err := keys.New("/work/")
		require.NoError(t, err)
		kv := &slowKV{takes: 10 * time.Second}
		client := &clientv3.Client{KV: &Intercept{OnGet: kv.get, OnTxn: kv.commit}}
		id := identity{layout: layout, name: "w", cluster: 1}
		c := newContents(t.Context(), client, id, defaults().logger, nil, time.Second)
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
		w := &writer{client: client, id: id, log: defaults().logger, attempt: time.Second}
		_, err = w.commit(t.Context(), []clientv3.Op{clientv3.OpDelete("k")})
		require.NoError(t, err)
		require.Equal(t, 5, kv.attempts)
	})
}

// The oldest refusals beyond the limit are deleted, and those of claimed tasks.
func TestE5_RefusalsAreForgotten(t *testing.T) {
	var r refusals
	refuse := func(task string) claimOp { return claimOp{kind: doRefuse, task: task, reason: errRefused} }
	claim := func(task string) claimOp { return claimOp{kind: doClaim, task: task} }
	for i := range keptRefusals {
		require.Empty(t, r.note([]claimOp{refuse(fmt.Sprint(i))}))
	}
	require.Zero(t, r.cost(claim("other")))
	require.Equal(t, 1, r.cost(claim("3")))
	require.Equal(t, 1, r.cost(refuse("3")))
	require.Empty(t, r.note([]claimOp{claim("other"), refuse("0"), {kind: doRefuse, task: "foreign"}, {kind: doRelease, task: "5"}}))
	require.Equal(t, []string{"1", "2"}, r.note([]claimOp{refuse("x"), {kind: doRelease, task: "y", reason: errRefused}}), "0 was refused again, so it is not the oldest")
	require.Equal(t, []string{"3"}, r.note([]claimOp{refuse("z"), claim("3")}))
	require.Equal(t, []string{"4"}, r.note([]claimOp{refuse("a")}))
	require.Len(t, r.tasks, keptRefusals)
}
