package etcd_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
)

func startOwners(t *testing.T, c *clientv3.Client) *etcd.Owners {
	t.Helper()
	o, err := etcd.NewOwners(c)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = o.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-done })
	return o
}

func claim(t *testing.T, c *clientv3.Client, worker, task string) etcd.Owner {
	t.Helper()
	resp, err := c.Put(t.Context(), "/work/active/"+worker+"/"+task, "{}")
	require.NoError(t, err)
	return etcd.Owner{Worker: worker, Token: uint64(resp.Header.Revision)}
}

func release(t *testing.T, c *clientv3.Client, worker, task string) {
	t.Helper()
	_, err := c.Delete(t.Context(), "/work/active/"+worker+"/"+task)
	require.NoError(t, err)
}

type news struct {
	task   string
	owners []etcd.Owner
}

func TestE7_OwnersOfATask(t *testing.T) {
	c := startEtcd(t)
	// The first contact marks the prefix.
	_, err := newRegistry(t, c).Draining(t.Context())
	require.NoError(t, err)
	b := claim(t, c, "b", "t%2F1")
	o := startOwners(t, c)
	require.Empty(t, o.Of("nothing"))
	receive(t, o.Loaded())
	require.Equal(t, []etcd.Owner{b}, o.Of("t/1"))

	heard := make(chan news, 100)
	ctx, stop := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() {
		result <- o.Watch(ctx, func(task string, owners []etcd.Owner) { heard <- news{task, owners} })
	}()
	require.Equal(t, news{"t/1", []etcd.Owner{b}}, receive(t, heard))
	a := claim(t, c, "a", "t%2F1")
	require.Equal(t, news{"t/1", []etcd.Owner{a, b}}, receive(t, heard))
	require.Equal(t, []etcd.Owner{a, b}, o.Of("t/1"))
	release(t, c, "b", "t%2F1")
	require.Equal(t, news{"t/1", []etcd.Owner{a}}, receive(t, heard))
	require.Equal(t, map[string][]etcd.Owner{"t/1": {a}}, o.All())
	release(t, c, "a", "t%2F1")
	require.Equal(t, news{"t/1", nil}, receive(t, heard))
	require.Empty(t, o.All())

	again := claim(t, c, "a", "t%2F1")
	require.Greater(t, again.Token, a.Token)
	require.Equal(t, news{"t/1", []etcd.Owner{again}}, receive(t, heard))
	stop(errEnough)
	require.ErrorIs(t, receive(t, result), errEnough)
}

// Changes during a call of the watcher are merged.
func TestE7_SlowWatcherHearsTheLatest(t *testing.T) {
	c := startEtcd(t)
	_, err := newRegistry(t, c).Draining(t.Context())
	require.NoError(t, err)
	o := startOwners(t, c)
	receive(t, o.Loaded())
	busy, free := make(chan struct{}), make(chan struct{})
	heard := make(chan news, 100)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	first := true
	go func() {
		done <- o.Watch(ctx, func(task string, owners []etcd.Owner) {
			if first {
				first = false
				close(busy)
				<-free
			}
			heard <- news{task, owners}
		})
	}()
	claim(t, c, "a", "t")
	receive(t, busy)
	var last etcd.Owner
	for range 50 {
		release(t, c, "a", "t")
		last = claim(t, c, "a", "t")
	}
	quick := make(chan struct{}, 1)
	watchCtx, stopQuick := context.WithCancel(t.Context())
	quickDone := make(chan error, 1)
	go func() {
		quickDone <- o.Watch(watchCtx, func(_ string, owners []etcd.Owner) {
			if len(owners) == 1 && owners[0] == last {
				select {
				case quick <- struct{}{}:
				default:
				}
			}
		})
	}()
	receive(t, quick)
	close(free)
	receive(t, heard) // the change that the watcher was busy with
	require.Equal(t, news{"t", []etcd.Owner{last}}, receive(t, heard))
	require.Empty(t, heard)
	stop()
	stopQuick()
	require.ErrorIs(t, receive(t, done), context.Canceled)
	require.ErrorIs(t, receive(t, quickDone), context.Canceled)
}

func TestE7_SurvivesCutsAndAnotherCluster(t *testing.T) {
	t.Parallel() // it mostly waits, without a lease
	s := startServer(t, embed.Config{})
	direct := newClient(t, clientConfig(s.Endpoint()))
	c, p := startProxy(t, s)
	o := startOwners(t, c)
	receive(t, o.Loaded())
	changed := make(chan struct{}, 1)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = o.Watch(ctx, func(string, []etcd.Owner) {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	})
	until := func(want map[string][]etcd.Owner) {
		t.Helper()
		for {
			got := o.All()
			if fmt.Sprint(got) == fmt.Sprint(want) {
				return
			}
			receive(t, changed)
		}
	}
	want := make(map[string][]etcd.Owner)
	for i := range 20 {
		if i%4 == 0 {
			p.Reset()
		}
		task := fmt.Sprint(i)
		want[task] = []etcd.Owner{claim(t, direct, "a", task)}
	}
	until(want)

	require.NoError(t, s.Close())
	s = startServer(t, embed.Config{Listen: hostPort(s)})
	direct = newClient(t, clientConfig(s.Endpoint()))
	until(map[string][]etcd.Owner{"1": {claim(t, direct, "b", "1")}})
	stop()
	wg.Wait()
}
