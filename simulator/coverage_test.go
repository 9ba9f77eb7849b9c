package simulator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/communicatortest"
	"github.com/f8949c05/orchestrator/simulator"
)

// Everything that a run may contain is in many of them.
func TestRun_EverythingHappens(t *testing.T) {
	var total simulator.Report
	for seed := range uint64(300) {
		report, err := simulator.Run(t, seed, simulator.Settings{})
		require.NoError(t, err)
		total.Add(report)
	}
	const often = 50
	for kind := communicatortest.Refusal; kind <= communicatortest.Stuck; kind++ {
		require.Greater(t, total.Faults[kind.String()], often, "%v", kind)
	}
	for kind := simulator.Crash; kind <= simulator.Redefinition; kind++ {
		require.Greater(t, total.Faults[kind.String()], often, "%v", kind)
	}
	for _, fault := range []string{
		"lies told", "slow to be ready", "slow to stop",
		"start of a poison task refused", "start refused by a broken worker",
	} {
		require.Greater(t, total.Faults[fault], often, fault)
	}
	require.Positive(t, total.Overlaps[simulator.UnfencedLost])
	require.Positive(t, total.Overlaps[simulator.StartFirst])
	require.Positive(t, total.Overlaps[simulator.LiedTo])
	require.Greater(t, total.Refused, often)
	require.Greater(t, total.Plans, often)
	require.Greater(t, total.PlansKept, often)
	require.Greater(t, total.Leaders, 2*total.Runs)
	require.GreaterOrEqual(t, total.Terms, 30*total.Runs)
	require.Equal(t, 300, total.Runs)
}

// Where workers fence themselves nothing is lost, and where nobody lies and
// nothing is started first nothing runs twice but what did before.
func TestRun_NeverTwice(t *testing.T) {
	for seed := range uint64(100) {
		report, err := simulator.Run(t, seed, simulator.Settings{
			Membership: simulator.Leases,
			Without:    []simulator.Trouble{simulator.Lies},
		})
		require.NoError(t, err)
		require.Zero(t, report.Overlaps[simulator.UnfencedLost])
		require.Zero(t, report.Overlaps[simulator.LiedTo])
	}
}

// What is fixed is not drawn.
func TestRun_Settings(t *testing.T) {
	all := make([]simulator.Trouble, 0)
	for kind := simulator.Crash; kind <= simulator.Redefinition; kind++ {
		all = append(all, kind)
	}
	report, err := simulator.Run(t, 1, simulator.Settings{
		Terms: 50, Workers: 3, Tasks: 7, Without: all, Network: &communicatortest.Schedule{},
	})
	require.NoError(t, err)
	require.GreaterOrEqual(t, report.Terms, 50)
	require.Equal(t, 1, report.Leaders)
	for _, kind := range all {
		require.Zero(t, report.Faults[kind.String()], "%v", kind)
	}

	_, err = simulator.Run(t, 1, simulator.Settings{
		Terms: -1, Workers: 13, Tasks: -1, Timeout: time.Millisecond, Grace: time.Second, MaxMoves: -3, Membership: 9,
		Network: &communicatortest.Schedule{Span: 1, Partition: 2},
	})
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	for _, field := range []string{"Terms", "Workers", "Tasks", "Timeout", "Grace", "MaxMoves", "Membership", "Partition"} {
		require.ErrorContains(t, err, field)
	}
}
