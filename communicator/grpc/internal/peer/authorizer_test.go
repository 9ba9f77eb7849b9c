package peer

import (
	"context"
	"crypto/x509"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/testca"
)

// calls returns all calls of both services, made for a worker of that name.
func calls(name string) map[string]func(context.Context, *grpc.ClientConn) error {
	id := []byte(name)
	return map[string]func(context.Context, *grpc.ClientConn) error{
		"Register": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := orchestratorv1.NewManagerClient(conn).Register(ctx, &orchestratorv1.RegisterRequest{Worker: id})
			return err
		},
		"Heartbeat": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := orchestratorv1.NewManagerClient(conn).Heartbeat(ctx, &orchestratorv1.HeartbeatRequest{Worker: id})
			return err
		},
		"Complete": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := orchestratorv1.NewManagerClient(conn).Complete(ctx, &orchestratorv1.CompleteRequest{Worker: id})
			return err
		},
		"Leave": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := orchestratorv1.NewManagerClient(conn).Leave(ctx, &orchestratorv1.LeaveRequest{Worker: id})
			return err
		},
		"Report": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := orchestratorv1.NewWorkerClient(conn).Report(ctx, &orchestratorv1.ReportRequest{})
			return err
		},
		"Apply": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := orchestratorv1.NewWorkerClient(conn).Apply(ctx, &orchestratorv1.ApplyRequest{})
			return err
		},
	}
}

// Every call with every kind of certificate.
func TestR4_Authorization(t *testing.T) {
	ca := testca.New(t, "ours")
	address := serve(t, probed{}, with(t, ca.Issue(t, []string{identity.ManagerURI, identity.WorkerURI("server")})))
	commands := map[string]bool{"Report": true, "Apply": true}
	for name, c := range map[string]struct {
		files         testca.Files
		speaks        bool // may act as worker w1
		mayBeCommands bool
	}{
		"the worker":         {ca.Worker(t, "w1"), true, false},
		"another worker":     {ca.Worker(t, "w2"), false, false},
		"a prefix":           {ca.Worker(t, "w"), false, false},
		"escaped in vain":    {ca.Issue(t, []string{"orchestrator://worker/%771", identity.WorkerURI("w9")}), false, false},
		"in upper case":      {ca.Worker(t, "W1"), false, false},
		"scheme in capitals": {ca.Issue(t, []string{"ORCHESTRATOR://manager", "ORCHESTRATOR://worker/w1", identity.WorkerURI("w9")}), false, false},
		"with a fragment":    {ca.Issue(t, []string{identity.ManagerURI + "#", identity.WorkerURI("w1") + "#", identity.WorkerURI("w9")}), false, false},
		"with a query":       {ca.Issue(t, []string{identity.ManagerURI + "?", identity.WorkerURI("w1") + "?", identity.WorkerURI("w9")}), false, false},
		"a manager":          {ca.Manager(t), false, true},
		"one of several":     {ca.Issue(t, []string{identity.WorkerURI("w0"), identity.WorkerURI("w1")}), true, false},
		"both":               {ca.Issue(t, []string{identity.WorkerURI("w1"), identity.ManagerURI}), true, true},
		"a manager below":    {ca.Issue(t, []string{identity.ManagerURI + "/x", identity.WorkerURI("w9")}), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			conn := connect(t, address, aManager, with(t, c.files))
			for call, do := range calls("w1") {
				allowed := c.speaks
				if commands[call] {
					allowed = c.mayBeCommands
				}
				err := do(t.Context(), conn)
				if allowed {
					require.NoError(t, err, call)
					continue
				}
				require.Equal(t, codes.PermissionDenied, status.Code(err), "%s: %v", call, err)
				require.ErrorIs(t, err, ErrCertificate, call)
			}
		})
	}
}

// Names may contain any bytes, also in a certificate.
func TestR4_NamesOfAnyBytes(t *testing.T) {
	ca := testca.New(t, "ours")
	for _, name := range []string{"a/b", "a b", "%77", "..", ".", "é", "\xff\xfe", "a\x00b", "?q#f", strings.Repeat("ä", identity.MaxName/2)} {
		address := serve(t, probed{}, with(t, ca.Worker(t, name)))
		conn := connect(t, address, identity.Principal{Role: identity.RoleWorker, Name: name}, with(t, ca.Issue(t, []string{identity.ManagerURI, identity.WorkerURI(name)})))
		for call, do := range calls(name) {
			require.NoError(t, do(t.Context(), conn), "%s for %q", call, name)
		}
	}
}

// Identities may have another form.
func TestR4_IdentitiesInOtherWords(t *testing.T) {
	ca := testca.New(t, "ours")
	spiffe := func(c *x509.Certificate) []string {
		var identities []string
		for _, u := range c.URIs {
			switch {
			case u.String() == "spiffe://example.com/manager":
				identities = append(identities, identity.ManagerURI)
			case strings.HasPrefix(u.Path, "/worker/"):
				identities = append(identities, identity.WorkerURI(strings.TrimPrefix(u.Path, "/worker/")))
			}
		}
		return identities
	}
	address := serve(t, probed{}, with(t, ca.Issue(t, []string{"spiffe://example.com/manager"}), spiffe))
	conn := connect(t, address, aManager, with(t, ca.Issue(t, []string{"spiffe://example.com/worker/w1"}), spiffe))
	require.NoError(t, calls("w1")["Heartbeat"](t.Context(), conn))
	require.Equal(t, codes.PermissionDenied, status.Code(calls("w2")["Heartbeat"](t.Context(), conn)))
	require.Equal(t, codes.PermissionDenied, status.Code(calls("w1")["Apply"](t.Context(), conn)))
}

// A call that did not pass a handshake of this package is refused.
func TestR4_CallsWithoutCredentialsAreRefused(t *testing.T) {
	for name, ctx := range map[string]context.Context{
		"no peer":      t.Context(),
		"another kind": peer.NewContext(t.Context(), &peer.Peer{Addr: elsewhere{}}),
	} {
		require.Equal(t, codes.Unauthenticated, status.Code(MayCommand(ctx)), name)
		require.Equal(t, codes.Unauthenticated, status.Code(MaySpeakFor(ctx, "w1")), name)
	}
}

// A call is refused before its message is read.
func TestR4_RefusedBeforeItIsRead(t *testing.T) {
	ca := testca.New(t, "ours")
	address := serve(t, probed{}, with(t, ca.Worker(t, "w1")))
	files := testca.New(t, "another's").Manager(t)
	files.CA = ca.Manager(t).CA
	conn := connect(t, address, identity.Principal{Role: identity.RoleWorker, Name: "w1"}, withAny(t, files))
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, orchestratorv1.Worker_Apply_FullMethodName)
	require.NoError(t, err)
	require.Equal(t, codes.Unauthenticated, status.Code(stream.RecvMsg(&orchestratorv1.ApplyResponse{})), "answered before any message was sent")
}
