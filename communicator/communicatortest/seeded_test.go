package communicatortest

// Tests of the schedule: a pure function of seed and call, with the frequencies that
// it names.

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// stormy is a schedule with every kind of fault.
func stormy(seed uint64) Schedule {
	rates := Rates{
		Refusal: 0.05, Failure: 0.1, FalseFailure: 0.15, LostRequest: 0.02,
		LostAnswer: 0.03, LateAnswer: 0.04, LateRequest: 0.06, Stuck: 0.01,
	}
	return Schedule{
		Seed: seed, List: rates, Add: rates, Remove: rates,
		MinLatency: time.Millisecond, MaxLatency: time.Second,
		MinLate: time.Second, MaxLate: time.Minute,
	}
}

// calls returns some calls, all different.
func calls(n int) []Call[string, int] {
	all := make([]Call[string, int], n)
	for i := range all {
		all[i] = Call[string, int]{
			Term:   orchestrator.Term{Epoch: 1, Number: uint64(i / 100)},
			Op:     orchestrator.OpList + orchestrator.Op(i%3),
			Worker: string(rune('a' + i%7)),
			Task:   i,
		}
	}
	return all
}

func seeded(t *testing.T, s Schedule) func(Call[string, int]) Fault {
	t.Helper()
	decide, err := Seeded[string, int](s)
	require.NoError(t, err)
	return decide
}

// TestSeedsMeanTheSameForEver fails if a change of the hash changes the faults of
// old seeds.
func TestSeedsMeanTheSameForEver(t *testing.T) {
	s := stormy(42)
	s.Partition, s.OneWay = 0.1, 0.1
	decide := seeded(t, s)
	var got []Fault
	for _, c := range calls(6) {
		got = append(got, decide(c))
	}
	require.Equal(t, []Fault{
		{Kind: NoFault, Latency: 908101185, Late: 7337425170},
		{Kind: LateRequest, Latency: 779468568, Late: 55319055052},
		{Kind: Stuck, Latency: 487826501, Late: 43537895673},
		{Kind: NoFault, Latency: 894468503, Late: 25901195974},
		{Kind: LateAnswer, Latency: 361787435, Late: 30576280140},
		{Kind: LateRequest, Latency: 649725072, Late: 1556189824},
	}, got)
}

func TestDecisionsDoNotDependOnWhatWasAskedBefore(t *testing.T) {
	decide, again := seeded(t, stormy(1)), seeded(t, stormy(1))
	all := calls(2000)
	want := make([]Fault, len(all))
	for i, c := range all {
		want[i] = decide(c)
	}
	got := make([]Fault, len(all))
	var group sync.WaitGroup
	for _, first := range []int{0, 1} {
		group.Go(func() {
			for i := len(all) - 1 - first; i >= 0; i -= 2 {
				got[i] = again(all[i])
			}
		})
	}
	group.Wait()
	require.Equal(t, want, got)
}

func TestEveryPartOfACallMatters(t *testing.T) {
	base := Call[string, string]{Term: orchestrator.Term{Epoch: 1, Number: 1}, Op: orchestrator.OpAdd, Worker: "ab", Task: "c"}
	decide, err := Seeded[string, string](stormy(1))
	require.NoError(t, err)
	other, err := Seeded[string, string](stormy(2))
	require.NoError(t, err)
	latencies := map[time.Duration]bool{decide(base).Latency: true, other(base).Latency: true}
	for _, change := range []func(*Call[string, string]){
		func(c *Call[string, string]) { c.Term.Epoch++ },
		func(c *Call[string, string]) { c.Term.Number++ },
		func(c *Call[string, string]) { c.Op++ },
		func(c *Call[string, string]) { c.Worker, c.Task = "a", "bc" },
		func(c *Call[string, string]) { c.Task = "d" },
	} {
		c := base
		change(&c)
		latencies[decide(c).Latency] = true
	}
	require.Len(t, latencies, 7)
}

func TestFaultsAreAsFrequentAsTheirRates(t *testing.T) {
	const n = 50000
	s := stormy(7)
	decide := seeded(t, s)
	var counts [faultKinds]int
	var latency, late time.Duration
	outside := 0
	for _, c := range calls(n) {
		fault := decide(c)
		counts[fault.Kind]++
		if fault.Latency < s.MinLatency || fault.Latency > s.MaxLatency || fault.Late < s.MinLate || fault.Late > s.MaxLate {
			outside++
		}
		latency += fault.Latency / n
		late += fault.Late / n
	}
	require.Zero(t, outside)
	want := s.Add.byKind()
	want[NoFault] = 0.54
	for kind, rate := range want {
		require.InDelta(t, rate, float64(counts[kind])/n, 0.01, FaultKind(kind))
	}
	require.InDelta(t, 0.5, latency.Seconds(), 0.01)
	require.InDelta(t, 30.5, late.Seconds(), 0.6)
}

func TestEachOperationHasItsRates(t *testing.T) {
	decide := seeded(t, Schedule{List: Rates{Failure: 1}, Add: Rates{Refusal: 1}, Remove: Rates{Stuck: 1}})
	for op, want := range map[orchestrator.Op]FaultKind{
		orchestrator.OpList: Failure, orchestrator.OpAdd: Refusal, orchestrator.OpRemove: Stuck,
	} {
		require.Equal(t, Fault{Kind: want}, decide(Call[string, int]{Op: op}))
	}
}

// TestPartitionsLastTheirSpan cuts workers off for whole spans: all calls to a
// worker, and different workers at different times.
func TestPartitionsLastTheirSpan(t *testing.T) {
	const span, spans = 5, 4000
	decide := seeded(t, Schedule{Seed: 3, Partition: 0.2, OneWay: 0.1, Span: span})
	begins := map[uint64]bool{}
	for _, worker := range []string{"a", "b", "c", "d", "e", "f"} {
		var counts [faultKinds]int
		var last FaultKind
		for number := uint64(1); number <= span*spans; number++ {
			term := orchestrator.Term{Epoch: 1, Number: number}
			kind := decide(Call[string, int]{Term: term, Op: orchestrator.OpList, Worker: worker}).Kind
			add := decide(Call[string, int]{Term: term, Op: orchestrator.OpAdd, Worker: worker, Task: 7}).Kind
			if add != kind {
				t.Fatalf("term %d: %v for List, %v for Add", number, kind, add)
			}
			counts[kind]++
			if number > 1 && kind != last {
				begins[number%span] = true
			}
			last = kind
		}
		require.InDelta(t, 0.2, float64(counts[LostRequest])/(span*spans), 0.03)
		require.InDelta(t, 0.1, float64(counts[LostAnswer])/(span*spans), 0.03)
	}
	require.Greater(t, len(begins), 1)
}

func TestPartitionsLastThreeTermsByDefault(t *testing.T) {
	s := Schedule{Seed: 3, Partition: 0.5}
	byDefault := seeded(t, s)
	s.Span = 3
	explicit := seeded(t, s)
	for _, c := range calls(1000) {
		require.Equal(t, explicit(c), byDefault(c))
	}
}

func TestScheduleOutOfRange(t *testing.T) {
	_, err := Seeded[string, string](Schedule{
		List:       Rates{Failure: -0.1},
		Add:        Rates{Failure: 0.6, Stuck: 0.6},
		Remove:     Rates{Refusal: math.NaN()},
		Partition:  0.9,
		OneWay:     0.2,
		MinLatency: time.Second,
		MinLate:    -1,
	})
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	for _, text := range []string{
		"Schedule.List", "-0.1", "Schedule.Add", "1.2", "Schedule.Remove", "NaN",
		"Schedule.Partition and OneWay", "MinLatency is 1s", "MinLate is -1ns",
	} {
		require.ErrorContains(t, err, text)
	}
	tenths := Rates{Refusal: 0.1, Failure: 0.1, FalseFailure: 0.2, LostRequest: 0.2, LostAnswer: 0.1, LateAnswer: 0.1, LateRequest: 0.1, Stuck: 0.1}
	_, err = Seeded[string, string](Schedule{Add: tenths})
	require.NoError(t, err)
}
