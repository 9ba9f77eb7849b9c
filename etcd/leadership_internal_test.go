package etcd

import (
	"context"
	"fmt"
	"testing"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
	"github.com/stretchr/testify/require"
)

// Any goroutine of a leadership may be the first to detect another cluster. That
// deposes the leader, so that the candidate campaigns again.
func TestE2_AnyPartMayNoticeAnotherCluster(t *testing.T) {
	l := newLeadership(t.Context(), &campaign{}, 1)
	l.Go(func(context.Context) error { return fmt.Errorf("watch: %w", mirror.ErrCluster) })
	<-l.ctx.Done()
	require.ErrorIs(t, context.Cause(l.ctx), orchestrator.ErrDeposed)
	require.ErrorIs(t, context.Cause(l.ctx), ErrClusterChanged)
	l.wg.Wait()
}
