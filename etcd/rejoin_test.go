package etcd_test

import (
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/stretchr/testify/require"
)

// A worker that rejoins after a disconnect deletes an assignment that was made for
// its previous membership, without claiming it.
func TestE5_StaleAssignmentAfterARejoin(t *testing.T) {
	s := newStage(t)
	client, cable := s.behind()
	a := s.hire(client, "a", 2*time.Second)
	before := a.joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, before)
	require.NoError(t, l.add(1, before, "t"))

	cable.Cut(netfault.Both)
	s.eventually("the lease expires", func() bool { return !s.there("/work/members/a") })
	// The lease has deleted the assignments, so the test puts a stale one.
	_, err := s.client.Put(t.Context(), "/work/assigned/a/t",
		fmt.Sprintf(`{"epoch":%d,"term":1,"member":%d}`, l.leader.Epoch(), before.Incarnation))
	require.NoError(t, err)
	cable.Heal()

	after := a.joined()
	require.Greater(t, after.Incarnation, before.Incarnation)
	s.eventually("the assignment is deleted", func() bool { return !s.there("/work/assigned/a/t") })
	require.Empty(t, l.list(2, after))
	require.NoError(t, l.add(2, after, "u"))
	require.Equal(t, 1, s.ledger.started("t"), "t must start only before the cut")
}

// The log reports when etcd is back.
func TestE8_AnEtcdThatIsBackIsNoted(t *testing.T) {
	s := newStage(t)
	line, cable := s.behind()
	joined := &lookout{text: "msg=joined", seen: make(chan struct{})}
	failed := &lookout{text: `level=WARN msg="keepalive not acknowledged"`, seen: make(chan struct{})}
	again := &lookout{text: `level=INFO msg="keepalives acknowledged again"`, seen: make(chan struct{})}
	log := slog.New(slog.NewTextHandler(io.MultiWriter(joined, failed, again), nil))
	s.direct(line, 6*time.Second, etcd.WithLogger(log))
	receive(t, joined.seen)
	cable.Cut(netfault.Both)
	receive(t, failed.seen)
	select {
	case <-again.seen:
		require.Fail(t, "no keepalive was acknowledged yet")
	default:
	}
	cable.Heal()
	receive(t, again.seen)
}
