package proctest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/proctest"
)

// outcome records how a test ends that calls f.
type outcome struct {
	testing.TB
	skipped, failed string
}

func (o *outcome) Helper() {}

func (o *outcome) Skipf(format string, args ...any) {
	o.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (o *outcome) Fatalf(format string, args ...any) {
	o.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// outcomeOf runs f as a test of its own.
func outcomeOf(t *testing.T, f func(t testing.TB)) *outcome {
	t.Helper()
	o, ended := &outcome{TB: t}, make(chan struct{})
	go func() {
		defer close(ended)
		f(o)
	}()
	<-ended
	return o
}

func TestProgram_IsFoundInThePathAndByPattern(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"15/sql", "16/sql", "path/sql", "path/cache"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "path", "text"), nil, 0o644))
	t.Setenv("PATH", filepath.Join(dir, "path"))
	t.Setenv("ORCHESTRATOR_PROGRAMS", "required")
	pattern := filepath.Join(dir, "[0-9]*", "sql")
	for want, names := range map[string][]string{
		"path/sql":   {"sql", pattern},
		"16/sql":     {pattern, "sql"},
		"path/cache": {"stash", "cache"},
	} {
		require.Equal(t, filepath.Join(dir, want), proctest.Program(t, "sql-server", names...))
	}
	o := outcomeOf(t, func(t testing.TB) { proctest.Program(t, "text-server", "text") })
	require.Equal(t, "text is not installed: apt-get install text-server", o.failed, "it is not executable")
}

func TestProgram_MissingSkipsTheTestThatAsks(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	ask := func(t testing.TB) { proctest.Program(t, "redis-server", "redis-server", "/nowhere/*/redis-server") }

	t.Setenv("ORCHESTRATOR_PROGRAMS", "")
	o := outcomeOf(t, ask)
	require.Equal(t, "not installed: apt-get install redis-server", o.skipped)
	require.Empty(t, o.failed)
	o = outcomeOf(t, func(t testing.TB) {
		_, ok := proctest.Lookup(t, "redis-server", "redis-server")
		require.False(t, ok)
	})
	require.Empty(t, o.skipped, "the test has a substitute")

	t.Setenv("CI", "true") // which other people's CI sets too
	require.NotEmpty(t, outcomeOf(t, ask).skipped)

	t.Setenv("ORCHESTRATOR_PROGRAMS", "required")
	for _, f := range []func(testing.TB){ask, func(t testing.TB) { proctest.Missing(t, "spin") }} {
		o = outcomeOf(t, f)
		require.Contains(t, o.failed, "apt-get install")
		require.Empty(t, o.skipped)
	}
}
