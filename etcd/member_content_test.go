package etcd_test

// Changes of contents, during claims, cuts and over slow connections.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/internal/netfault"
)

func TestW7_UpdateReachesTheRunningTask(t *testing.T) {
	s := newStage(t)
	w := s.startMember(s.client, "a", 5*time.Second, s.withTold()).joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	s.put("t", "one")
	s.put("other", "no worker runs it")
	require.NoError(t, l.add(1, w, "t"))
	s.taskLog.wait(t, "t has its content", func(l *taskLog) bool { return l.content["t"] == "one" })
	for _, content := range []string{"two", "", "three\x00\xff"} {
		s.put("t", content)
		s.taskLog.wait(t, "t is updated", func(l *taskLog) bool { return l.content["t"] == content })
	}
	require.Equal(t, 1, s.taskLog.started("t"), "updates in place")
	require.NotContains(t, s.taskLog.content, "other")
}

// Without an update function, the task is restarted on the same worker.
func TestW7_UpdateRestartsInPlace(t *testing.T) {
	s := newStage(t)
	w := s.startMember(s.client, "a", 5*time.Second).joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	s.put("t", "one")
	require.NoError(t, l.add(1, w, "t"))
	s.taskLog.wait(t, "t runs", func(l *taskLog) bool { return l.content["t"] == "one" })
	s.put("t", "two")
	s.taskLog.wait(t, "t is restarted", func(l *taskLog) bool { return l.content["t"] == "two" })
	require.Equal(t, 2, s.taskLog.started("t"))
	require.Equal(t, []string{"t"}, l.list(2, w))
}

// A change of the content during the claim and the start of its task is never lost.
func TestW7_NothingIsLostBetweenClaimAndWatch(t *testing.T) {
	s := newStage(t)
	w := s.startMember(s.client, "a", 5*time.Second, s.withTold()).joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	const tasks = 40
	written := make(chan error, 1)
	go func() { // write while the tasks are added
		for round := range 5 {
			for i := range tasks {
				_, err := s.client.Put(t.Context(), fmt.Sprint("/work/registry/", i), fmt.Sprint(round))
				if err != nil {
					written <- err
					return
				}
			}
		}
		written <- nil
	}()
	var adds []orchestrator.Write[string]
	for i := range tasks {
		adds = append(adds, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: fmt.Sprint(i)})
	}
	ctx, cancel := l.term(1, soon)
	defer cancel()
	require.Nil(t, l.comm.Apply(ctx, w, adds))
	require.NoError(t, receive(t, written))
	s.taskLog.wait(t, "all have the last content", func(l *taskLog) bool {
		for i := range tasks {
			if l.content[fmt.Sprint(i)] != "4" {
				return false
			}
		}
		return true
	})
}

// A compaction during a disconnect removes the history that the watch needs. The
// content is read again.
func TestW7_UpdateSurvivesACutAndACompaction(t *testing.T) {
	s := newStage(t)
	client, cable := s.behind()
	w := s.startMember(client, "a", 20*time.Second, s.withTold()).joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	s.put("t", "one")
	require.NoError(t, l.add(1, w, "t"))
	s.taskLog.wait(t, "t runs", func(l *taskLog) bool { return l.content["t"] == "one" })
	cable.Cut(netfault.Both)
	s.put("t", "two")
	resp, err := s.client.Put(t.Context(), "/elsewhere", "")
	require.NoError(t, err)
	_, err = s.client.Compact(t.Context(), resp.Header.Revision)
	require.NoError(t, err)
	cable.Reset()
	cable.Heal()
	s.taskLog.wait(t, "t is updated", func(l *taskLog) bool { return l.content["t"] == "two" })
	require.Equal(t, 1, s.taskLog.started("t"))
}

// A content is read until the read succeeds. A change between the read and the watch
// is not lost.
func TestW7_NothingIsLostBetweenReadAndWatch(t *testing.T) {
	s := newStage(t)
	client := s.connect()
	var failures atomic.Int32
	i := etcd.NewIntercept(client)
	i.OnGet = func(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
		if !strings.HasPrefix(key, "/work/registry/") {
			return i.KV.Get(ctx, key, opts...)
		}
		if failures.Add(1) <= 3 {
			return nil, errLost
		}
		resp, err := i.KV.Get(ctx, key, opts...)
		s.put("t", "two")
		return resp, err
	}
	w := s.startMember(client, "a", 5*time.Second, s.withTold()).joined()
	s.put("t", "one")
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	require.NoError(t, l.add(1, w, "t"))
	s.taskLog.wait(t, "t has the last content", func(l *taskLog) bool { return l.content["t"] == "two" })
	require.Equal(t, 1, s.taskLog.started("t"))
	require.Greater(t, failures.Load(), int32(3))
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
	w := s.startMember(newClient(t, cfg), "a", 5*time.Second, s.withTold()).joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	for i := range 5 {
		task := fmt.Sprint(i)
		require.NoError(t, l.add(1, w, task))
		s.put(task, "new")
		s.taskLog.wait(t, "the content is updated", func(l *taskLog) bool { return l.content[task] == "new" })
	}
	require.EqualValues(t, 2, watches.Load())
}

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
	a := s.startMember(client, "a", 5*time.Second)
	w := a.joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	adds := s.heavy(14)
	cable.Throttle(netfault.Down, 4<<20)
	ctx, cancel := l.term(1, time.Minute)
	defer cancel()
	require.NoError(t, errors.Join(l.comm.Apply(ctx, w, adds)...))
	require.Equal(t, w, a.joined(), "the membership must last")
	s.taskLog.wait(t, "all run", func(l *taskLog) bool { return len(l.running) == len(adds) })
	for _, add := range adds {
		require.Equal(t, 1, s.taskLog.started(add.Task))
	}
}

// While contents are being read, other tasks progress, and a task that waits for its
// content can be removed.
func TestE5_SlowContentsDelayNoOtherTask(t *testing.T) {
	s := newStage(t)
	client, cable := s.behind()
	a := s.startMember(client, "a", 20*time.Second)
	w := a.joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	require.NoError(t, l.add(1, w, "light"))
	s.taskLog.wait(t, "light runs", func(l *taskLog) bool { return len(l.running) == 1 })
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
