package grpc

// A worker with scripted answers.

import (
	"net"
	"testing"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/stretchr/testify/require"
)

// impostor serves the fake as a worker, and returns a Communicator that knows it.
func impostor(t testing.TB, f *grpctest.Fake, opts ...CommunicatorOption) (*Communicator, Worker) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := peer.Defaults()
	server, accepting, err := s.NewServer(l, 0)
	require.NoError(t, err)
	orchestratorv1.RegisterWorkerServer(server, f)
	served := make(chan error, 1)
	go func() { served <- server.Serve(accepting) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-served)
	})
	c := communicator(t, opts...)
	w := Worker{"fake", 1}
	introduce(t, c, w, l.Addr().String())
	return c, w
}
