package memory_test

import (
	"testing"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
	"github.com/f8949c05/orchestrator/replica/replicatest"
)

func TestConformance(t *testing.T) {
	replicatest.Run(t, func(*testing.T) replicatest.Store {
		table := memory.New()
		return replicatest.Store{
			Open:     func() replica.Backend { return table },
			Recreate: func() { table.Restore(memory.New().Backup()) },
		}
	})
}
