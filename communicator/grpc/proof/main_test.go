package proof_test

import (
	"flag"
	"testing"

	"github.com/f8949c05/orchestrator/internal/trial"
)

var (
	rounds = flag.Int("proof.rounds", 10, "how many `rounds` of faults the longest test goes through")
	seed   = flag.Uint64("proof.seed", 1, "what the faults are drawn from")
)

const (
	managerRole = "manager"
	workerRole  = "worker"
)

func TestMain(m *testing.M) {
	trial.Main(m, map[string]func(string) error{managerRole: runManager, workerRole: runWorker})
}

// The kinds of event that are this package's own.
const (
	serves     = "serves"      // a manager can be heard from now on
	leads      = "leads"       // it has run its first term
	found      = "found"       // a completion was in the store when it started
	recorded   = "recorded"    // a completion was saved
	forgotten  = "forgotten"   // it was taken out
	did        = "did"         // a task has done all it had to
	checked    = "check"       // what worker.Check said, after a pause
	lastResort = "last resort" // a worker's process ends itself
)
