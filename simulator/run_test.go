package simulator_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/communicatortest"
	"github.com/f8949c05/orchestrator/simulator"
)

// Each kind of event occurs in many runs.
func TestRun_EverythingHappens(t *testing.T) {
	var total simulator.Report
	for seed := range uint64(200) {
		report, err := simulator.Run(t, seed, simulator.Settings{})
		require.NoError(t, err)
		total.Add(report)
	}
	const often = 25
	for kind := communicatortest.Refusal; kind <= communicatortest.Stuck; kind++ {
		require.Greater(t, total.Faults[kind.String()], often, "%v", kind)
	}
	for kind := simulator.Crash; kind <= simulator.Redefinition; kind++ {
		require.Greater(t, total.Faults[kind.String()], often, "%v", kind)
	}
	for kind := simulator.Relabel; kind <= simulator.ZoneChange; kind++ { // in runs with rules
		require.Greater(t, total.Faults[kind.String()], 10, "%v", kind)
	}
	for _, fault := range []string{
		"false list", "slow to be ready", "slow to stop",
		"start of a poison task refused", "start refused by a broken worker", "start refused in an outage",
		"slow List", "hanging add",
	} {
		require.Greater(t, total.Faults[fault], often, fault)
	}
	require.Positive(t, total.Faults["stop of a stuck task refused"]) // the planner moves others first
	require.Positive(t, total.Overlaps[simulator.UnfencedLost])
	require.Positive(t, total.Overlaps[simulator.StartFirst])
	require.Positive(t, total.Overlaps[simulator.FalseList])
	require.Greater(t, total.Faults["write refused by a fence"], often)
	require.Greater(t, total.Plans, often)
	require.Greater(t, total.PlansCompared, often)
	require.Greater(t, total.DryRuns, often)
	for _, kind := range []simulator.Event{
		simulator.BrokenWorker, simulator.HangingWorker, simulator.SlowLists,
		simulator.PoisonTask, simulator.HangingTask, simulator.StuckTask, simulator.Outage,
	} {
		require.Greater(t, total.Faults["lasting "+kind.String()], 5, "%v", kind)
	}
	require.Greater(t, total.Leaders, 2*total.Runs)
	require.GreaterOrEqual(t, total.Terms, 30*total.Runs)
	require.Equal(t, 200, total.Runs)
}

// If workers fence themselves, none is declared lost. Without false lists and moves that
// start first, no task runs twice that did not before.
func TestRun_Exclusive(t *testing.T) {
	for seed := range uint64(60) {
		report, err := simulator.Run(t, seed, simulator.Settings{
			Membership: simulator.Leases,
			Without:    []simulator.Event{simulator.FalseLists},
		})
		require.NoError(t, err)
		require.Zero(t, report.Overlaps[simulator.UnfencedLost])
		require.Zero(t, report.Overlaps[simulator.FalseList])
	}
}

// Fixed settings are not drawn.
func TestRun_Settings(t *testing.T) {
	all := make([]simulator.Event, 0)
	for kind := simulator.Crash; kind <= simulator.ZoneChange; kind++ {
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
		Terms: -1, Workers: 257, Tasks: -1, Timeout: time.Millisecond, Grace: time.Second, MaxMoves: -3, Membership: 9, Rules: 3,
		Network: &communicatortest.Schedule{Span: 1, Partition: 2},
	})
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	for _, field := range []string{"Terms", "Workers", "Tasks", "Timeout", "Grace", "MaxMoves", "Membership", "Rules", "Partition"} {
		require.ErrorContains(t, err, field)
	}
}

// The same seed gives the same transcript, byte for byte, on any number of
// processors.
func TestRun_IsRepeatable(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	transcript := func(seed uint64) string {
		var b bytes.Buffer
		report, err := simulator.Run(t, seed, simulator.Settings{Transcript: &b})
		require.NoError(t, err)
		_, _ = fmt.Fprintf(&b, "%+v", *report)
		return b.String()
	}
	check := func(seed uint64, times int) {
		runtime.GOMAXPROCS(1)
		want := transcript(seed)
		for _, processors := range []int{2, 8} {
			runtime.GOMAXPROCS(processors)
			for range times {
				if got := transcript(seed); got != want {
					require.Equal(t, want, got, "seed %d, %d processors", seed, processors)
				}
			}
		}
	}
	for seed := range uint64(*schedules / 10) {
		check(seed, 1)
	}
	check(1065, 20) // a leader removes tasks while an Apply of its predecessor waits for them to start
}

// A deposed leader does not learn of its deposition, because List fails every other
// time. It starts tasks again that its successor has moved from a worker that has
// left.
func TestSimulate_UnawareLeader(t *testing.T) {
	report, err := simulator.Run(t, 4779, simulator.Settings{
		Membership: simulator.Leases, Workers: 4, Tasks: 3, Terms: 60,
		Network: &communicatortest.Schedule{List: communicatortest.Rates{Failure: 0.5}},
		Without: []simulator.Event{
			simulator.FalseLists, simulator.BrokenWorker, simulator.PoisonTask, simulator.Slowness, simulator.LeaderCrash,
			simulator.Deploy, simulator.NewTask, simulator.DropTask, simulator.Redefinition,
			simulator.SlowLists, simulator.HangingWorker, simulator.HangingTask, simulator.StuckTask, simulator.Outage,
		},
	})
	require.NoError(t, err)
	require.Equal(t, 1, report.Overlaps[simulator.UnawareLeader])
}
