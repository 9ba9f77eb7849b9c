package stats

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f8949c05/orchestrator/replica"
)

// RegisterReplica registers with reg a collector for a replica. Each scrape calls get, from
// any goroutine. It returns the collector. Use [WithConstLabels] for two replicas in one process.
// It is an error if the labels are already in use, or if reg or get is nil.
//
//	stats.RegisterReplica(reg, r.Status)
func RegisterReplica(reg prometheus.Registerer, get func() replica.Status, opts ...Option) (prometheus.Collector, error) {
	const doing = "stats: register replica"
	if get == nil {
		return nil, errors.New(doing + ": the function is nil")
	}
	type status struct {
		replica.Status
		alive int
		tasks taskCounts
	}
	return register(reg, doing, &reader[*status]{newTable("orchestrator_", opts, append(
		taskMetrics("replica", func(s *status) *taskCounts { return &s.tasks }, "queued", "starting", "running", "backoff", "stopping"),
		metric[*status]{"replica_leading", "1 while the replica leads.", nil, one(func(s *status) float64 { return indicator(s.Leading) })},
		metric[*status]{"replica_epoch", "Epoch of the last election that the replica has seen.", nil, one(func(s *status) uint64 { return s.Epoch })},
		metric[*status]{"replica_members", "Replicas that are alive, as this one sees them.", nil, one(func(s *status) int { return s.alive })},
		metric[*status]{"replica_source_failing_seconds", "How long the Source has not answered, that of the leader included; 0 if it answers.", nil, one(func(s *status) float64 { return age(s.Source.Failing) })},
		metric[*status]{"replica_braked_tasks", "Tasks that stay although the Source lacks them, because it lacks most; only a leader knows them.", nil, one(func(s *status) int { return s.Source.Kept })},
		metric[*status]{"replica_bad_rows", "Rows of the last answer of the Source that do not count; only a leader knows them.", nil, one(func(s *status) int { return len(s.BadRows) })},
		metric[*status]{"replica_lease_left_seconds", "How long the replica runs its tasks without a further Sync; 0 without a lease.", nil, one(func(s *status) float64 { return s.Lease.Seconds() })},
		metric[*status]{"replica_last_sync_timestamp_seconds", "When the last Sync succeeded, since the Unix epoch; 0 if none has.", nil, one(func(s *status) float64 { return float64(max(s.Synced.UnixMilli(), 0)) / 1000 })},
		metric[*status]{"replica_syncs_total", "Syncs with the table, by result.", []string{"result"}, func(s *status, to *scrape) {
			to.put(float64(s.Syncs), "ok")
			to.put(float64(s.FailedSyncs), "failed")
		}},
		metric[*status]{"replica_sync_seconds_total", "Total duration of all Syncs.", nil, one(func(s *status) float64 { return s.SyncTime.Seconds() })},
		metric[*status]{"replica_elections_total", "Elections that the replica has won.", nil, one(func(s *status) uint64 { return s.Elections })},
		metric[*status]{"replica_rejoins_total", "Rejoins of the replica, such as after a lost lease.", nil, one(func(s *status) uint64 { return s.Rejoins })},
		metric[*status]{"replica_failed_runs_total", "Runs of the replica's tasks that failed.", nil, one(func(s *status) uint64 { return s.FailedRuns })},
	)...), func() *status {
		s := &status{Status: get()}
		for i := range s.Members {
			if !s.Members[i].Dead {
				s.alive++
			}
		}
		for i := range s.Tasks {
			s.tasks.add(s.Tasks[i].State, s.Tasks[i].Attempts, s.Tasks[i].Failing)
		}
		return s
	}})
}
