package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/examples/internal/stage/stagetest"
)

func TestMain(m *testing.M) {
	if stagetest.IsProgram() {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTicker(t *testing.T) {
	p := stagetest.Start(t, ".")
	out := p.Wait(t, 0)
	require.Empty(t, p.Stderr.String())

	// Six instances on three workers, and on two after alice is drained.
	row := regexp.MustCompile(`^term (\d): (\w+) +is answering and runs \[(.*)\]$`)
	var loads []string
	for line := range strings.Lines(out) {
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
