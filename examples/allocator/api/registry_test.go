package api_test

// The API on a real etcd.

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/examples/allocator/api"
	"github.com/f8949c05/orchestrator/replica/etcd"
	"github.com/f8949c05/orchestrator/replica/etcd/embed"
)

// newRealStage returns a stage with a registry below /work/, and a client of its etcd.
func newRealStage(t *testing.T) (*standing, *etcd.Registry, *clientv3.Client) {
	t.Helper()
	server, err := embed.Start(t.Context(), embed.Config{NoFsync: true, Tick: 10 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint()}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	s, registry := newStage(t, stage{}), etcd.NewRegistry(client, "/work/")
	s.config.Registry = registry
	s.handler = api.New(s.config)
	return s, registry, client
}

// put sends a PUT, and returns the status and the ETag.
func (s *standing) put(t *testing.T, target, body string, header ...string) (status int, tag string) {
	t.Helper()
	answer, _ := s.ask(t, "PUT", target, body, header...)
	return answer.StatusCode, answer.Header.Get("ETag")
}

// Settings that the API does not expose stay, and change the version.
func TestRegistry_KeepsOtherSettings(t *testing.T) {
	s, registry, _ := newRealStage(t)
	status, first := s.put(t, "/work/a", "x")
	require.Equal(t, http.StatusCreated, status)
	item, err := registry.Get(t.Context(), "a")
	require.NoError(t, err)
	item.Handoff = orchestrator.StartThenStop
	_, err = registry.CompareAndPut(t.Context(), item)
	require.NoError(t, err)
	status, _ = s.put(t, "/work/a?instances=3", "", "If-Match", first)
	require.Equal(t, http.StatusPreconditionFailed, status)
	status, second := s.put(t, "/work/a?instances=3&weight=5&requires=gpu", "")
	require.Equal(t, http.StatusOK, status)
	item, err = registry.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, orchestrator.StartThenStop, item.Handoff)
	require.Equal(t, []any{3, int64(5), []string{"gpu"}, "x"}, []any{item.Instances, item.Weight, item.Requires, string(item.Content)})
	for _, step := range []struct {
		tag  string
		want int
	}{{first, http.StatusPreconditionFailed}, {second, http.StatusNoContent}, {second, http.StatusPreconditionFailed}} {
		answer, _ := s.ask(t, "DELETE", "/work/a", "", "If-Match", step.tag)
		require.Equal(t, step.want, answer.StatusCode)
	}
	answer, _ := s.ask(t, "DELETE", "/work/a", "")
	require.Equal(t, http.StatusNotFound, answer.StatusCode)
}

// One client sets the content and another the instances at the same time. Neither change is lost.
func TestRegistry_WritesBesideEachOtherLoseNothing(t *testing.T) {
	s, registry, _ := newRealStage(t)
	for i := range 50 {
		target, content := fmt.Sprintf("/work/%d", i), fmt.Sprint("content ", i)
		status, _ := s.put(t, target, "x")
		require.Equal(t, http.StatusCreated, status)
		var both sync.WaitGroup
		both.Go(func() {
			status, _ := s.put(t, target, content)
			assert.Equal(t, http.StatusOK, status)
		})
		both.Go(func() {
			status, _ := s.put(t, target+"?instances=3", "")
			assert.Equal(t, http.StatusOK, status)
		})
		both.Wait()
		item, err := registry.Get(t.Context(), fmt.Sprint(i))
		require.NoError(t, err)
		require.Equal(t, content, string(item.Content), "round %d", i)
		require.Equal(t, 3, item.Instances, "round %d", i)
	}
}

// One of many concurrent changes of the same version succeeds.
func TestRegistry_OneOfManyChangesAVersion(t *testing.T) {
	s, _, _ := newRealStage(t)
	_, tag := s.put(t, "/work/a", "x")
	var all sync.WaitGroup
	results := make(chan int, 8)
	for i := range cap(results) {
		all.Go(func() {
			status, _ := s.put(t, fmt.Sprintf("/work/a?instances=%d", i+2), "", "If-Match", tag)
			results <- status
		})
	}
	all.Wait()
	close(results)
	statuses := map[int]int{}
	for status := range results {
		statuses[status]++
	}
	require.Equal(t, map[int]int{http.StatusOK: 1, http.StatusPreconditionFailed: 7}, statuses)
}

// Settings that were edited by hand so that they cannot be read are shown as none, until a PUT writes
// them anew.
func TestRegistry_SettingsEditedByHand(t *testing.T) {
	s, _, client := newRealStage(t)
	s.put(t, "/work/a?instances=2", "x")
	_, err := client.Put(t.Context(), "/work/registry/a", "three of them")
	require.NoError(t, err)
	_, body := s.ask(t, "GET", "/work/a", "")
	require.JSONEq(t, `{"id":"a","content":"x","instances":0,"workers":["a"]}`, body)
	_, body = s.ask(t, "PUT", "/work/a?instances=3", "")
	require.JSONEq(t, `{"id":"a","content":"x","instances":3}`, body)
	_, body = s.ask(t, "GET", "/work", "")
	require.Contains(t, body, `"instances":3`)
}

// Contents as large as the API allows are stored, also under the longest id.
func TestRegistry_TheLargestContent(t *testing.T) {
	s, registry, _ := newRealStage(t)
	id, content := strings.Repeat("\x01", api.MaxID), strings.Repeat("\xff", api.MaxContent)
	status, _ := s.put(t, "/work/"+url.PathEscape(id), content)
	require.Equal(t, http.StatusCreated, status)
	item, err := registry.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, content, string(item.Content))
}
