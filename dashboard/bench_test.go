package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard"
)

// lists answers with fixed lists of tasks, and acknowledges every write.
type lists map[string][]string

func (l lists) List(_ context.Context, worker string) ([]string, error) {
	if tasks, ok := l[worker]; ok {
		return tasks, nil
	}
	return nil, fmt.Errorf("dial tcp 10.0.0.%d:7070: connect: connection refused", len(worker))
}
func (l lists) Add(context.Context, string, string) error    { return nil }
func (l lists) Remove(context.Context, string, string) error { return nil }

// newLarge returns a dashboard of a large fleet after one term: with its tasks where they
// should be, or all started by the term, or after a second term in which workers are silent.
func newLarge(tb testing.TB, workers, tasks int, started, silent bool) (h *dashboard.Handler, o *orchestrator.Orchestrator[string, string]) {
	tb.Helper()
	comm := make(lists, workers)
	o, err := orchestrator.New(comm, orchestrator.WithSeed(1))
	require.NoError(tb, err)
	for i := range workers {
		name := fmt.Sprintf("worker-%05d", i)
		comm[name] = nil
		require.NoError(tb, o.AddWorker(name))
	}
	expected := make([]orchestrator.Task[string], tasks)
	for i := range tasks {
		expected[i].Name = fmt.Sprintf("tenant-%07d", i)
		if worker := fmt.Sprintf("worker-%05d", i%workers); !started {
			comm[worker] = append(comm[worker], expected[i].Name)
		}
	}
	require.NoError(tb, o.UpdateTasks(expected))
	require.NoError(tb, o.NextTerm(tb.Context()))
	if silent {
		for i := range workers * 4 / 10 {
			delete(comm, fmt.Sprintf("worker-%05d", i))
		}
		_ = o.NextTerm(tb.Context())
	}
	h, err = dashboard.New()
	require.NoError(tb, err)
	tb.Cleanup(dashboard.Lead(h, o))
	return h, o
}

// largeRequests is a request for each route.
var largeRequests = []string{
	"status", "progress", "workers?limit=1000", "workers?q=99&sort=tasks", "worker?name=worker-00042",
	"tasks", "tasks?q=42&limit=1000", "tasks?waiting=any", "task?name=tenant-0999999", "what-if?drain=worker-00042", "settings",
}

// BenchmarkRoutes answers requests about 10,000 workers with a million tasks: the first one
// of a term, which computes what the others share, and later ones. The term changed nothing,
// or started all tasks, or found four workers in ten silent.
func BenchmarkRoutes(b *testing.B) {
	for _, term := range []string{"term=quiet", "term=starts", "term=silent"} {
		h, o := newLarge(b, 10_000, 1_000_000, term == "term=starts", term == "term=silent")
		for _, target := range largeRequests {
			for _, first := range []bool{true, false} {
				b.Run(fmt.Sprintf("%s/first=%v/%s", term, first, target), func(b *testing.B) {
					bytes, stop := 0, dashboard.Lead(h, o)
					defer func() { stop() }()
					for b.Loop() {
						if first {
							stop()
							stop = dashboard.Lead(h, o)
						}
						w := serve(h, request(http.MethodGet, "/api/v1/"+target))
						require.Equal(b, http.StatusOK, w.Code)
						bytes = w.Body.Len()
					}
					b.ReportMetric(float64(bytes), "bytes")
				})
			}
		}
	}
}
