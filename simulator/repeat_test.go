package simulator_test

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/simulator"
)

// The same seed gives the same transcript, to the last byte, however many
// processors there are.
func TestRun_IsRepeatable(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	transcript := func(seed uint64) string {
		var b bytes.Buffer
		report, err := simulator.Run(t, seed, simulator.Settings{Transcript: &b})
		require.NoError(t, err)
		b.WriteString(report.String())
		return b.String()
	}
	seeds := uint64(200)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		var first string
		for i, processors := range []int{1, 2, 8} {
			runtime.GOMAXPROCS(processors)
			got := transcript(seed)
			if i == 0 {
				first = got
				continue
			}
			if got != first {
				require.Equal(t, first, got, "seed %d, %d processors", seed, processors)
			}
		}
	}
}
