package wiretest_test

import (
	"testing"

	"github.com/f8949c05/orchestrator/wire"
	"github.com/f8949c05/orchestrator/wire/memory"
	"github.com/f8949c05/orchestrator/wire/wiretest"
)

// store returns a table in memory for the kit.
func store(table *memory.Table, b wire.Backend) wiretest.Store {
	return wiretest.Store{
		Open:     func() wire.Backend { return b },
		Recreate: table.Truncate,
		Drop:     func(id uint64) { table.Edit(func(r *memory.Records) { clear(r.Members[id].Orders) }) },
	}
}

// A backend's test. TestBackend is a test function of the backend's package.
func ExampleRun() {
	TestBackend := func(t *testing.T) {
		wiretest.Run(t, func(*testing.T) wiretest.Store {
			table := memory.New()
			return wiretest.Store{Open: func() wire.Backend { return table }, Recreate: table.Truncate}
		})
	}
	_ = TestBackend
	// Output:
}

func TestMemory(t *testing.T) {
	wiretest.Run(t, func(*testing.T) wiretest.Store {
		table := memory.New()
		return store(table, table)
	})
}

func TestMemory_Piecewise(t *testing.T) {
	wiretest.Run(t, func(*testing.T) wiretest.Store {
		table := memory.NewPiecewise()
		return store(table, table)
	})
}
