package etcd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestE5_AddRunsAndRemoveStops(t *testing.T) {
	s := newStage(t)
	a := s.hire(s.client, "a", 5*time.Second)
	w := a.joined()
	l := s.elect(s.client, "l1", 2*time.Second)
	require.Empty(t, l.list(1, w))
	require.NoError(t, l.add(1, w, "t1"))
	require.Equal(t, []string{"t1"}, l.list(1, w))
	s.ledger.wait(t, "t1 runs", func(l *ledger) bool { return len(l.running) == 1 }) // it was started, but may not be scheduled yet
	require.NoError(t, l.add(1, w, "t1"))
	require.NoError(t, l.remove(1, w, "t1"))
	require.Empty(t, l.list(1, w))
	require.Empty(t, s.ledger.snapshot())
	a.quit()
	require.ErrorIs(t, a.result(), errOver)
	require.False(t, s.there("/work/members/a"))
}
