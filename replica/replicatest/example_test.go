package replicatest_test

import (
	"testing"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
	"github.com/f8949c05/orchestrator/replica/replicatest"
)

// A backend's test. TestBackend is a test function of the backend's package.
func ExampleRun() {
	TestBackend := func(t *testing.T) {
		replicatest.Run(t, func(*testing.T) replicatest.Store {
			table := memory.New()
			return replicatest.Store{
				Open:     func() replica.Backend { return table },
				Recreate: func() { table.Restore(memory.New().Backup()) },
			}
		})
	}
	_ = TestBackend
	// Output:
}
