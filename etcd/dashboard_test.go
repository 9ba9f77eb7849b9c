package etcd_test

// The dashboard of leaders on etcd.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/etcd"
)

// board is the dashboard of a candidate, which drains with the registry.
type board struct {
	*dashboard.Handler[etcd.WorkerID, string]
	stage  *stage
	resign func()
}

// startBoard starts a candidate with a dashboard.
func (s *stage) startBoard(name string, registry *etcd.Registry) *board {
	s.Helper()
	members, err := etcd.NewMembership(s.client)
	require.NoError(s, err)
	election, err := etcd.NewElection(s.client, name, etcd.WithLeaseDuration(60*time.Second))
	require.NoError(s, err)
	h, err := dashboard.New[etcd.WorkerID, string](dashboard.WithDrain(
		func(ctx context.Context, w etcd.WorkerID) error { return registry.Drain(ctx, w.Name) },
		func(ctx context.Context, w etcd.WorkerID) error { return registry.Undrain(ctx, w.Name) },
	))
	require.NoError(s, err)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(s.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = election.Run(ctx, func(ctx context.Context, l *etcd.Leadership) error {
			comm, err := etcd.NewCommunicator(ctx, s.client, l)
			if err != nil {
				return err
			}
			stop := func() {}
			defer func() { stop() }()
			return etcd.LeadWith(ctx, l, comm, 100*time.Millisecond, func(o *orchestrator.Orchestrator[etcd.WorkerID, string]) error {
				stop = h.Lead(o)
				return errors.Join(registry.Feed(ctx, l, o), members.Feed(ctx, l, o))
			})
		})
	}()
	b := &board{Handler: h, stage: s, resign: func() { cancel(errOver); <-done }}
	s.Cleanup(b.resign)
	return b
}

// ask sends a request to the dashboard's API from this machine.
func (b *board) ask(method, target string, answer any) (code int) {
	b.stage.Helper()
	r := httptest.NewRequestWithContext(b.stage.Context(), method, "http://localhost/api/v1/"+target, nil)
	r.RemoteAddr = "127.0.0.1:1"
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	if w.Code == http.StatusOK {
		require.NoError(b.stage, json.Unmarshal(w.Body.Bytes(), answer))
	}
	return w.Code
}

// shows waits until the dashboard shows a worker with so many tasks, draining or not.
func (b *board) shows(worker string, tasks int, draining bool) {
	b.stage.Helper()
	b.stage.eventually(fmt.Sprintf("%s has %d tasks", worker, tasks), func() bool {
		var w api.WorkerDetail
		return b.ask("GET", "worker?name="+worker, &w) == http.StatusOK && w.Tasks == tasks && w.Draining == draining
	})
}

func TestD21_DrainsThroughTheDashboardOutliveTheLeader(t *testing.T) {
	s := newStage(t)
	registry, err := etcd.NewRegistry(s.client)
	require.NoError(t, err)
	for i := range 4 {
		_, err := registry.Create(t.Context(), etcd.Item{Name: fmt.Sprint("task", i)})
		require.NoError(t, err)
	}
	for _, name := range []string{"a", "b"} {
		s.startMember(s.client, name, 60*time.Second).joined()
	}
	first := s.startBoard("first", registry)
	first.shows("a", 2, false)
	second := s.startBoard("second", registry)
	require.Equal(t, http.StatusServiceUnavailable, second.ask("GET", "status", nil))

	var drain api.Drain
	require.Equal(t, http.StatusOK, first.ask("POST", "drain?worker=a", &drain))
	require.True(t, drain.Draining)
	first.shows("a", 0, true)
	first.resign()

	second.shows("a", 0, true)
	second.shows("b", 4, false)
	require.Equal(t, http.StatusServiceUnavailable, first.ask("GET", "status", nil))
	require.Equal(t, http.StatusOK, second.ask("DELETE", "drain?worker=a", &drain))
	require.False(t, drain.Draining)
	second.shows("a", 2, false)
}
