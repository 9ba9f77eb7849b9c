package main

// The backend on a real etcd.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/examples/allocator/api"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/etcd"
	"github.com/f8949c05/orchestrator/replica/etcd/embed"
)

func newTasks(t *testing.T) tasks {
	t.Helper()
	return tasks{etcd.NewRegistry(newClient(t, startEtcd(t, embed.Config{})), "/work/")}
}

// newClient returns a client of a server without users.
func newClient(t *testing.T, server *embed.Server) *clientv3.Client {
	t.Helper()
	config, err := access{}.config([]string{server.Endpoint()})
	require.NoError(t, err)
	client, err := clientv3.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func is(version string) api.Condition { return func(v string) bool { return v == version } }

func TestBackend_PutsAndDeletesUnderConditions(t *testing.T) {
	b := newTasks(t)
	ctx := t.Context()
	tooLong := strings.Repeat("x", api.MaxID+1)
	_, err := b.Get(ctx, tooLong)
	require.ErrorIs(t, err, api.ErrNotFound)
	require.Equal(t, api.ErrNotFound, b.Delete(ctx, tooLong, nil))
	_, _, err = b.Put(ctx, "a", api.Change{Instances: 3})
	require.ErrorIs(t, err, api.ErrNotFound)
	_, _, err = b.Put(ctx, "a", api.Change{Content: []byte("x"), If: is("1-0")})
	require.Equal(t, api.ErrChanged, err)
	first, created, err := b.Put(ctx, "a", api.Change{Content: []byte("x"), If: is("")})
	require.NoError(t, err)
	require.True(t, created)
	require.Equal(t, api.Item{ID: "a", Content: []byte("x"), Instances: 1, Version: first.Version}, first)

	// Settings that the API does not expose stay, and change the version.
	stored, err := b.Registry.Get(ctx, "a")
	require.NoError(t, err)
	stored.Handoff = orchestrator.StartThenStop
	_, err = b.CompareAndPut(ctx, stored)
	require.NoError(t, err)
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
	stored, err = b.Registry.Get(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, replica.Task{
		Name: "a", Instances: 3, Handoff: orchestrator.StartThenStop, Weight: 5, Requires: []string{"gpu"}, Input: stored.Input,
	}, stored.Task)

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

// Settings that were edited by hand so that they cannot be read are shown as none. The task stays as it
// was, until a PUT writes them anew.
func TestBackend_SettingsEditedByHand(t *testing.T) {
	server := startEtcd(t, embed.Config{})
	client := newClient(t, server)
	b := tasks{etcd.NewRegistry(client, "/work/")}
	_, _, err := b.Put(t.Context(), "a", api.Change{Content: []byte("x"), Instances: 2})
	require.NoError(t, err)
	_, err = client.Put(t.Context(), "/work/registry/a", "three of them")
	require.NoError(t, err)
	got, err := b.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, "x", string(got.Content))
	require.Negative(t, got.Instances)
	put, created, err := b.Put(t.Context(), "a", api.Change{Instances: 3})
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, api.Item{ID: "a", Content: []byte("x"), Instances: 3, Version: put.Version}, put)
}

// Contents as large as the API allows are stored.
func TestBackend_TheLargestContent(t *testing.T) {
	b := newTasks(t)
	content := bytes.Repeat([]byte{0xff}, api.MaxContent)
	id := strings.Repeat("\x01", api.MaxID)
	_, _, err := b.Put(t.Context(), id, api.Change{Content: content})
	require.NoError(t, err)
	got, err := b.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, content, got.Content)
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
		etcd.ErrNotFound:            api.ErrNotFound,
		rpctypes.ErrRequestTooLarge: api.ErrTooLarge,
	} {
		require.ErrorIs(t, known(fmt.Errorf("put a: %w", from)), to)
	}
	other := errors.New("other")
	require.Equal(t, other, known(other))
	require.NoError(t, known(nil))
}
