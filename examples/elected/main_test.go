package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator/examples/internal/stage/stagetest"
)

func TestMain(m *testing.M) {
	if stagetest.IsProgram() {
		main()
	}
	goleak.VerifyTestMain(m)
}

func TestElected(t *testing.T) {
	p := stagetest.Start(t, ".")
	out := p.Wait(t, 0)
	require.Empty(t, p.Stderr.String(), out)
	require.Contains(t, out, "c2 leads")
	require.Contains(t, out, "no task ever ran twice")
	stagetest.CheckWidth(t, out)
}

func TestInterrupted(t *testing.T) {
	p := stagetest.Start(t, ".")
	p.Until(t, `w1 runs`)
	require.NoError(t, p.Process.Signal(os.Interrupt))
	p.Wait(t, 0)
	require.Equal(t, "elected: interrupted\n", p.Stderr.String())
}
