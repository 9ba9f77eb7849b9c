package main

// Leaving, with a lease so long that no process can be waiting for its end.

import (
	"net/http"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/etcd/embed"
)

func TestLeave_WaitsForNoLease(t *testing.T) {
	t.Parallel()
	server, err := embed.Start(t.Context(), embed.Config{Dir: t.TempDir(), NoFsync: true})
	require.NoError(t, err)
	defer server.Close()
	longLived := func(name string) *process {
		return start(t, name, "-etcd", server.Endpoint(), "-lease", "60s")
	}
	a := longLived("a")
	a.line("a leads")
	fleet := []*process{longLived("b"), longLived("c"), longLived("d")}
	for _, p := range fleet {
		p.line("d joined")
	}
	for _, id := range []string{"1", "2", "3", "4"} {
		require.Equal(t, http.StatusCreated, a.ask("PUT", "/work/"+id, id, nil))
	}
	a.shares(1, 1, 1, 1)

	// One process leaves, and the others report the new leader immediately.
	a.signal(syscall.SIGTERM)
	require.NoError(t, a.ended())
	require.Zero(t, a.count("no other process stays"), a.text())
	for _, p := range fleet {
		p.line("a left after draining")
		require.Eventually(t, func() bool { return p.count(" leads, epoch") > 1 }, patience, interval/20, p.name)
	}

	// The remaining processes leave at the same time. None waits for two leases.
	for _, p := range fleet {
		p.signal(syscall.SIGTERM)
	}
	for _, p := range fleet {
		require.NoError(t, p.ended())
		require.Zero(t, p.count("could not move"))
		require.Zero(t, p.count(" "+p.name+" left: "), "the lease must be revoked")
	}
}
