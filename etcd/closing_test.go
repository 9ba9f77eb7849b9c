package etcd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Close does not wait for a name that nobody wants any more.
func TestW6_CloseWhileJoining(t *testing.T) {
	s := newStage(t)
	first := s.hire(s.client, "first", 5*time.Second) // has set up the prefix
	first.joined()
	other, err := s.client.Grant(t.Context(), 60)
	require.NoError(t, err)
	_, err = s.client.Put(t.Context(), "/work/members/a", "{}", clientv3.WithLease(other.ID))
	require.NoError(t, err)
	a := s.hire(s.client, "a", 5*time.Second)
	s.eventually("it has its lease", func() bool {
		leases, err := s.client.Leases(t.Context())
		return err == nil && len(leases.Leases) == 3
	})
	require.NoError(t, a.member.Close(within(t, soon)))
	<-a.done
	require.NoError(t, a.err)
	leases, err := s.client.Leases(t.Context())
	require.NoError(t, err)
	require.Len(t, leases.Leases, 2, "its lease is given back")
}
