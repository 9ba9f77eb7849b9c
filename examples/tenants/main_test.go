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
	s.SQL("postgres", "create table tenants (id text, active bool); insert into tenants values ('a', true), ('b', true), ('c', true), ('d', true), ('e', false)")
	t.Setenv("DATABASE_URL", s.URL(pgtest.User, "postgres"))
	first, second := stagetest.Start(t, "."), stagetest.Start(t, ".")
	killed, others := polling(t, first, 2), polling(t, second, 2)
	require.Equal(t, []string{"a", "b", "c", "d"}, slices.Sorted(slices.Values(slices.Concat(killed, others))))

	require.NoError(t, first.Process.Kill())
	first.Wait(t, -1)
	s.SQL("postgres", "update tenants set active = true where id = 'e'")
	require.ElementsMatch(t, append(killed, "e"), polling(t, second, 3))

	require.NoError(t, second.Process.Signal(syscall.SIGTERM))
	out := second.Wait(t, 0)
	require.Equal(t, 5, strings.Count(out, "stopped "), out)
	t.Log(second.Stderr.String())
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
