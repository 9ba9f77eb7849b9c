package etcd_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator/internal/proxy"
	"github.com/stretchr/testify/require"
)

// A worker that was cut off for longer than its lease finds, when it rejoins, an
// assignment that was made for what it was before: it deletes that, and does not
// take it.
func TestE5_StaleAssignmentFoundByOneThatRejoins(t *testing.T) {
	s := newStage(t)
	client, cable := s.behind()
	a := s.hire(client, "a", 2*time.Second)
	before := a.joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, before)
	require.NoError(t, l.add(1, before, "t"))

	cable.Cut(proxy.Both)
	s.eventually("its lease has ended", func() bool { return !s.there("/work/members/a") })
	// As the lease takes its assignments with it, it takes another hand to leave one.
	_, err := s.client.Put(t.Context(), "/work/assigned/a/t",
		fmt.Sprintf(`{"epoch":%d,"term":1,"member":%d}`, l.leader.Epoch(), before.Incarnation))
	require.NoError(t, err)
	cable.Heal()

	after := a.joined()
	require.Greater(t, after.Incarnation, before.Incarnation)
	s.eventually("it is gone", func() bool { return !s.there("/work/assigned/a/t") })
	require.Empty(t, l.list(2, after))
	require.NoError(t, l.add(2, after, "u"))
	require.Equal(t, 1, s.ledger.started("t"), "before the cut only")
}
