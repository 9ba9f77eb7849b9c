package etcd_test

// The dashboard of leaders on etcd.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/internal/draintest"
)

// board is the dashboard of a candidate, which drains with the registry.
type board struct {
	*dashboard.Handler
	resign func()
}

// startBoard starts a candidate with a dashboard.
func (s *stage) startBoard(name string, registry *etcd.Registry) *board {
	s.Helper()
	members, err := etcd.NewMembership(s.client)
	require.NoError(s, err)
	election, err := etcd.NewElection(s.client, name, etcd.WithLeaseDuration(60*time.Second))
	require.NoError(s, err)
	h, err := dashboard.New(dashboard.WithDrain(
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
				stop = dashboard.Lead(h, o)
				return errors.Join(registry.Feed(ctx, l, o), members.Feed(ctx, l, o))
			})
		})
	}()
	b := &board{Handler: h, resign: func() { cancel(errOver); <-done }}
	s.Cleanup(b.resign)
	return b
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
	s.eventually("first leads", func() bool { return draintest.Ask(t, first, "GET", "status", new(api.Status)) == http.StatusOK })
	second := s.startBoard("second", registry)
	draintest.Run(t, first, func() http.Handler {
		require.Equal(t, http.StatusServiceUnavailable, draintest.Ask(t, second, "GET", "status", nil))
		first.resign()
		return second
	})
	require.Equal(t, http.StatusServiceUnavailable, draintest.Ask(t, first, "GET", "status", nil))
}
