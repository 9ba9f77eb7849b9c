package peer

// Servers that report which calls were admitted.

import (
	"context"
	"crypto/x509"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/testca"
)

// probed serves both services, with the checks of the real implementations.
type probed struct {
	orchestratorv1.UnimplementedManagerServer
	orchestratorv1.UnimplementedWorkerServer
}

func (probed) Report(ctx context.Context, _ *orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
	return &orchestratorv1.ReportResponse{}, MayCommand(ctx)
}

func (probed) Apply(ctx context.Context, _ *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error) {
	return &orchestratorv1.ApplyResponse{}, MayCommand(ctx)
}

func (probed) Register(ctx context.Context, r *orchestratorv1.RegisterRequest) (*orchestratorv1.RegisterResponse, error) {
	return &orchestratorv1.RegisterResponse{}, MaySpeakFor(ctx, string(r.GetWorker()))
}

func (probed) Heartbeat(ctx context.Context, r *orchestratorv1.HeartbeatRequest) (*orchestratorv1.HeartbeatResponse, error) {
	return &orchestratorv1.HeartbeatResponse{}, MaySpeakFor(ctx, string(r.GetWorker()))
}

func (probed) Complete(ctx context.Context, r *orchestratorv1.CompleteRequest) (*orchestratorv1.CompleteResponse, error) {
	return &orchestratorv1.CompleteResponse{}, MaySpeakFor(ctx, string(r.GetWorker()))
}

func (probed) Leave(ctx context.Context, r *orchestratorv1.LeaveRequest) (*orchestratorv1.LeaveResponse, error) {
	return &orchestratorv1.LeaveResponse{}, MaySpeakFor(ctx, string(r.GetWorker()))
}

// option sets something in Settings.
type option func(*Settings)

// settingsOf returns the settings for some options.
func settingsOf(t *testing.T, opts ...option) *Settings {
	t.Helper()
	s := Defaults()
	for _, opt := range opts {
		opt(&s)
	}
	return &s
}

// first returns the first function, or nil.
func first(identities []func(*x509.Certificate) []string) func(*x509.Certificate) []string {
	if len(identities) == 0 {
		return nil
	}
	return identities[0]
}

// with returns the option to use files.
func with(t *testing.T, files testca.Files, identities ...func(*x509.Certificate) []string) option {
	t.Helper()
	c, err := LoadCredentials(files.Cert, files.Key, files.CA, first(identities))
	require.NoError(t, err)
	return func(s *Settings) { s.Credentials = c }
}

// withAny is like with, for files that LoadCredentials would refuse.
func withAny(t *testing.T, files testca.Files, identities ...func(*x509.Certificate) []string) option {
	t.Helper()
	c, err := readCredentials(files.Cert, files.Key, files.CA, first(identities))
	require.NoError(t, err)
	return func(s *Settings) { s.Credentials = c }
}

// logged returns the option to log to a journal.
func logged(j *grpctest.Journal) option { return func(s *Settings) { s.Logger = j.Logger() } }

// serve serves p on loopback until the test ends, and returns the address.
func serve(t *testing.T, p probed, opts ...option) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, l, err := settingsOf(t, opts...).NewServer(l, 0)
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

// connect dials an identity at an address until the test ends.
func connect(t *testing.T, address string, who identity.Principal, opts ...option) *grpc.ClientConn {
	t.Helper()
	conn, err := settingsOf(t, opts...).Dial(address, who)
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

// beatsOnce sends a heartbeat of worker w1 over a new connection, and closes it.
func beatsOnce(t *testing.T, address string, opts ...option) {
	t.Helper()
	conn, err := settingsOf(t, opts...).Dial(address, aManager)
	require.NoError(t, err)
	require.NoError(t, heartbeat(t, conn, "w1"))
	require.NoError(t, conn.Close())
}

// healthy returns the calls of a well-behaved worker w1.
func healthy(t *testing.T, address string, opts ...option) (call, anew func(context.Context) error) {
	t.Helper()
	beat := func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := orchestratorv1.NewManagerClient(conn).Heartbeat(ctx, &orchestratorv1.HeartbeatRequest{Worker: []byte("w1")}, grpc.WaitForReady(true))
		return err
	}
	s := settingsOf(t, opts...)
	conn := connect(t, address, aManager, opts...)
	return func(ctx context.Context) error { return beat(ctx, conn) },
		func(ctx context.Context) error {
			conn, err := s.Dial(address, aManager)
			if err != nil {
				return err
			}
			err = beat(ctx, conn)
			_ = conn.Close() // fails only if closed already
			return err
		}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
