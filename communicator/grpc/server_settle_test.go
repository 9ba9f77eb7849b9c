package grpc

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Before a worker leaves, it waits for the calls under way, for at most graceful.
func TestW6_AServerSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		call := func(takes time.Duration) {
			go func() {
				_, _ = s.calls.count(t.Context(), nil, nil, func(context.Context, any) (any, error) {
					<-time.After(takes)
					return nil, nil
				})
			}()
		}
		settles := func() time.Duration {
			synctest.Wait()
			began := time.Now()
			s.settle()
			return time.Since(began)
		}
		require.Zero(t, settles(), "no calls are under way")
		call(time.Second)
		call(time.Second / 2)
		require.Equal(t, time.Second, settles())
		require.Zero(t, settles())
		call(graceful + time.Second)
		require.Equal(t, graceful, settles())
		require.Equal(t, time.Second, settles())
	})
}
