package simulator

// Goroutines are counted in the whole process, so these runs must not be parallel.

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSimulate_Goroutines(t *testing.T) {
	for seed := range uint64(100) {
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
