package api_test

// A store that does not answer: how long a client waits for an error.

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/examples/allocator/api"
)

// silent implements Tasks and Cluster without ever answering; each call waits for
// its context.
type silent struct{}

func never(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (silent) Create(ctx context.Context, _ api.Item) (api.Item, error) {
	return api.Item{}, never(ctx)
}

func (silent) Put(ctx context.Context, _ string, _ api.Change) (api.Item, bool, error) {
	return api.Item{}, false, never(ctx)
}

func (silent) Get(ctx context.Context, _ string) (api.Item, error) { return api.Item{}, never(ctx) }

func (silent) List(ctx context.Context, _ string, _ int) ([]api.Item, error) { return nil, never(ctx) }

func (silent) Delete(ctx context.Context, _ string, _ api.Condition) error { return never(ctx) }

func (silent) Owners(string) []string { return nil }

func (silent) Waiting(string, int) []api.Waiting { return nil }

func (silent) Workers(ctx context.Context) ([]api.Worker, error) { return nil, never(ctx) }

func (silent) Leader(ctx context.Context) (string, uint64, error) { return "", 0, never(ctx) }

func TestAway_RequestsFailWithinSeconds(t *testing.T) {
	for request, patience := range map[string]time.Duration{
		"GET /work": 3 * time.Second, "POST /work": 3 * time.Second, "GET /work/a": 3 * time.Second,
		"PUT /work/a": 3 * time.Second, "DELETE /work/a": 3 * time.Second, "GET /workers": 3 * time.Second,
		"GET /readyz": time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			handler := api.New(api.Config{Tasks: silent{}, Cluster: silent{}, Metrics: http.NotFoundHandler(), Hosts: []string{"example.com"}})
			method, target, _ := strings.Cut(request, " ")
			recorder := httptest.NewRecorder()
			began := time.Now()
			handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader("x")))
			require.Equal(t, http.StatusServiceUnavailable, recorder.Code, request)
			require.Contains(t, recorder.Body.String(), "does not answer")
			require.Equal(t, "1", recorder.Header().Get("Retry-After"))
			require.Equal(t, patience, time.Since(began), request)
		})
	}
}
