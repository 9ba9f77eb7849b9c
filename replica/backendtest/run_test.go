package backendtest_test

import (
	"testing"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/backendtest"
	"github.com/f8949c05/orchestrator/replica/memory"
)

// store returns a table in memory for the kit.
func store(table *memory.Table, b replica.Backend) backendtest.Store {
	return backendtest.Store{
		Open:     func() replica.Backend { return b },
		Recreate: table.Truncate,
		Drop:     func(id uint64) { table.Edit(func(r *memory.Records) { clear(r.Members[id].Orders) }) },
	}
}

// A backend's test. TestBackend is a test function of the backend's package.
func ExampleRun() {
	TestBackend := func(t *testing.T) {
		backendtest.Run(t, func(*testing.T) backendtest.Store {
			table := memory.New()
			return backendtest.Store{Open: func() replica.Backend { return table }, Recreate: table.Truncate}
		})
	}
	_ = TestBackend
	// Output:
}

func TestMemory(t *testing.T) {
	backendtest.Run(t, func(*testing.T) backendtest.Store {
		table := memory.New()
		return store(table, table)
	})
}

func TestMemory_Piecewise(t *testing.T) {
	backendtest.Run(t, func(*testing.T) backendtest.Store {
		table := memory.NewPiecewise()
		return store(table, table)
	})
}
