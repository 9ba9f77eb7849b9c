package etcd_test

// A member behind a slow connection: slow contents delay nothing else.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// heavy puts contents of a MiB each, and returns the writes that add their tasks.
func (s *stage) heavy(tasks int) (adds []orchestrator.Write[string]) {
	s.Helper()
	for i := range tasks {
		task := fmt.Sprint("heavy", i)
		s.put(task, strings.Repeat("x", 1<<20))
		adds = append(adds, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: task})
	}
	return adds
}

// claimed returns the number of claimed tasks.
func (s *stage) claimed() int64 {
	s.Helper()
	resp, err := s.client.Get(s.Context(), "/work/active/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(s, err)
	return resp.Count
}

// Reading the contents of the claimed tasks takes several times the timeout of a
// write.
func TestE5_ClaimsOverASlowLine(t *testing.T) {
	s := newStage(t)
	client, cable := s.behind()
	a := s.hire(client, "a", 5*time.Second)
	w := a.joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	adds := s.heavy(14)
	cable.Throttle(netfault.Down, 4<<20)
	ctx, cancel := l.term(1, soon)
	defer cancel()
	require.Nil(t, l.comm.Apply(ctx, w, adds))
	require.Equal(t, w, a.joined(), "the membership must last")
	s.ledger.wait(t, "all run", func(l *ledger) bool { return len(l.running) == len(adds) })
	for _, add := range adds {
		require.Equal(t, 1, s.ledger.started(add.Task))
	}
}

// While contents are being read, other tasks progress, and a task that waits for its
// content can be removed.
func TestE5_SlowContentsDelayNoOtherTask(t *testing.T) {
	s := newStage(t)
	client, cable := s.behind()
	a := s.hire(client, "a", 20*time.Second)
	w := a.joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	require.NoError(t, l.add(1, w, "light"))
	s.ledger.wait(t, "light runs", func(l *ledger) bool { return len(l.running) == 1 })
	adds := s.heavy(8)
	cable.Throttle(netfault.Down, 256<<10) // 4 s for each content, 32 s for all
	ctx, cancel := l.term(1, 2*soon)
	over := make(chan []error, 1)
	go func() { over <- l.comm.Apply(ctx, w, adds) }()
	s.eventually("all are claimed", func() bool { return s.claimed() == int64(len(adds))+1 })
	for _, task := range []string{"light", "heavy7", "heavy6"} {
		require.NoError(t, l.remove(1, w, task), task)
	}
	require.Equal(t, w, a.joined(), "the membership must last")
	require.Empty(t, over, "the other contents are still being read")
	cancel()
	receive(t, over)
}

// reads intercepts reads of contents: the first ones fail, and after is called after
// each successful one.
type reads struct {
	clientv3.KV
	fail  atomic.Int32
	after func()
}

func (r *reads) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if !strings.HasPrefix(key, "/work/registry/") {
		return r.KV.Get(ctx, key, opts...)
	}
	if r.fail.Add(-1) >= 0 {
		return nil, errLost
	}
	resp, err := r.KV.Get(ctx, key, opts...)
	r.after()
	return resp, err
}

// A content is read until the read succeeds. A change between the read and the watch
// is not lost.
func TestW7_NothingIsLostBetweenReadAndWatch(t *testing.T) {
	s := newStage(t)
	client := s.connect()
	k := &reads{KV: client.KV, after: func() { s.put("t", "two") }}
	k.fail.Store(3)
	client.KV = k
	w := s.hire(client, "a", 5*time.Second, s.withTold()).joined()
	s.put("t", "one")
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	require.NoError(t, l.add(1, w, "t"))
	s.ledger.wait(t, "t has the last content", func(l *ledger) bool { return l.content["t"] == "two" })
	require.Equal(t, 1, s.ledger.started("t"))
	require.Negative(t, k.fail.Load())
}

// Content watches use a separate stream, so that they do not delay the other
// watches.
func TestW7_ContentsAreWatchedOnAStreamOfTheirOwn(t *testing.T) {
	s := newStage(t)
	var watches atomic.Int32
	cfg := clientConfig(s.server.Endpoint())
	cfg.DialOptions = append(cfg.DialOptions, grpc.WithChainStreamInterceptor(
		func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if strings.HasSuffix(method, "/Watch") {
				watches.Add(1)
			}
			return streamer(ctx, desc, cc, method, opts...)
		}))
	w := s.hire(newClient(t, cfg), "a", 5*time.Second, s.withTold()).joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	for i := range 5 {
		task := fmt.Sprint(i)
		require.NoError(t, l.add(1, w, task))
		s.put(task, "new")
		s.ledger.wait(t, "the content is updated", func(l *ledger) bool { return l.content[task] == "new" })
	}
	require.EqualValues(t, 2, watches.Load())
}

// A worker keeps a fixed number of refusals, the last ones. Each leader gets the
// reason, and a claimed task has no refusal.
func TestE5_RefusalsAreBounded(t *testing.T) {
	s := newStage(t)
	var open atomic.Bool
	w := s.hire(s.connect(), "a", 10*time.Second, worker.WithAccept(func(_ context.Context, task string, _ []byte) error {
		if open.Load() {
			return nil
		}
		return errors.New("no room for " + task)
	})).joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	const kept, round, rounds = 128, 50, 6
	last := ""
	for i := range rounds {
		var adds []orchestrator.Write[string]
		for k := range round {
			last = fmt.Sprintf("t%d-%d", i, k)
			adds = append(adds, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: last})
		}
		ctx, cancel := l.term(1, soon)
		errs := l.comm.Apply(ctx, w, adds)
		cancel()
		require.Len(t, errs, round)
		for k, err := range errs {
			require.ErrorIs(t, err, orchestrator.ErrRejected)
			require.ErrorContains(t, err, "no room for "+adds[k].Task)
		}
	}
	refused := func() int64 {
		resp, err := s.client.Get(t.Context(), "/work/refused/a/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(t, err)
		return resp.Count
	}
	require.EqualValues(t, kept, refused())
	require.True(t, s.there("/work/refused/a/"+last))
	require.ErrorContains(t, l.add(1, w, last), "no room", "refused again")
	require.EqualValues(t, kept, refused())
	open.Store(true)
	require.NoError(t, l.add(1, w, last))
	require.False(t, s.there("/work/refused/a/"+last))
	require.NoError(t, l.add(1, w, "t0-0"))
	require.EqualValues(t, kept-1, refused())
}
