package simulator

// Goroutines are counted in the whole process, so only where runs are made one
// after the other.

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

// census counts the goroutines that the orchestrator's own package has started.
func census() int {
	stacks := make([]byte, 1<<16)
	n := runtime.Stack(stacks, true)
	for n == len(stacks) {
		stacks = make([]byte, 2*n)
		n = runtime.Stack(stacks, true)
	}
	return strings.Count(string(stacks[:n]), "\ncreated by github.com/f8949c05/orchestrator.")
}
