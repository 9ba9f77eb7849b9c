package e2e_test

import (
	"flag"
	"testing"

	"github.com/f8949c05/orchestrator/internal/proctest"
)

var (
	rounds = flag.Int("proof.rounds", 3, "number of `rounds` of faults in the longest test")
	seed   = flag.Uint64("proof.seed", 1, "seed of the random faults")
)

const (
	managerRole = "manager"
	workerRole  = "worker"
)

func TestMain(m *testing.M) {
	proctest.Main(m, map[string]func(string) error{managerRole: runManager, workerRole: runWorker})
}

// The kinds of events of this package.
const (
	serves     = "serves"      // a manager can be reached from now on
	leads      = "leads"       // a manager has run its first term
	found      = "found"       // a starting manager found a completion in the store
	recorded   = "recorded"    // a completion was saved
	forgotten  = "forgotten"   // a completion was deleted
	did        = "did"         // a task has completed
	checked    = "check"       // the result of worker.Check after a pause
	lastResort = "last resort" // a worker's process ends itself
)
