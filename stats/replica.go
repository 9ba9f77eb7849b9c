package stats

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ReplicaStats has the figures of a replica. A Stats of package replica, which has their
// meaning, converts to it.
type ReplicaStats struct {
	Leading              bool
	Epoch                uint64
	Members              int
	Tasks                int
	LeaseLeft            time.Duration
	LastSync             time.Time
	Syncs, FailedSyncs   uint64
	SyncTime             time.Duration
	Elections            uint64
	Retirements, Retired uint64
	Rejoins              uint64
}

// RegisterReplica registers with reg a collector for a replica. Each scrape calls read,
// from any goroutine. It returns the collector. Use [WithConstLabels] for two replicas in
// one process. It is an error if the labels are already in use, or if reg or read is nil.
//
//	stats.RegisterReplica(reg, func() stats.ReplicaStats { return stats.ReplicaStats(r.Stats()) })
func RegisterReplica(reg prometheus.Registerer, read func() ReplicaStats, opts ...Option) (prometheus.Collector, error) {
	const doing = "stats: register replica"
	if read == nil {
		return nil, errors.New(doing + ": the function is nil")
	}
	f := figures{constLabels: optionsOf(opts).constLabels}
	leading := f.gauge("replica_leading", "1 while the replica leads.")
	epoch := f.gauge("replica_epoch", "Epoch of the last election that the replica has seen.")
	members := f.gauge("replica_members", "Replicas that are alive, as this one sees them.")
	tasks := f.gauge("replica_tasks", "Tasks of the replica.")
	left := f.gauge("replica_lease_left_seconds", "How long the replica runs its tasks without a further Sync; 0 without a lease.")
	last := f.gauge("replica_last_sync_timestamp_seconds", "When the last Sync succeeded, since the Unix epoch; 0 if none has.")
	syncs := f.counter("replica_syncs_total", "Syncs with the table, by result.", "result")
	took := f.counter("replica_sync_seconds_total", "Total duration of all Syncs.")
	elections := f.counter("replica_elections_total", "Elections that the replica has won.")
	retirements := f.counter("replica_retirements_total", "Replicas that this one has retired because it could not call them.")
	retired := f.counter("replica_retired_total", "How often the replica was retired because the leader could not call it.")
	rejoins := f.counter("replica_rejoins_total", "Rejoins of the replica, such as after a lost lease.")
	f.collect = func(emit emitter) {
		s := read()
		emit(leading, indicator(s.Leading))
		emit(epoch, float64(s.Epoch))
		emit(members, float64(s.Members))
		emit(tasks, float64(s.Tasks))
		emit(left, s.LeaseLeft.Seconds())
		at := 0.0
		if !s.LastSync.IsZero() {
			at = float64(s.LastSync.UnixMilli()) / 1000
		}
		emit(last, at)
		emit(syncs, float64(s.Syncs), "ok")
		emit(syncs, float64(s.FailedSyncs), "failed")
		emit(took, s.SyncTime.Seconds())
		emit(elections, float64(s.Elections))
		emit(retirements, float64(s.Retirements))
		emit(retired, float64(s.Retired))
		emit(rejoins, float64(s.Rejoins))
	}
	return f.register(reg, doing)
}
