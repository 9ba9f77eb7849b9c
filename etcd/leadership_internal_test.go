package etcd

import (
	"context"
	"fmt"
	"testing"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
	"github.com/stretchr/testify/require"
)

// Whatever runs beside a leader may be the first to notice that etcd is another
// one. That deposes, so that the candidate stands again.
func TestE2_AnyPartMayNoticeAnotherCluster(t *testing.T) {
	l := newLeadership(t.Context(), &candidacy{}, 1)
	l.Go(func(context.Context) error { return fmt.Errorf("watch: %w", mirror.ErrCluster) })
	<-l.ctx.Done()
	require.ErrorIs(t, context.Cause(l.ctx), orchestrator.ErrDeposed)
	require.ErrorIs(t, context.Cause(l.ctx), ErrClusterChanged)
	l.wg.Wait()
}
