package manager

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"

	"github.com/stretchr/testify/require"
)

// Before a worker leaves, it waits for the calls under way, for at most peer.Grace.
func TestW6_AServerSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls callCounter
		call := func(takes time.Duration) {
			go func() {
				_, _ = calls.count(t.Context(), nil, nil, func(context.Context, any) (any, error) {
					<-time.After(takes)
					return nil, nil
				})
			}()
		}
		settles := func() time.Duration {
			synctest.Wait()
			began := time.Now()
			calls.settle()
			return time.Since(began)
		}
		require.Zero(t, settles(), "no calls are under way")
		call(time.Second)
		call(time.Second / 2)
		require.Equal(t, time.Second, settles())
		require.Zero(t, settles())
		call(peer.Grace + time.Second)
		require.Equal(t, peer.Grace, settles())
		require.Equal(t, time.Second, settles())
	})
}
