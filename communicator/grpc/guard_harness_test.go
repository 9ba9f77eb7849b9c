package grpc

// Servers that report which calls were admitted.

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/testca"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

// probed serves both services, with the checks of the real implementations.
type probed struct {
	orchestratorv1.UnimplementedManagerServer
	orchestratorv1.UnimplementedWorkerServer
}

func (probed) Report(ctx context.Context, _ *orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
	return &orchestratorv1.ReportResponse{}, mayCommand(ctx)
}

func (probed) Apply(ctx context.Context, _ *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error) {
	return &orchestratorv1.ApplyResponse{}, mayCommand(ctx)
}

func (probed) Register(ctx context.Context, r *orchestratorv1.RegisterRequest) (*orchestratorv1.RegisterResponse, error) {
	return &orchestratorv1.RegisterResponse{}, maySpeakFor(ctx, string(r.GetWorker()))
}

func (probed) Heartbeat(ctx context.Context, r *orchestratorv1.HeartbeatRequest) (*orchestratorv1.HeartbeatResponse, error) {
	return &orchestratorv1.HeartbeatResponse{}, maySpeakFor(ctx, string(r.GetWorker()))
}

func (probed) Complete(ctx context.Context, r *orchestratorv1.CompleteRequest) (*orchestratorv1.CompleteResponse, error) {
	return &orchestratorv1.CompleteResponse{}, maySpeakFor(ctx, string(r.GetWorker()))
}

func (probed) Leave(ctx context.Context, r *orchestratorv1.LeaveRequest) (*orchestratorv1.LeaveResponse, error) {
	return &orchestratorv1.LeaveResponse{}, maySpeakFor(ctx, string(r.GetWorker()))
}

// settingsOf returns the settings for some options.
func settingsOf(t *testing.T, opts ...Option) *settings {
	t.Helper()
	s, err := newSettings(opts)
	require.NoError(t, err)
	return &s
}

// with returns the option to use files.
func with(t *testing.T, files testca.Files, opts ...CredentialsOption) Option {
	t.Helper()
	c, err := LoadCredentials(files.Cert, files.Key, files.CA, opts...)
	require.NoError(t, err)
	return WithCredentials(c)
}

// withAny is like with, for files that LoadCredentials would refuse.
func withAny(t *testing.T, files testca.Files, opts ...CredentialsOption) Option {
	t.Helper()
	c, err := readCredentials(files.Cert, files.Key, files.CA, opts)
	require.NoError(t, err)
	return WithCredentials(c)
}

// serve serves p on loopback until the test ends, and returns the address.
func serve(t *testing.T, p probed, opts ...Option) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, l, err := settingsOf(t, opts...).newServer(l, 0)
	require.NoError(t, err)
	orchestratorv1.RegisterManagerServer(server, p)
	orchestratorv1.RegisterWorkerServer(server, p)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-done)
	})
	return l.Addr().String()
}

// manage runs a manager until the test ends, and returns its address.
func manage(t *testing.T, opts ...ManagerOption) (m *Manager, address string) {
	t.Helper()
	m, err := NewManager(NewMemoryStore(), opts...)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel(errClosing)
		require.ErrorIs(t, <-done, errClosing)
	})
	return m, l.Addr().String()
}

// probedWithin shortens the time that registering workers have to answer.
func probedWithin(d time.Duration) ManagerOption {
	return managerOption(func(s *managerSettings) { s.probing = d })
}

// connect dials an identity at an address until the test ends.
func connect(t *testing.T, address string, who principal, opts ...Option) *grpc.ClientConn {
	t.Helper()
	conn, err := settingsOf(t, opts...).dial(address, who)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

// heartbeat sends a heartbeat for a worker.
func heartbeat(t *testing.T, conn *grpc.ClientConn, name string) error {
	t.Helper()
	_, err := orchestratorv1.NewManagerClient(conn).Heartbeat(t.Context(), &orchestratorv1.HeartbeatRequest{Worker: []byte(name)})
	return err
}
