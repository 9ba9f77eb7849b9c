package manager_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/dashboard/api"
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

// ask sends a request from this machine to the API of a dashboard, and decodes the answer. It
// reports whether that is no error.
func ask(t *testing.T, h http.Handler, method, target string, answer any) bool {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost/api/v1/"+target, nil)
	r.RemoteAddr = "127.0.0.1:1"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code == http.StatusOK {
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), answer))
	}
	return w.Code == http.StatusOK
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
	shows := func(h http.Handler, worker string, tasks int, draining bool) {
		t.Helper()
		eventually(t, func() bool {
			var w api.WorkerDetail
			return ask(t, h, http.MethodGet, "worker?name="+worker, &w) && w.Tasks == tasks && w.Draining == draining
		})
	}
	set := func(h http.Handler, method string, draining bool) {
		t.Helper()
		var drain api.Drain
		require.True(t, ask(t, h, method, "drain?worker=a", &drain))
		require.Equal(t, draining, drain.Draining)
	}
	board := newDashboard(t, first.Manager)
	shows(board, "a", 2, false)
	set(board, http.MethodPost, true)
	shows(board, "a", 0, true)

	first.stop()
	second, _ := manage(t, at, path)
	board = newDashboard(t, second.Manager)
	shows(board, "a", 0, true)
	shows(board, "b", 4, false)
	set(board, http.MethodDelete, false)
	shows(board, "a", 2, false)
	require.Empty(t, j.twice)
}
