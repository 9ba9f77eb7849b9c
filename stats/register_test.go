package stats_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/stats"
)

func TestRegisterTwiceGivesTheSameCollector(t *testing.T) {
	labelled := prometheus.WrapRegistererWith(prometheus.Labels{"team": "infra"}, prometheus.NewRegistry())
	for name, reg := range map[string]prometheus.Registerer{"plain": prometheus.NewRegistry(), "wrapped": labelled} {
		t.Run(name, func(t *testing.T) {
			first, err := stats.Register(reg)
			require.NoError(t, err)
			first.Observe(orchestrator.TermStats{})

			second, err := stats.Register(reg)
			require.NoError(t, err)
			require.Same(t, first, second, "the counts continue")

			require.True(t, reg.Unregister(second))
			third, err := stats.Register(reg)
			require.NoError(t, err)
			require.NotSame(t, first, third, "after Unregister, counts start at zero")
		})
	}
}

func TestRegisteringACollectorTwiceIsWhatPrometheusSaysItIs(t *testing.T) {
	reg := prometheus.NewRegistry()
	first := stats.NewCollector()
	require.NoError(t, reg.Register(first))

	var already prometheus.AlreadyRegisteredError
	require.ErrorAs(t, reg.Register(first), &already)
	require.Same(t, first, already.ExistingCollector)
	require.ErrorAs(t, reg.Register(stats.NewCollector()), &already)
	require.Same(t, first, already.ExistingCollector)
}

func TestTwoOrchestratorsInOneProcess(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	labels := prometheus.Labels{"fleet": "pollers"}
	pollers, err := stats.Register(reg, stats.WithConstLabels(labels))
	require.NoError(t, err)
	labels["fleet"] = "readers" // the option took a copy
	readers, err := stats.Register(reg, stats.WithConstLabels(labels))
	require.NoError(t, err)
	require.NotSame(t, pollers, readers)

	pollers.Observe(orchestrator.TermStats{Workers: orchestrator.WorkerStats{Stuck: 1}})
	readers.Observe(orchestrator.TermStats{Workers: orchestrator.WorkerStats{Stuck: 2}})

	const want = `
# HELP orchestrator_stuck_calls Calls to workers that outlived their deadline and have not returned.
# TYPE orchestrator_stuck_calls gauge
orchestrator_stuck_calls{fleet="pollers"} 1
orchestrator_stuck_calls{fleet="readers"} 2
`
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(want), "orchestrator_stuck_calls"))
}

func TestRegisterReportsWhatCannotBe(t *testing.T) {
	t.Run("a label of the metrics' own", func(t *testing.T) {
		c, err := stats.Register(prometheus.NewRegistry(), stats.WithConstLabels(prometheus.Labels{"op": "x"}))
		require.ErrorContains(t, err, "stats: register: ")
		require.Nil(t, c)
	})
	t.Run("a reserved label name", func(t *testing.T) {
		_, err := stats.Register(prometheus.NewRegistry(), stats.WithConstLabels(prometheus.Labels{"__x": "x"}))
		require.ErrorContains(t, err, "__x")
	})
	t.Run("a label on one collector only", func(t *testing.T) {
		reg := prometheus.NewRegistry()
		_, err := stats.Register(reg)
		require.NoError(t, err)
		_, err = stats.Register(reg, stats.WithConstLabels(prometheus.Labels{"fleet": "readers"}))
		require.ErrorContains(t, err, "different label names")
	})
}
