package simulator

// Goroutines are counted in the whole process, so these runs must not be parallel.

import (
	"flag"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Schedules is the number of runs of TestSimulate. The slower tests of many seeds make
// a tenth of them.
var Schedules = flag.Int("simulator.schedules", 100, "number of seeds to run")

func TestSimulate_Goroutines(t *testing.T) {
	for seed := range uint64(min(*Schedules/10, 100)) {
		_, err := Run(t, seed, Settings{census: census})
		require.NoError(t, err)
	}
}

// census counts the goroutines started by the orchestrator's own package.
func census() int {
	stacks := make([]byte, 1<<16)
	n := runtime.Stack(stacks, true)
	for n == len(stacks) {
		stacks = make([]byte, 2*n)
		n = runtime.Stack(stacks, true)
	}
	return strings.Count(string(stacks[:n]), "\ncreated by github.com/f8949c05/orchestrator.")
}
