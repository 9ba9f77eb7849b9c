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
)

// board is a manager's dashboard, which drains with the manager.
type board struct {
	*dashboard.Handler[grpc.WorkerID, string]
	t *testing.T
}

func newBoard(t *testing.T, m *manager.Manager) *board {
	t.Helper()
	h, err := dashboard.New[grpc.WorkerID, string](dashboard.WithDrain(
		func(ctx context.Context, w grpc.WorkerID) error { return m.Drain(ctx, w.Name) },
		func(ctx context.Context, w grpc.WorkerID) error { return m.Undrain(ctx, w.Name) },
	))
	require.NoError(t, err)
	t.Cleanup(h.Lead(m))
	return &board{h, t}
}

// ask sends a request to the dashboard's API from this machine.
func (b *board) ask(method, target string, answer any) (code int) {
	b.t.Helper()
	r := httptest.NewRequestWithContext(b.t.Context(), method, "http://localhost/api/v1/"+target, nil)
	r.RemoteAddr = "127.0.0.1:1"
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	if w.Code == http.StatusOK {
		require.NoError(b.t, json.Unmarshal(w.Body.Bytes(), answer))
	}
	return w.Code
}

// shows waits until the dashboard shows a worker with so many tasks, draining or not.
func (b *board) shows(worker string, tasks int, draining bool) {
	b.t.Helper()
	eventually(b.t, func() bool {
		var w api.WorkerDetail
		return b.ask("GET", "worker?name="+worker, &w) == http.StatusOK && w.Tasks == tasks && w.Draining == draining
	})
}

// The second manager finds the drain in the store of the first.
func TestD21_DrainsThroughTheDashboardOutliveTheManager(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manager.db")
	first, at := manage(t, "127.0.0.1:0", path)
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
	shown := newBoard(t, first.Manager)
	shown.shows("a", 2, false)
	var drain api.Drain
	require.Equal(t, http.StatusOK, shown.ask("POST", "drain?worker=a", &drain))
	require.True(t, drain.Draining)
	shown.shows("a", 0, true)
	first.stop()

	second, _ := manage(t, at, path)
	shown = newBoard(t, second.Manager)
	shown.shows("a", 0, true)
	shown.shows("b", 4, false)
	require.Equal(t, http.StatusOK, shown.ask("DELETE", "drain?worker=a", &drain))
	require.False(t, drain.Draining)
	shown.shows("a", 2, false)
	require.Empty(t, j.twice)
}
