package simulator_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/simulator"
)

// counting is a user's layer that counts List calls. It does not implement Applier,
// so each write is a separate call.
type counting struct {
	orchestrator.Communicator[string, string]
	lists *atomic.Int64
}

func (c counting) List(ctx context.Context, worker string) ([]string, error) {
	c.lists.Add(1)
	return c.Communicator.List(ctx, worker)
}

// A test that checks the user's Communicator in a hundred runs.
func ExampleRun() {
	_ = func(t *testing.T) {
		var lists atomic.Int64
		settings := simulator.Settings{
			Membership: simulator.Leases,
			Wrap: func(workers orchestrator.Communicator[string, string]) orchestrator.Communicator[string, string] {
				return counting{workers, &lists}
			},
		}
		for seed := range uint64(100) {
			if _, err := simulator.Run(t, seed, settings); err != nil {
				t.Fatal(err)
			}
		}
	}
}
