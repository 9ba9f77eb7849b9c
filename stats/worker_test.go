package stats_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/stats"
	"github.com/f8949c05/orchestrator/worker"
)

func TestW5_EveryFigureOfAWorkersLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := worker.New(func(context.Context, string) error { return errors.New("no disk") }, worker.WithLease(20*time.Second, 3*time.Second))
		require.NoError(t, err)
		defer func() { require.NoError(t, w.Close(t.Context())) }()
		registry := prometheus.NewPedanticRegistry()
		collector, err := stats.RegisterWorker(registry, w)
		require.NoError(t, err)
		w.Sending()
		w.EndLease(nil)
		require.NoError(t, w.Rejoin(t.Context()))
		w.Sending()()
		time.Sleep(5 * time.Second)
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == "orchestrator_worker_lease_left_seconds" {
				require.InDelta(t, 10, f.GetMetric()[0].GetGauge().GetValue(), 0.5, "the lease also reads a real clock, outside the bubble")
			}
		}
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP orchestrator_worker_keepalives_acknowledged_total Requests for the worker's lease that were acknowledged.
# TYPE orchestrator_worker_keepalives_acknowledged_total counter
orchestrator_worker_keepalives_acknowledged_total 1
# HELP orchestrator_worker_keepalives_sent_total Requests for the worker's lease.
# TYPE orchestrator_worker_keepalives_sent_total counter
orchestrator_worker_keepalives_sent_total 2
# HELP orchestrator_worker_rejoins_total Rejoins of the worker, such as after a lost lease.
# TYPE orchestrator_worker_rejoins_total counter
orchestrator_worker_rejoins_total 1
`), "orchestrator_worker_keepalives_acknowledged_total", "orchestrator_worker_keepalives_sent_total", "orchestrator_worker_rejoins_total"))
		require.Len(t, families, 8)
		require.NoError(t, w.Add(t.Context(), "crashes"))
		w.Sending()()
		time.Sleep(8 * time.Second)
		require.GreaterOrEqual(t, w.FailedRuns(), uint64(3))
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(fmt.Sprintf(`
# HELP orchestrator_worker_failed_runs_total Runs of the worker's tasks that failed.
# TYPE orchestrator_worker_failed_runs_total counter
orchestrator_worker_failed_runs_total %d
`, w.FailedRuns())), "orchestrator_worker_failed_runs_total"))
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP orchestrator_worker_failing_seconds How long the first of the failing tasks of the worker has been failing; 0 without any.
# TYPE orchestrator_worker_failing_seconds gauge
orchestrator_worker_failing_seconds 8
# HELP orchestrator_worker_failing_tasks Tasks of the worker that have failed three times in a row or more.
# TYPE orchestrator_worker_failing_tasks gauge
orchestrator_worker_failing_tasks 1
# HELP orchestrator_worker_tasks Tasks of the worker, by state.
# TYPE orchestrator_worker_tasks gauge
orchestrator_worker_tasks{state="backoff"} 1
orchestrator_worker_tasks{state="completed"} 0
orchestrator_worker_tasks{state="failed"} 0
orchestrator_worker_tasks{state="queued"} 0
orchestrator_worker_tasks{state="running"} 0
orchestrator_worker_tasks{state="starting"} 0
orchestrator_worker_tasks{state="stopping"} 0
`), "orchestrator_worker_failing_seconds", "orchestrator_worker_failing_tasks", "orchestrator_worker_tasks"))

		_, err = stats.RegisterWorker(registry, w)
		require.ErrorContains(t, err, "labels already in use")
		require.True(t, registry.Unregister(collector))
		both := prometheus.NewPedanticRegistry()
		for _, name := range []string{"a", "b"} {
			_, err = stats.RegisterWorker(both, w, stats.WithConstLabels(prometheus.Labels{"worker": name}))
			require.NoError(t, err)
		}
		_, err = stats.RegisterWorker(nil, w)
		require.ErrorContains(t, err, "Registerer is nil")
		_, err = stats.RegisterWorker[string](registry, nil)
		require.ErrorContains(t, err, "Worker is nil")
	})
}

type manager struct{}

func (manager) MemberCount() int { return 3 }

func (manager) RefusedCalls() map[string]uint64 {
	return map[string]uint64{"NotFound": 2, "AlreadyExists": 0}
}

func TestR2_EveryFigureOfAManager(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	_, err := stats.RegisterManager(registry, manager{})
	require.NoError(t, err)
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP orchestrator_manager_members Workers that are members.
# TYPE orchestrator_manager_members gauge
orchestrator_manager_members 3
# HELP orchestrator_manager_refused_calls_total Calls of workers that the manager refused, by cause.
# TYPE orchestrator_manager_refused_calls_total counter
orchestrator_manager_refused_calls_total{cause="AlreadyExists"} 0
orchestrator_manager_refused_calls_total{cause="NotFound"} 2
`)))
	_, err = stats.RegisterManager(registry, nil)
	require.ErrorContains(t, err, "Manager is nil")
	_, err = stats.RegisterManager(nil, manager{})
	require.ErrorContains(t, err, "Registerer is nil")
	_, err = stats.RegisterManager(registry, manager{})
	require.ErrorContains(t, err, "labels already in use")
}
