package etcd_test

import (
	"testing"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/stretchr/testify/require"
)

// All parts of a leader must use the prefix of its election. A registry under
// another prefix would report no tasks, and the leader would stop all running ones.
func TestE1_OnePrefixForAllOfALeader(t *testing.T) {
	c := startEtcd(t)
	l := stand(t, c, "l", etcd.WithLeaseDuration(10*time.Second)).elected()
	_, err := etcd.NewCommunicator(t.Context(), c, l, etcd.WithPrefix("/other/"))
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	require.NotErrorIs(t, err, orchestrator.ErrDeposed)
	require.ErrorContains(t, err, "/other/")
	told := newTold()
	require.ErrorIs(t, newRegistry(t, c, etcd.WithPrefix("/other/")).Feed(t.Context(), l, told), orchestrator.ErrInvalid)
	membership, err := etcd.NewMembership(c, etcd.WithPrefix("/other/"))
	require.NoError(t, err)
	require.ErrorIs(t, membership.Feed(t.Context(), l, told), orchestrator.ErrInvalid)
	_, err = etcd.NewMember(c, "w", nil)
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
}
