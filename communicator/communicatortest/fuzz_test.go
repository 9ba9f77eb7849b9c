package communicatortest_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/communicatortest"
)

// FuzzSeeded makes schedules of arbitrary numbers. Each must be refused, or its
// faults must be within its bounds.
func FuzzSeeded(f *testing.F) {
	f.Add(uint64(1), 0.1, 0.2, 0.3, 0.4, int64(0), int64(0), int64(0), int64(0), uint64(0), uint64(1), uint64(1), "w", "t")
	f.Add(uint64(1), 0.0, 0.0, 0.5, 0.5, int64(1), int64(math.MaxInt64), int64(5), int64(5), uint64(9), uint64(1), uint64(math.MaxUint64), "w", "")
	f.Add(uint64(1), math.NaN(), -0.1, 1.1, math.Inf(1), int64(-1), int64(-2), int64(2), int64(1), uint64(math.MaxUint64), uint64(0), uint64(0), "", "\xff")
	f.Fuzz(func(t *testing.T, seed uint64, a, b, c, d float64, least, most, early, late int64, span, epoch, number uint64, worker, task string) {
		s := communicatortest.Schedule{
			Seed: seed, Partition: c, OneWay: d, Span: span,
			List:       communicatortest.Rates{Refusal: a, LateAnswer: b},
			Add:        communicatortest.Rates{Failure: b, Stuck: c, LostAnswer: d},
			Remove:     communicatortest.Rates{FalseFailure: a, LostRequest: b, LateRequest: d},
			MinLatency: time.Duration(least), MaxLatency: time.Duration(most),
			MinLate: time.Duration(early), MaxLate: time.Duration(late),
		}
		fate, err := communicatortest.Seeded[string, string](s)
		good := 0 <= least && least <= most && 0 <= early && early <= late
		for _, sum := range []float64{a + b, b + c + d, a + b + d, c + d} {
			good = good && sum <= 1+1e-9
		}
		for _, p := range []float64{a, b, c, d} {
			good = good && p >= 0 && p <= 1
		}
		if !good {
			require.ErrorIs(t, err, orchestrator.ErrInvalid)
			return
		}
		require.NoError(t, err)
		again, err := communicatortest.Seeded[string, string](s)
		require.NoError(t, err)
		for _, op := range []orchestrator.Op{orchestrator.OpList, orchestrator.OpAdd, orchestrator.OpRemove} {
			call := communicatortest.Call[string, string]{
				Term: orchestrator.Term{Epoch: epoch, Number: number}, Op: op, Worker: worker, Task: task,
			}
			fault := fate(call)
			require.Equal(t, fault, again(call))
			require.NotContains(t, fault.Kind.String(), "(", "a kind without a name")
			require.True(t, s.MinLatency <= fault.Latency && fault.Latency <= s.MaxLatency, "%v", fault.Latency)
			require.True(t, s.MinLate <= fault.Late && fault.Late <= s.MaxLate, "%v", fault.Late)
			require.NoError(t, fault.Err)
			if a+b+c+d == 0 {
				require.Equal(t, communicatortest.NoFault, fault.Kind)
			}
		}
	})
}
