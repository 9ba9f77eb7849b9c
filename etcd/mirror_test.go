package etcd_test

// internal/mirror on a real server. Its tests are in this package, because it links the
// server already, and each test binary that does so costs seconds.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
	"github.com/f8949c05/orchestrator/internal/netfault"
)

// copied is a copy that is built from a mirror's changes alone.
type copied struct {
	t   *testing.T
	m   *mirror.Mirror
	err chan error

	mu    sync.Mutex
	state map[string]string
	at    mirror.At
	calls int
	again atomic.Int32 // how often the mirror read again
}

// Handle counts repeated reads, which are all that the mirror logs.
func (c *copied) Handle(context.Context, slog.Record) error {
	c.again.Add(1)
	return nil
}

func (c *copied) Enabled(context.Context, slog.Level) bool { return true }
func (c *copied) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c *copied) WithGroup(string) slog.Handler            { return c }

// follow mirrors everything under /a/.
func follow(t *testing.T, client *clientv3.Client, opts ...func(*mirror.Options)) *copied {
	t.Helper()
	c := &copied{t: t, err: make(chan error, 1), state: make(map[string]string)}
	from, end := mirror.Prefix("/a/")
	o := mirror.Options{From: from, End: end, Logger: slog.New(c)}
	for _, opt := range opts {
		opt(&o)
	}
	c.m = mirror.New(client, o)
	c.run()
	return c
}

func (c *copied) run() {
	ctx, cancel := context.WithCancelCause(c.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.err <- c.m.Run(ctx, c.apply)
	}()
	c.t.Cleanup(func() { cancel(nil); <-done })
}

func (c *copied) apply(at mirror.At, changes []mirror.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
	c.calls++
	for _, ch := range changes {
		have, ok := c.state[ch.Key]
		if ch.Old == nil == ok || (ok && have != shown(ch.Old)) {
			c.t.Errorf("%s: was %q, but the change has Old %v", ch.Key, have, ch.Old)
		}
		if ch.New == nil {
			delete(c.state, ch.Key)
		} else {
			c.state[ch.Key] = shown(ch.New)
		}
	}
}

func shown(kv *mirror.KV) string {
	return fmt.Sprintf("%s %d %d %x", kv.Value, kv.Create, kv.Mod, kv.Lease)
}

// equals waits until the copy includes the present state of etcd, and compares them.
// It writes a key to wait for, because a final delete would leave no revision to
// read.
func (c *copied) equals(direct *clientv3.Client) {
	c.t.Helper()
	last := put(c.t, direct, "/a/~last", "")
	resp, err := direct.Get(c.t.Context(), "/a/", clientv3.WithPrefix())
	require.NoError(c.t, err)
	want := make(map[string]string)
	for _, kv := range resp.Kvs {
		want[string(kv.Key)] = fmt.Sprintf("%s %d %d %x", kv.Value, kv.CreateRevision, kv.ModRevision, kv.Lease)
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(c.t, c.m.Reached(ctx, last))
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Equal(c.t, want, maps.Clone(c.state))
}

func put(t *testing.T, c *clientv3.Client, key, value string) int64 {
	t.Helper()
	resp, err := c.Put(t.Context(), key, value)
	require.NoError(t, err)
	return resp.Header.Revision
}

func TestE6_PagesAreOneRevision(t *testing.T) {
	t.Parallel()
	c := newClient(t, clientConfig(startServer(t, embed.Config{}).Endpoint()))
	var ops []clientv3.Op
	for i := range 2500 {
		ops = append(ops, clientv3.OpPut(fmt.Sprintf("/a/%04d", i), "v"))
		if len(ops) == 100 {
			_, err := c.Txn(t.Context()).Then(ops...).Commit()
			require.NoError(t, err)
			ops = nil
		}
	}
	put(t, c, "/b", "beside the range")
	got := follow(t, c)
	got.equals(c)
	require.Len(t, got.state, 2501)
}

func TestE6_FirstCallIsTheWholeStateEvenIfEmpty(t *testing.T) {
	t.Parallel()
	c := newClient(t, clientConfig(startServer(t, embed.Config{}).Endpoint()))
	got := follow(t, c)
	require.NoError(t, got.m.Reached(t.Context(), 1))
	got.mu.Lock()
	calls := got.calls
	got.mu.Unlock()
	require.Equal(t, 1, calls)
	put(t, c, "/a/x", "1")
	got.equals(c)
}

func TestE6_ValuesThatAreNotKept(t *testing.T) {
	t.Parallel()
	c := newClient(t, clientConfig(startServer(t, embed.Config{}).Endpoint()))
	for _, k := range []string{"a", "b", "c", "d"} {
		put(t, c, "/a/"+k, k)
	}
	got := follow(t, c, func(o *mirror.Options) {
		o.Keep = func(key string) bool { return key != "/a/b" }
	})
	require.NoError(t, got.m.Reached(t.Context(), put(t, c, "/a/b", "again")))
	got.mu.Lock()
	defer got.mu.Unlock()
	require.Equal(t, byte('a'), got.state["/a/a"][0])
	require.Equal(t, byte(' '), got.state["/a/b"][0])
	require.Equal(t, byte('c'), got.state["/a/c"][0])
	require.Equal(t, byte('d'), got.state["/a/d"][0])
}

// burst makes 10,000 updates of 2,500 keys by concurrent writers, half of them
// alone, the others fifty in a transaction.
func burst(t *testing.T, c *clientv3.Client) {
	t.Helper()
	const writers = 10
	update := func(writer, i int) clientv3.Op {
		key := fmt.Sprintf("/a/%d-%d", writer, i%250)
		if i%7 == 6 {
			return clientv3.OpDelete(key)
		}
		return clientv3.OpPut(key, fmt.Sprint(i))
	}
	var wg sync.WaitGroup
	for writer := range writers {
		wg.Go(func() {
			for i := 0; i < 1000; {
				ops := []clientv3.Op{update(writer, i)}
				if i%100 >= 50 {
					for j := range 49 {
						ops = append(ops, update(writer, i+1+j))
					}
				}
				i += len(ops)
				if _, err := c.Txn(t.Context()).Then(ops...).Commit(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestE6_Burst(t *testing.T) {
	t.Parallel()
	c := newClient(t, clientConfig(startServer(t, embed.Config{}).Endpoint()))
	got := follow(t, c)
	burst(t, c)
	got.equals(c)
	require.Zero(t, got.again.Load(), "repeated reads")
}

// Connection losses and compactions during a burst.
func TestE6_BurstThroughCutsAndCompactions(t *testing.T) {
	t.Parallel()
	s := startServer(t, embed.Config{})
	direct := newClient(t, clientConfig(s.Endpoint()))
	c, p := startProxy(t, s)
	got := follow(t, c)
	require.NoError(t, got.m.Reached(t.Context(), put(t, direct, "/a/first", "1")))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			connected := p.Connected()
			if i%2 == 0 {
				p.Reset()
			} else {
				p.Refuse()
			}
			resp, err := direct.Get(t.Context(), "/a/first")
			if err == nil {
				_, err = direct.Compact(t.Context(), resp.Header.Revision)
			}
			if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
				t.Error(err)
			}
			p.Heal()
			select {
			case <-stop:
				return
			case <-connected:
			}
		}
	}()
	burst(t, direct)
	close(stop)
	<-stopped
	got.equals(direct)
	t.Logf("read again %d times", got.again.Load())
}

func TestE6_CutInTheMiddle(t *testing.T) {
	t.Parallel()
	s := startServer(t, embed.Config{})
	direct := newClient(t, clientConfig(s.Endpoint()))
	c, p := startProxy(t, s)
	got := follow(t, c)
	require.NoError(t, got.m.Reached(t.Context(), put(t, direct, "/a/x", "1")))
	for i := range 30 {
		switch i % 3 {
		case 0:
			p.Reset()
		case 1:
			p.Refuse()
		case 2:
			p.Cut(netfault.Down)
		}
		for j := range 20 {
			put(t, direct, fmt.Sprintf("/a/%d", (i+j)%25), fmt.Sprint(i, j))
		}
		_, err := direct.Delete(t.Context(), fmt.Sprintf("/a/%d", i%25))
		require.NoError(t, err)
		p.Heal()
		if i%5 == 4 {
			got.equals(direct)
		}
	}
	got.equals(direct)
}

func TestE6_CompactedInTheMiddle(t *testing.T) {
	t.Parallel()
	s := startServer(t, embed.Config{})
	direct := newClient(t, clientConfig(s.Endpoint()))
	c, p := startProxy(t, s)
	got := follow(t, c)
	put(t, direct, "/a/stays", "1")
	put(t, direct, "/a/goes", "1")
	require.NoError(t, got.m.Reached(t.Context(), put(t, direct, "/a/remade", "1")))

	for i := range 10 {
		p.Refuse()
		_, err := direct.Delete(t.Context(), "/a/goes")
		require.NoError(t, err)
		_, err = direct.Delete(t.Context(), "/a/remade")
		require.NoError(t, err)
		put(t, direct, "/a/remade", "1")
		put(t, direct, fmt.Sprint("/a/comes", i), "1")
		_, err = direct.Compact(t.Context(), put(t, direct, "/a/last", fmt.Sprint(i)))
		require.NoError(t, err)
		p.Heal()
		got.equals(direct)
		require.NoError(t, got.m.Reached(t.Context(), put(t, direct, "/a/goes", "1")))
	}
	require.EqualValues(t, 10, got.again.Load(), "one repeated read per compaction")
}

func TestE6_AnotherClusterIsSaid(t *testing.T) {
	t.Parallel()
	first := startServer(t, embed.Config{})
	c, _ := startProxy(t, first)
	got := follow(t, c)
	for i := range 20 {
		put(t, c, fmt.Sprint("/a/", i), "1")
	}
	got.equals(c)

	addr := first.Endpoint()[len("http://"):]
	require.NoError(t, first.Close())
	second := startServer(t, embed.Config{Listen: addr})
	put(t, newClient(t, clientConfig(second.Endpoint())), "/a/0", "1")

	require.ErrorIs(t, <-got.err, mirror.ErrCluster)
	require.ErrorIs(t, got.m.Reached(t.Context(), 1), mirror.ErrCluster)
	got.run()
	got.equals(newClient(t, clientConfig(second.Endpoint())))
}

func TestMirror_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := newClient(t, clientConfig(startServer(t, embed.Config{}).Endpoint()))
	from, end := mirror.Prefix("/a/")
	m := mirror.New(c, mirror.Options{From: from, End: end})
	ctx, cancel := context.WithCancelCause(t.Context())
	applied := make(chan struct{}, 1)
	done := make(chan error, 1)
	go func() {
		done <- m.Run(ctx, func(mirror.At, []mirror.Change) {
			select {
			case applied <- struct{}{}:
			default:
			}
		})
	}()
	<-applied
	why := fmt.Errorf("enough")
	cancel(why)
	require.ErrorIs(t, <-done, why)
	require.ErrorIs(t, m.Reached(t.Context(), 1), why)

	ctx, cancel2 := context.WithCancel(t.Context())
	cancel2()
	require.Error(t, m.Reached(ctx, 1<<40))
}
