package replica

import "time"

// Stats has the figures of a replica, for metrics. The counters rise from the call of
// Run on.
type Stats struct {
	// Leading reports that the replica leads. Epoch is that of the last election.
	Leading bool
	Epoch   uint64
	// Members counts the members that are alive, this replica included.
	Members int
	// Tasks counts the tasks of this replica.
	Tasks int
	// LeaseLeft is how long the replica runs its tasks without another Sync; 0 without a
	// lease.
	LeaseLeft time.Duration
	// LastSync is when the last Sync succeeded; zero: none has.
	LastSync time.Time

	// Syncs counts the Syncs that succeeded, FailedSyncs the others, and SyncTime is the
	// time that both took.
	Syncs, FailedSyncs uint64
	SyncTime           time.Duration
	// Elections counts the elections that this replica has won.
	Elections uint64
	// Retirements counts the replicas that this one has retired because it could not call
	// them, and Retired how often it was retired itself.
	Retirements, Retired uint64
	// Rejoins counts how often the replica has joined again under another ID.
	Rejoins uint64
}

// Stats returns the present figures. Package stats exports them to Prometheus:
//
//	stats.RegisterReplica(prometheus.DefaultRegisterer, func() stats.ReplicaStats { return stats.ReplicaStats(r.Stats()) })
//
// The figures of a leader's terms are those of its orchestrator: WithOrchestrator with
// orchestrator.WithStats.
func (r *Replica) Stats() Stats {
	r.public.mu.Lock()
	s, status := r.public.stats, &r.public.status
	s.Leading, s.Epoch, s.LastSync = status.Leading, status.Epoch, status.Synced
	for _, m := range status.Members {
		if !m.Dead {
			s.Members++
		}
	}
	r.public.mu.Unlock()
	lease := r.worker.LeaseStats()
	s.Tasks, s.LeaseLeft, s.Rejoins = len(r.worker.Status()), lease.Left, lease.Rejoins
	return s
}

// count changes the counters of the Stats.
func (p *published) count(change func(s *Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.stats)
}
