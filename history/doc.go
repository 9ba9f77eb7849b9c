// Package history keeps what the terms of an orchestrator did: a [Ring] in memory, from
// which a dashboard reads, and a log file, from which [Open] makes the same ring again.
//
//	ring, err := history.New(history.WithFile("/var/lib/fleet/terms.log", 0, 0))
//	…
//	defer ring.Close()
//	stop := history.Record(ring, o)
//	defer stop()
//
// # What it keeps
//
// A ring keeps 1000 terms, unless [WithTerms] says otherwise. A term without changes that
// found the fleet as the term before is quiet. Quiet terms are only counted ([Quiet]). Of
// another term the ring keeps the statistics, up to 10,000 changes, the workers that came,
// went, fell silent, drained or were quarantined, and the first hundred entries of what
// waits and of what pauses; see [Term]. The changes and events of all terms are at most
// 100,000 ([WithChanges]). For each worker, the ring keeps the last 256 changes of its
// number of tasks. It forgets a removed worker with the term that removed it, or after 10,000
// later removals.
//
// The terms of a new leader follow those of the leader before, if it is recorded into the
// same ring. They have another epoch.
//
// # Reading
//
// [Ring.View] returns the history at one moment. A view does not change, so its terms,
// changes and loads agree, and readers do not delay a term.
//
// # Cost
//
// Recording happens at the end of a term, in its goroutine. At 10,000 workers with a million
// tasks, a quiet term takes 0.15 ms and allocates nothing, and the term that starts all
// tasks takes 12 ms. The file is written by another goroutine. If the disk is slow or full,
// the ring continues without it; [Ring.LogStatus] and the logger say so, and the notes of
// [Open] say how many terms the file lacks.
package history
