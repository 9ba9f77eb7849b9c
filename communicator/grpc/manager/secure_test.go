package manager

import (
	"testing"
	"time"

	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/testca"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// A worker can act only under the name in its certificate.
func TestR4_AWorkerSpeaksForItself(t *testing.T) {
	ca := testca.New(t, "ours")
	m, address := manage(t, with(t, ca.Manager(t)), probedWithin(time.Second))

	dial := func(opts ...communicator.Option) orchestratorv1.ManagerClient {
		conn, err := settingsOf(t, opts...).Dial(address, identity.Principal{Role: identity.RoleManager})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, conn.Close()) })
		return orchestratorv1.NewManagerClient(conn)
	}
	all := func(c orchestratorv1.ManagerClient, name string, s *servedWorker) []error {
		worker, incarnation := []byte(name), s.Incarnation()
		_, err1 := c.Register(t.Context(), &orchestratorv1.RegisterRequest{
			Worker: worker, Incarnation: incarnation, Address: s.addr, Lease: durationpb.New(aLease),
		}, grpc.WaitForReady(true))
		_, err2 := c.Heartbeat(t.Context(), &orchestratorv1.HeartbeatRequest{Worker: worker, Incarnation: incarnation})
		_, err3 := c.Complete(t.Context(), &orchestratorv1.CompleteRequest{Worker: worker})
		_, err4 := c.Leave(t.Context(), &orchestratorv1.LeaveRequest{Worker: worker, Incarnation: incarnation})
		return []error{err1, err2, err3, err4}
	}
	files := ca.Worker(t, "w1")
	site := serveWorker(t, with(t, files))
	client := dial(with(t, files))
	for _, err := range all(client, "w1", site) {
		require.NoError(t, err)
	}
	for _, err := range all(client, "w2", site) {
		require.Equal(t, codes.PermissionDenied, code(err))
		require.ErrorContains(t, err, "w2")
	}
	for _, err := range all(dial(with(t, ca.Manager(t))), "w1", site) {
		require.Equal(t, codes.PermissionDenied, code(err))
	}

	// A worker with another certificate cannot answer at its address.
	impostor := serveWorker(t, with(t, ca.Worker(t, "w2")))
	err := all(client, "w1", impostor)[0]
	require.Equal(t, codes.Unavailable, code(err))
	require.Equal(t, unreachableAnswer, status.Convert(err).Message())
	require.Empty(t, m.Members())
}
