package main

// The backend on a real etcd.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/examples/allocator/api"
)

func newTasks(t *testing.T) tasks {
	t.Helper()
	server := startEtcd(t, embed.Config{})
	client, err := clientv3.New(etcd.ClientConfig(server.Endpoint()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	registry, err := etcd.NewRegistry(client)
	require.NoError(t, err)
	return tasks{registry}
}

func is(version string) api.Condition { return func(v string) bool { return v == version } }

func TestBackend_PutsAndDeletesUnderConditions(t *testing.T) {
	b := newTasks(t)
	ctx := t.Context()
	tooLong := strings.Repeat("x", api.MaxID+1)
	_, err := b.Get(ctx, tooLong)
	require.Equal(t, api.ErrNotFound, err)
	require.Equal(t, api.ErrNotFound, b.Delete(ctx, tooLong, nil))
	_, _, err = b.Put(ctx, "a", api.Change{Instances: 3})
	require.Equal(t, api.ErrNotFound, err)
	_, _, err = b.Put(ctx, "a", api.Change{Content: []byte("x"), If: is("1-0")})
	require.Equal(t, api.ErrChanged, err)
	first, created, err := b.Put(ctx, "a", api.Change{Content: []byte("x"), If: is("")})
	require.NoError(t, err)
	require.True(t, created)
	require.Equal(t, api.Item{ID: "a", Content: []byte("x"), Instances: 1, Version: first.Version}, first)

	// Settings that the API does not expose stay, and change the version.
	require.NoError(t, b.Configure(ctx, "a", orchestrator.TaskSettings{Handoff: orchestrator.StartThenStop}))
	_, _, err = b.Put(ctx, "a", api.Change{Instances: 3, If: is(first.Version)})
	require.Equal(t, api.ErrChanged, err)
	second, err := b.Get(ctx, "a")
	require.NoError(t, err)
	weigh := func(r *api.Rules) { r.Weight, r.Requires = 5, []string{"gpu"} }
	_, _, err = b.Put(ctx, "a", api.Change{Rules: weigh, If: is(first.Version)})
	require.Equal(t, api.ErrChanged, err)
	third, created, err := b.Put(ctx, "a", api.Change{Instances: 3, Rules: weigh, If: is(second.Version)})
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, api.Item{
		ID: "a", Content: []byte("x"), Instances: 3, Rules: api.Rules{Weight: 5, Requires: []string{"gpu"}}, Version: third.Version,
	}, third)
	stored, err := b.Registry.Get(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, orchestrator.TaskSettings{
		Instances: 3, Handoff: orchestrator.StartThenStop, Weight: 5, Requires: []string{"gpu"},
	}, stored.Settings)

	for _, old := range []api.Item{first, second} {
		require.Equal(t, api.ErrChanged, b.Delete(ctx, "a", is(old.Version)))
	}
	require.NoError(t, b.Delete(ctx, "a", is(third.Version)))
	require.Equal(t, api.ErrNotFound, b.Delete(ctx, "a", is("")))
	require.Equal(t, api.ErrNotFound, b.Delete(ctx, "a", nil))
}

// One client sets the content and another the instances at the same time. Neither
// change is lost.
func TestBackend_PutsBesideEachOtherLoseNothing(t *testing.T) {
	b := newTasks(t)
	for i := range 100 {
		id, content := fmt.Sprint(i), fmt.Sprint("content ", i)
		_, err := b.Create(t.Context(), api.Item{ID: id, Instances: 1})
		require.NoError(t, err)
		var both sync.WaitGroup
		for _, change := range []api.Change{{Content: []byte(content)}, {Instances: 3}} {
			both.Go(func() {
				if _, _, err := b.Put(t.Context(), id, change); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		got, err := b.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, content, string(got.Content), "round %d", i)
		require.Equal(t, 3, got.Instances, "round %d", i)
	}
}

// One of many concurrent changes of the same version succeeds.
func TestBackend_OneOfManyChangesAVersion(t *testing.T) {
	b := newTasks(t)
	item, _, err := b.Put(t.Context(), "a", api.Change{Content: []byte("x")})
	require.NoError(t, err)
	var all sync.WaitGroup
	results := make(chan error, 8)
	for i := range cap(results) {
		all.Go(func() {
			_, _, err := b.Put(t.Context(), "a", api.Change{Instances: i + 2, If: is(item.Version)})
			results <- err
		})
	}
	all.Wait()
	close(results)
	won := 0
	for err := range results {
		if err == nil {
			won++
			continue
		}
		require.Equal(t, api.ErrChanged, err)
	}
	require.Equal(t, 1, won)
}

func TestBackend_PutEndsWithItsContext(t *testing.T) {
	b := newTasks(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := b.Put(ctx, "a", api.Change{Content: []byte("x")})
	require.ErrorIs(t, err, context.Canceled)
}

func TestBackend_ErrorsInTheWordsOfTheAPI(t *testing.T) {
	for from, to := range map[error]error{
		etcd.ErrNotFound: api.ErrNotFound,
		etcd.ErrExists:   api.ErrExists,
		etcd.ErrTooLarge: api.ErrTooLarge,
	} {
		require.ErrorIs(t, known(fmt.Errorf("put a: %w", from)), to)
	}
	other := errors.New("other")
	require.Equal(t, other, known(other))
	require.NoError(t, known(nil))
}
