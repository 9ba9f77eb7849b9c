package main

import (
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/stats"
)

// The figures of a replica convert to those that package stats exports, which cannot
// import package replica.
var _ = stats.ReplicaStats(replica.Stats{})
