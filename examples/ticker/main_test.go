package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// asProgram makes the test binary run the program.
const asProgram = "ORCHESTRATOR_TICKER_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTicker(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asProgram+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)

	// Six instances on three workers, and on two after alice is drained.
	row := regexp.MustCompile(`^term (\d): (\w+) +is answering and runs \[(.*)\]$`)
	var loads []string
	for line := range strings.Lines(string(out)) {
		m := row.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		require.NotNil(t, m, "%s", out)
		loads = append(loads, fmt.Sprintf("%s %s %d", m[1], m[2], len(strings.Fields(m[3]))))
	}
	require.Equal(t, []string{
		"1 alice 2", "1 bob 2", "1 carol 2",
		"2 alice 0", "2 bob 3", "2 carol 3",
		"3 alice 0", "3 bob 3", "3 carol 3",
	}, loads, "%s", out)
}
