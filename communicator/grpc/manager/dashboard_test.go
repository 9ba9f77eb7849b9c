package manager_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/internal/draintest"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

// newDashboard returns a dashboard of a manager, which drains with the manager.
func newDashboard(t *testing.T, m *manager.Manager) http.Handler {
	t.Helper()
	h, err := dashboard.New(dashboard.WithDrain(
		func(ctx context.Context, w grpc.WorkerID) error { return m.Drain(ctx, w.Name) },
		func(ctx context.Context, w grpc.WorkerID) error { return m.Undrain(ctx, w.Name) },
	))
	require.NoError(t, err)
	t.Cleanup(dashboard.Lead(h, m))
	return h
}

// The second manager finds the drain in the store of the first.
func TestD21_DrainsThroughTheDashboardOutliveTheManager(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manager.db")
	first, at := manage(t, proctest.FreeAddrs(t, 1)[0], path)
	j := &journal{started: make(map[string]int), running: make(map[string]int)}
	for _, name := range []string{"a", "b"} {
		joinWith(t, at, name, j)
	}
	eventually(t, func() bool { return len(first.Members()) == 2 })
	var items []manager.Item
	for i := range 4 {
		items = append(items, manager.Item{Name: fmt.Sprint("task", i)})
	}
	_, err := first.PutAll(t.Context(), items)
	require.NoError(t, err)
	draintest.Run(t, newDashboard(t, first.Manager), func() http.Handler {
		first.stop()
		second, _ := manage(t, at, path)
		return newDashboard(t, second.Manager)
	})
	require.Empty(t, j.twice)
}
