package simulator_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/simulator"
)

// counting is a layer of one's own: here it only counts. It is not an Applier,
// so each write is a call of its own.
type counting struct {
	orchestrator.Communicator[string, string]
	lists *atomic.Int64
}

func (c counting) List(ctx context.Context, worker string) ([]string, error) {
	c.lists.Add(1)
	return c.Communicator.List(ctx, worker)
}

// A test that runs a Communicator of one's own through a hundred runs.
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
