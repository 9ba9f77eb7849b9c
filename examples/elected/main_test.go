package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// The child processes run this test binary.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && (os.Args[1] == "candidate" || os.Args[1] == "worker") {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

func TestTheStoryEndsWell(t *testing.T) {
	var out strings.Builder
	began := time.Now()
	require.NoError(t, tell(t.Context(), &out), "%s", &out)
	t.Logf("in %v:\n%s", time.Since(began), &out)
	require.Contains(t, out.String(), "c2 leads")
	require.Contains(t, out.String(), "No task ever ran twice")
}
