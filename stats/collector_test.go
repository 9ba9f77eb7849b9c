package stats_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
	"github.com/f8949c05/orchestrator/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// busy returns a term in which every figure is set.
func busy() orchestrator.TermStats {
	return orchestrator.TermStats{
		Term:      orchestrator.Term{Epoch: 1_760_000_000_123, Number: 7},
		Start:     time.Unix(1_760_000_100, 0),
		Listing:   3 * time.Millisecond,
		Planning:  400 * time.Microsecond,
		Writing:   20 * time.Second,
		Total:     20*time.Second + 500*time.Millisecond,
		Workers:   orchestrator.WorkerStats{Answering: 10, Silent: 2, Lost: 1, Draining: 3, Late: 6, Quarantined: 4, Stuck: 5},
		Instances: orchestrator.InstanceStats{Wanted: 60, Running: 50, Held: 6, Missing: 4, Unplaceable: 1, Unexpected: 7, Duplicate: 8},
		Changes: map[orchestrator.ChangeKind]int{
			{Op: orchestrator.Start, Reason: orchestrator.ReasonLost}:     6,
			{Op: orchestrator.Move, Reason: orchestrator.ReasonRebalance}: 9,
		},
		StateChanges:  map[orchestrator.State]int{orchestrator.Silent: 2, orchestrator.Lost: 1, orchestrator.Answering: 3},
		Deferred:      11,
		MovesHeld:     17,
		EvictionsHeld: 16,
		Adds:          15,
		LowerBound:    13,
		Spread:        1,
		HighestLoad:   1.25,
		OutOfBand:     18,
		List:          orchestrator.CallStats{Done: 10, Timeout: 2, Failed: 1},
		Add: orchestrator.CallStats{
			Done: 12, Rejected: 2, Deposed: 1,
			Seconds: orchestrator.Durations{Count: 15, Sum: 60 * time.Second, Buckets: [16]uint64{2, 5, 0, 1}},
		},
		Remove:   orchestrator.CallStats{Done: 8, Stopping: 1},
		Apply:    orchestrator.CallStats{Done: 4},
		MassLoss: true,
		Outcomes: map[orchestrator.Outcome]int{orchestrator.OutcomeDone: 14, orchestrator.OutcomeReturned: 1},
		Err:      errors.New("something failed"),
	}
}

// calls returns the counter of calls in Prometheus' format. Those that are not given
// are zero.
func calls(counts map[string]int) string {
	const name = "orchestrator_calls_total"
	text := "# HELP " + name + " Calls to workers, by result; a write in an apply counts as its own op.\n# TYPE " + name + " counter\n"
	for _, op := range []string{"add", "apply", "list", "remove"} {
		for _, result := range []string{"deposed", "done", "failed", "rejected", "stopping", "timeout"} {
			text += fmt.Sprintf("%s{op=%q,result=%q} %d\n", name, op, result, counts[op+" "+result])
		}
	}
	return text
}

func TestCountersAddUpAndGaugesShowTheLatestTerm(t *testing.T) {
	c := stats.NewCollector()
	c.Observe(busy())
	c.Observe(busy())
	quiet := orchestrator.TermStats{
		Term:      orchestrator.Term{Epoch: 1_760_000_000_123, Number: 9},
		Start:     time.Unix(1_760_000_200, 0),
		Listing:   time.Millisecond,
		Total:     1500 * time.Millisecond,
		Workers:   orchestrator.WorkerStats{Answering: 12},
		Instances: orchestrator.InstanceStats{Wanted: 60, Running: 60},
	}
	c.Observe(quiet)

	want := `
# HELP orchestrator_terms_total Terms that ended, by result.
# TYPE orchestrator_terms_total counter
orchestrator_terms_total{result="cut"} 0
orchestrator_terms_total{result="deposed"} 0
orchestrator_terms_total{result="failed"} 2
orchestrator_terms_total{result="ok"} 1
# HELP orchestrator_changes_total Starts, stops and moves of instances that terms planned, by reason.
# TYPE orchestrator_changes_total counter
orchestrator_changes_total{op="move",reason="drain"} 0
orchestrator_changes_total{op="move",reason="limit"} 0
orchestrator_changes_total{op="move",reason="rebalance"} 18
orchestrator_changes_total{op="move",reason="requires"} 0
orchestrator_changes_total{op="move",reason="zone"} 0
orchestrator_changes_total{op="start",reason="lost"} 12
orchestrator_changes_total{op="start",reason="missing"} 0
orchestrator_changes_total{op="stop",reason="surplus"} 0
orchestrator_changes_total{op="stop",reason="unexpected"} 0
# HELP orchestrator_change_outcomes_total Outcomes of the changes that terms planned.
# TYPE orchestrator_change_outcomes_total counter
orchestrator_change_outcomes_total{outcome="done"} 28
orchestrator_change_outcomes_total{outcome="failed"} 0
orchestrator_change_outcomes_total{outcome="returned"} 2
orchestrator_change_outcomes_total{outcome="skipped"} 0
orchestrator_change_outcomes_total{outcome="stopping"} 0
orchestrator_change_outcomes_total{outcome="unknown"} 0
# HELP orchestrator_moves_excess_total Starts that terms planned beyond the fewest possible, those in moves included.
# TYPE orchestrator_moves_excess_total counter
orchestrator_moves_excess_total 4
# HELP orchestrator_worker_state_changes_total How often workers fell silent, were declared lost, or answered again.
# TYPE orchestrator_worker_state_changes_total counter
orchestrator_worker_state_changes_total{to="answering"} 6
orchestrator_worker_state_changes_total{to="lost"} 2
orchestrator_worker_state_changes_total{to="silent"} 4
` + calls(map[string]int{
		"add deposed": 2, "add done": 24, "add rejected": 4, "apply done": 8, "list done": 20, "list failed": 2, "list timeout": 4,
		"remove done": 16, "remove stopping": 2,
	}) + `# HELP orchestrator_workers Workers in the last term, by state.
# TYPE orchestrator_workers gauge
orchestrator_workers{state="answering"} 12
orchestrator_workers{state="lost"} 0
orchestrator_workers{state="silent"} 0
# HELP orchestrator_mass_loss Whether no silent worker is declared lost because too many are silent.
# TYPE orchestrator_mass_loss gauge
orchestrator_mass_loss 0
# HELP orchestrator_last_term_timestamp_seconds When the last term ended, in seconds since the Unix epoch.
# TYPE orchestrator_last_term_timestamp_seconds gauge
orchestrator_last_term_timestamp_seconds 1.7600002015e+09
# HELP orchestrator_term_epoch Epoch of the last term: which leader ran it.
# TYPE orchestrator_term_epoch gauge
orchestrator_term_epoch 1.760000000123e+12
# HELP orchestrator_term_number Number of the last term within its epoch.
# TYPE orchestrator_term_number gauge
orchestrator_term_number 9
`
	require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(want), names(want)...))
}

func TestGaugesShowEveryFigureOfATerm(t *testing.T) {
	c := stats.NewCollector()
	c.Observe(busy())

	const want = `
# HELP orchestrator_workers Workers in the last term, by state.
# TYPE orchestrator_workers gauge
orchestrator_workers{state="answering"} 10
orchestrator_workers{state="lost"} 1
orchestrator_workers{state="silent"} 2
# HELP orchestrator_draining_workers Workers that are draining, whatever their state.
# TYPE orchestrator_draining_workers gauge
orchestrator_draining_workers 3
# HELP orchestrator_late_workers Workers that are not silent, but had not answered when the listing phase ended.
# TYPE orchestrator_late_workers gauge
orchestrator_late_workers 6
# HELP orchestrator_quarantined_workers Workers that get no tasks because they failed to start some that others started.
# TYPE orchestrator_quarantined_workers gauge
orchestrator_quarantined_workers 4
# HELP orchestrator_stuck_calls Calls to workers that outlived their deadline and have not returned.
# TYPE orchestrator_stuck_calls gauge
orchestrator_stuck_calls 5
# HELP orchestrator_instances Instances of tasks in the last term, by state; the states overlap.
# TYPE orchestrator_instances gauge
orchestrator_instances{state="duplicate"} 8
orchestrator_instances{state="held"} 6
orchestrator_instances{state="missing"} 4
orchestrator_instances{state="running"} 50
orchestrator_instances{state="unexpected"} 7
orchestrator_instances{state="unplaceable"} 1
orchestrator_instances{state="wanted"} 60
# HELP orchestrator_load_spread Difference between the most and the fewest tasks on workers that can get tasks, after the last term.
# TYPE orchestrator_load_spread gauge
orchestrator_load_spread 1
# HELP orchestrator_highest_load_ratio Highest weight of a worker's tasks by its level; 0 unless weights differ.
# TYPE orchestrator_highest_load_ratio gauge
orchestrator_highest_load_ratio 1.25
# HELP orchestrator_out_of_band_workers Workers whose weight is farther from their level than the band.
# TYPE orchestrator_out_of_band_workers gauge
orchestrator_out_of_band_workers 18
# HELP orchestrator_deferred_moves Moves that the last term left to later terms.
# TYPE orchestrator_deferred_moves gauge
orchestrator_deferred_moves 11
# HELP orchestrator_held_moves Moves for an even spread that wait, such as for a silent worker.
# TYPE orchestrator_held_moves gauge
orchestrator_held_moves 17
# HELP orchestrator_held_evictions Instances that stay where labels forbid it, because changed labels would evict too many at once.
# TYPE orchestrator_held_evictions gauge
orchestrator_held_evictions 16
# HELP orchestrator_mass_loss Whether no silent worker is declared lost because too many are silent.
# TYPE orchestrator_mass_loss gauge
orchestrator_mass_loss 1
# HELP orchestrator_last_term_duration_seconds Duration of the whole last term.
# TYPE orchestrator_last_term_duration_seconds gauge
orchestrator_last_term_duration_seconds 20.5
`
	require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(want), names(want)...))
}

func TestHistogramsAreCumulativeAndKeepWhatIsAboveTheLastBucket(t *testing.T) {
	c := stats.NewCollector()
	c.Observe(busy())
	c.Observe(orchestrator.TermStats{Listing: time.Millisecond}) // the other phases were not reached

	var want strings.Builder
	histogram := func(name, label string, sum, count string, buckets [16]int) {
		for i, n := range buckets {
			fmt.Fprintf(&want, "%s_bucket{%s,le=\"%g\"} %d\n", name, label, orchestrator.DurationBounds()[i].Seconds(), n)
		}
		fmt.Fprintf(&want, "%s_bucket{%s,le=\"+Inf\"} %s\n%s_sum{%s} %s\n%s_count{%s} %s\n", name, label, count, name, label, sum, name, label, count)
	}
	want.WriteString("# HELP orchestrator_call_duration_seconds How long calls to workers took.\n# TYPE orchestrator_call_duration_seconds histogram\n")
	histogram("orchestrator_call_duration_seconds", `op="add"`, "60", "15", [16]int{2, 7, 7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8})
	histogram("orchestrator_call_duration_seconds", `op="apply"`, "0", "0", [16]int{})
	histogram("orchestrator_call_duration_seconds", `op="list"`, "0", "0", [16]int{})
	histogram("orchestrator_call_duration_seconds", `op="remove"`, "0", "0", [16]int{})
	want.WriteString("# HELP orchestrator_term_duration_seconds How long the phases of a term took.\n# TYPE orchestrator_term_duration_seconds histogram\n")
	histogram("orchestrator_term_duration_seconds", `phase="list"`, "0.004", "2", [16]int{0, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2})
	histogram("orchestrator_term_duration_seconds", `phase="plan"`, "0.0004", "1", [16]int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1})
	histogram("orchestrator_term_duration_seconds", `phase="write"`, "20", "1", [16]int{})

	require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(want.String()),
		"orchestrator_call_duration_seconds", "orchestrator_term_duration_seconds"))
}

func TestBeforeTheFirstTermCountersAreZeroAndGaugesAbsent(t *testing.T) {
	c := stats.NewCollector()

	require.Equal(t, 4, testutil.CollectAndCount(c, "orchestrator_terms_total"))
	require.Equal(t, 9, testutil.CollectAndCount(c, "orchestrator_changes_total"))
	require.Equal(t, 4*6, testutil.CollectAndCount(c, "orchestrator_calls_total"))
	require.Equal(t, 3, testutil.CollectAndCount(c, "orchestrator_term_duration_seconds"))
	require.Equal(t, 4, testutil.CollectAndCount(c, "orchestrator_call_duration_seconds"))
	require.Equal(t, 1, testutil.CollectAndCount(c, "orchestrator_moves_excess_total"))
	require.Equal(t, 6, testutil.CollectAndCount(c, "orchestrator_change_outcomes_total"))
	require.Equal(t, 4+9+6+4*6+3+4+1+3, testutil.CollectAndCount(c))

	before := testutil.CollectAndCount(c)
	c.Observe(busy())
	c.Observe(busy())
	gauges := 3 + 8 + 14
	require.Equal(t, before+gauges, testutil.CollectAndCount(c), "a term added a series to a counter or a histogram")
}

func TestResultOfATerm(t *testing.T) {
	c := stats.NewCollector()
	c.Observe(orchestrator.TermStats{})
	c.Observe(orchestrator.TermStats{Err: &orchestrator.TermError{Failures: []error{orchestrator.ErrSilent}}})
	c.Observe(orchestrator.TermStats{Err: &orchestrator.TermError{Failures: []error{orchestrator.ErrSilent, orchestrator.ErrDeposed}}})
	c.Observe(orchestrator.TermStats{Cut: true, Err: context.Canceled})

	const want = `
# HELP orchestrator_terms_total Terms that ended, by result.
# TYPE orchestrator_terms_total counter
orchestrator_terms_total{result="cut"} 1
orchestrator_terms_total{result="deposed"} 1
orchestrator_terms_total{result="failed"} 1
orchestrator_terms_total{result="ok"} 1
`
	require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(want), names(want)...))
}

// The gauges end with the leadership: Run has returned, a term ended with ErrDeposed, or the
// program says so. The counters stay.
func TestGaugesEndWithTheLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, err := memory.New[string, string](nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, cluster.Close(t.Context())) }()
		c := stats.NewCollector()
		counters := testutil.CollectAndCount(c)
		gauges := func() int { return testutil.CollectAndCount(c) - counters }
		lead := func() *orchestrator.Orchestrator[string, string] {
			o, err := orchestrator.New(cluster, orchestrator.WithStats(c.Observe))
			require.NoError(t, err)
			return o
		}

		for range 2 { // it leads again, with another orchestrator
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- lead().Run(ctx, time.Second) }()
			time.Sleep(2500 * time.Millisecond)
			require.NotZero(t, gauges())
			cancel()
			require.ErrorIs(t, <-ended, context.Canceled)
			require.Zero(t, gauges(), "Run has returned between two terms")
		}

		o := lead()
		require.NoError(t, o.NextTerm(t.Context()))
		time.Sleep(time.Hour)
		require.NotZero(t, gauges(), "the program calls NextTerm")
		c.Forget()
		require.Zero(t, gauges())

		require.NoError(t, o.NextTerm(t.Context()))
		require.NotZero(t, gauges())
		c.Observe(orchestrator.TermStats{Cut: true, Err: &orchestrator.TermError{Failures: []error{orchestrator.ErrDeposed}}})
		require.Zero(t, gauges())
		require.Equal(t, 1, testutil.CollectAndCount(c, "orchestrator_moves_excess_total"))
	})
}

func TestPromlintIsClean(t *testing.T) {
	c := stats.NewCollector(stats.WithConstLabels(prometheus.Labels{"fleet": "probes"}))
	c.Observe(busy())

	problems, err := testutil.CollectAndLint(c)
	require.NoError(t, err)
	require.Empty(t, problems)
}

// The values of a scrape belong together: no term is partly included.
func TestScrapesDuringTermsAreConsistent(t *testing.T) {
	const terms = 500
	reg := prometheus.NewPedanticRegistry()
	c, err := stats.Register(reg)
	require.NoError(t, err)

	var wg sync.WaitGroup
	wg.Go(func() {
		for n := range uint64(terms) {
			term := busy()
			term.Term.Number = n + 1
			c.Observe(term)
		}
	})
	for {
		families, err := reg.Gather()
		require.NoError(t, err)
		got := make(map[string]float64)
		for _, family := range families {
			for _, m := range family.GetMetric() {
				got[family.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		ended := got["orchestrator_terms_total"]
		require.InDelta(t, ended, got["orchestrator_term_number"], 0)
		require.InDelta(t, 2*ended, got["orchestrator_moves_excess_total"], 0)
		if ended == terms {
			break
		}
	}
	wg.Wait()
}

// names returns the names of the metrics in text, which is in Prometheus' format.
func names(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			out = append(out, strings.Fields(name)[0])
		}
	}
	return out
}
