package stats

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f8949c05/orchestrator/replica"
)

// RegisterReplica registers with reg a collector for a replica. Each scrape calls status, from
// any goroutine. It returns the collector. Use [WithConstLabels] for two replicas in one process.
// It is an error if the labels are already in use, or if reg or status is nil.
//
//	stats.RegisterReplica(reg, r.Status)
func RegisterReplica(reg prometheus.Registerer, status func() replica.Status, opts ...Option) (prometheus.Collector, error) {
	const doing = "stats: register replica"
	if status == nil {
		return nil, errors.New(doing + ": the function is nil")
	}
	f := figures{constLabels: optionsOf(opts).constLabels}
	leading := f.gauge("replica_leading", "1 while the replica leads.")
	epoch := f.gauge("replica_epoch", "Epoch of the last election that the replica has seen.")
	members := f.gauge("replica_members", "Replicas that are alive, as this one sees them.")
	tasks := f.tasks("replica", "queued", "starting", "running", "backoff", "stopping")
	failing := f.gauge("replica_source_failing_seconds", "How long the Source has not answered, that of the leader included; 0 if it answers.")
	kept := f.gauge("replica_braked_tasks", "Tasks that stay although the Source lacks them, because it lacks most; only a leader knows them.")
	bad := f.gauge("replica_bad_rows", "Rows of the last answer of the Source that do not count; only a leader knows them.")
	left := f.gauge("replica_lease_left_seconds", "How long the replica runs its tasks without a further Sync; 0 without a lease.")
	last := f.gauge("replica_last_sync_timestamp_seconds", "When the last Sync succeeded, since the Unix epoch; 0 if none has.")
	syncs := f.counter("replica_syncs_total", "Syncs with the table, by result.", "result")
	took := f.counter("replica_sync_seconds_total", "Total duration of all Syncs.")
	elections := f.counter("replica_elections_total", "Elections that the replica has won.")
	rejoins := f.counter("replica_rejoins_total", "Rejoins of the replica, such as after a lost lease.")
	f.collect = func(emit emitter) {
		s := status()
		emit(leading, indicator(s.Leading))
		emit(epoch, float64(s.Epoch))
		alive, all := 0, &taskCounts{in: make(map[string]int)}
		for i := range s.Members {
			if !s.Members[i].Dead {
				alive++
			}
		}
		for i := range s.Tasks {
			all.add(s.Tasks[i].State, s.Tasks[i].Attempts, s.Tasks[i].Failing)
		}
		emit(members, float64(alive))
		tasks.emit(emit, all)
		emit(failing, age(s.Source.Failing))
		emit(kept, float64(s.Source.Kept))
		emit(bad, float64(len(s.BadRows)))
		emit(left, s.Lease.Seconds())
		at := 0.0
		if !s.Synced.IsZero() {
			at = float64(s.Synced.UnixMilli()) / 1000
		}
		emit(last, at)
		emit(syncs, float64(s.Syncs), "ok")
		emit(syncs, float64(s.FailedSyncs), "failed")
		emit(took, s.SyncTime.Seconds())
		emit(elections, float64(s.Elections))
		emit(rejoins, float64(s.Rejoins))
	}
	return f.register(reg, doing)
}
