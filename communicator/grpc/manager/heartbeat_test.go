package manager

// R2: heartbeats that arrive late.

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

// A draining worker cancels its earlier heartbeats. A cancelled heartbeat may still
// arrive, even after one that drains.
func TestR2_ACancelledHeartbeatHasNoEffect(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		m := o.open(NewMemoryStore())
		one := o.staff("one")[0]
		c := &managerServer{Manager: m.Manager}
		beat := func(ctx context.Context, draining bool) error {
			_, err := c.Heartbeat(ctx, &orchestratorv1.HeartbeatRequest{Worker: []byte("one"), Incarnation: one.Incarnation(), Draining: draining})
			return err
		}
		before, giveUp := context.WithCancel(localCall(t))
		require.NoError(t, beat(localCall(t), true))
		giveUp()
		require.Equal(t, codes.Canceled, code(beat(before, false)))
		synctest.Wait()
		require.True(t, m.Members()[0].Draining)
		require.NotContains(t, o.logs.String(), "level=WARN", "no call is refused")
		require.NoError(t, beat(localCall(t), false))
		require.False(t, m.Members()[0].Draining)
	})
}
