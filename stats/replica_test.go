package stats_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/stats"
)

func TestEveryFigureOfAReplica(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	s := replica.Status{}
	read := func() replica.Status { return s }
	collector, err := stats.RegisterReplica(registry, read)
	require.NoError(t, err)
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP orchestrator_replica_last_sync_timestamp_seconds When the last Sync succeeded, since the Unix epoch; 0 if none has.
# TYPE orchestrator_replica_last_sync_timestamp_seconds gauge
orchestrator_replica_last_sync_timestamp_seconds 0
`), "orchestrator_replica_last_sync_timestamp_seconds"))
	failing := time.Now().Add(-time.Hour)
	s = replica.Status{
		Leading: true, Epoch: 1 << 51, Members: []replica.MemberStatus{{}, {Dead: true}, {}, {}}, Lease: 12500 * time.Millisecond, Synced: time.UnixMilli(1700000000250),
		Tasks:    []replica.TaskStatus{{TaskState: replica.TaskState{State: "running"}}, {TaskState: replica.TaskState{State: "backoff", Attempts: 3, Failing: failing}}, {TaskState: replica.TaskState{State: "running"}}},
		Source:   replica.SourceStatus{Failing: failing, Kept: 7},
		BadRows:  map[string]string{"t": "no name"},
		Counters: replica.Counters{Syncs: 100, FailedSyncs: 2, SyncTime: 1500 * time.Millisecond, Elections: 4, Rejoins: 8, FailedRuns: 9},
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	var names []string
	for _, f := range families {
		if name := f.GetName(); strings.HasSuffix(name, "_failing_seconds") {
			require.InDelta(t, 3600, f.GetMetric()[0].GetGauge().GetValue(), 60, name)
		} else {
			names = append(names, name)
		}
	}
	require.Len(t, families, len(names)+2)
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP orchestrator_replica_bad_rows Rows of the last answer of the Source that do not count; only a leader knows them.
# TYPE orchestrator_replica_bad_rows gauge
orchestrator_replica_bad_rows 1
# HELP orchestrator_replica_braked_tasks Tasks that stay although the Source lacks them, because it lacks most; only a leader knows them.
# TYPE orchestrator_replica_braked_tasks gauge
orchestrator_replica_braked_tasks 7
# HELP orchestrator_replica_elections_total Elections that the replica has won.
# TYPE orchestrator_replica_elections_total counter
orchestrator_replica_elections_total 4
# HELP orchestrator_replica_epoch Epoch of the last election that the replica has seen.
# TYPE orchestrator_replica_epoch gauge
orchestrator_replica_epoch 2.251799813685248e+15
# HELP orchestrator_replica_failed_runs_total Runs of the replica's tasks that failed.
# TYPE orchestrator_replica_failed_runs_total counter
orchestrator_replica_failed_runs_total 9
# HELP orchestrator_replica_failing_tasks Tasks of the replica that have failed three times in a row or more.
# TYPE orchestrator_replica_failing_tasks gauge
orchestrator_replica_failing_tasks 1
# HELP orchestrator_replica_last_sync_timestamp_seconds When the last Sync succeeded, since the Unix epoch; 0 if none has.
# TYPE orchestrator_replica_last_sync_timestamp_seconds gauge
orchestrator_replica_last_sync_timestamp_seconds 1.70000000025e+09
# HELP orchestrator_replica_leading 1 while the replica leads.
# TYPE orchestrator_replica_leading gauge
orchestrator_replica_leading 1
# HELP orchestrator_replica_lease_left_seconds How long the replica runs its tasks without a further Sync; 0 without a lease.
# TYPE orchestrator_replica_lease_left_seconds gauge
orchestrator_replica_lease_left_seconds 12.5
# HELP orchestrator_replica_members Replicas that are alive, as this one sees them.
# TYPE orchestrator_replica_members gauge
orchestrator_replica_members 3
# HELP orchestrator_replica_rejoins_total Rejoins of the replica, such as after a lost lease.
# TYPE orchestrator_replica_rejoins_total counter
orchestrator_replica_rejoins_total 8
# HELP orchestrator_replica_sync_seconds_total Total duration of all Syncs.
# TYPE orchestrator_replica_sync_seconds_total counter
orchestrator_replica_sync_seconds_total 1.5
# HELP orchestrator_replica_syncs_total Syncs with the table, by result.
# TYPE orchestrator_replica_syncs_total counter
orchestrator_replica_syncs_total{result="failed"} 2
orchestrator_replica_syncs_total{result="ok"} 100
# HELP orchestrator_replica_tasks Tasks of the replica, by state.
# TYPE orchestrator_replica_tasks gauge
orchestrator_replica_tasks{state="backoff"} 1
orchestrator_replica_tasks{state="queued"} 0
orchestrator_replica_tasks{state="running"} 2
orchestrator_replica_tasks{state="starting"} 0
orchestrator_replica_tasks{state="stopping"} 0
`), names...))
	problems, err := testutil.CollectAndLint(collector)
	require.NoError(t, err)
	require.Empty(t, problems)

	_, err = stats.RegisterReplica(registry, read)
	require.ErrorContains(t, err, "labels already in use")
	_, err = stats.RegisterReplica(registry, read, stats.WithConstLabels(prometheus.Labels{"replica": "2"}))
	require.Error(t, err, "Prometheus requires the same label names")
	_, err = stats.RegisterReplica(nil, read)
	require.ErrorContains(t, err, "Registerer is nil")
	_, err = stats.RegisterReplica(registry, nil)
	require.ErrorContains(t, err, "the function is nil")
}
