package simulator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/communicator/communicatortest"
	"github.com/f8949c05/orchestrator/simulator"
)

// A deposed leader that nobody tells, since List fails every other time, starts
// again what its successor has moved from a worker that has left.
func TestSimulate_Untold(t *testing.T) {
	report, err := simulator.Run(t, 188, simulator.Settings{
		Membership: simulator.Leases, Workers: 4, Tasks: 3, Terms: 60,
		Network: &communicatortest.Schedule{List: communicatortest.Rates{Failure: 0.5}},
		Without: []simulator.Trouble{
			simulator.Lies, simulator.BrokenWorker, simulator.PoisonTask, simulator.Slowness, simulator.LeaderCrash,
			simulator.Deploy, simulator.NewTask, simulator.DropTask, simulator.Redefinition,
		},
	})
	require.NoError(t, err)
	require.Equal(t, 1, report.Overlaps[simulator.Untold])
}
