package grpc

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Whoever is about to leave waits for the calls under way, as long as they may take.
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
		require.Zero(t, settles(), "there are no calls")
		call(time.Second)
		call(time.Second / 2)
		require.Equal(t, time.Second, settles())
		require.Zero(t, settles())
		call(graceful + time.Second)
		require.Equal(t, graceful, settles())
		require.Equal(t, time.Second, settles())
	})
}
