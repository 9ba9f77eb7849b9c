package main

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/examples/internal/stage/stagetest"
	"github.com/f8949c05/orchestrator/internal/pgtest"
)

func TestMain(m *testing.M) {
	if stagetest.IsProgram() {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The program of README.md, as two processes, of which one is killed. It takes two of
// the default leases: one because the table is new, and that of the killed process.
func TestTenants(t *testing.T) {
	s := pgtest.Start(t)
	s.SQL("postgres", howTo(t))
	t.Setenv("DATABASE_URL", s.URL(pgtest.User, "postgres"))
	first, second := stagetest.Start(t, "."), stagetest.Start(t, ".")
	killed, others := polling(t, first, 6), polling(t, second, 6)
	all := slices.Concat(killed, others)
	slices.Sort(all)
	require.Len(t, slices.Compact(all), 12)

	require.NoError(t, first.Process.Kill())
	first.Wait(t, -1)
	s.SQL("postgres", "insert into tenants values ('new', true), ('inactive', false)")
	require.ElementsMatch(t, append(killed, "new"), polling(t, second, 7))

	require.NoError(t, second.Process.Signal(syscall.SIGTERM))
	out := second.Wait(t, 0)
	require.Equal(t, 13, strings.Count(out, "stopped "), out)
	t.Log(second.Stderr.String())
}

// howTo returns the SQL that the program prints if it does not know the database. It writes
// nothing else.
func howTo(t *testing.T) string {
	t.Helper()
	t.Setenv("DATABASE_URL", "")
	t.Setenv("HOME", t.TempDir())
	p := stagetest.Start(t, ".")
	sql := p.Wait(t, 1)
	require.Contains(t, p.Stderr.String(), "set DATABASE_URL")
	files, err := os.ReadDir(os.Getenv("HOME"))
	require.NoError(t, err)
	require.Empty(t, files)
	return sql
}

// polling returns the next n tenants that a process polls.
func polling(t *testing.T, p *stagetest.Program, n int) []string {
	t.Helper()
	tenants := make([]string, n)
	for i := range tenants {
		tenants[i] = p.Until(t, `^polling (\w+)`)
	}
	return tenants
}
