package manager

// Arguments that are nil, empty or too long, and the errors of constructors and
// methods.

import (
	"context"
	"crypto/x509"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator"
	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/testca"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
)

func TestR2_NilStores(t *testing.T) {
	for name, store := range map[string]Store{"nil": nil, "a nil pointer": (*MemoryStore)(nil)} {
		t.Run(name, func(t *testing.T) {
			_, err := New(store, WithInterval(0))
			require.ErrorIs(t, err, orchestrator.ErrInvalid)
			require.ErrorContains(t, err, "new manager: ")
			require.ErrorContains(t, err, "the Store is nil")
			require.ErrorContains(t, err, "WithInterval(0s)")
		})
	}
}

// A nil listener is an error, and nothing begins.
func TestR2_NilListeners(t *testing.T) {
	idle := func(ctx context.Context, _ string) error { <-ctx.Done(); return nil }
	w, err := worker.New(idle, worker.WithLease(10*time.Second, time.Second))
	require.NoError(t, err)
	manager, err := New(NewMemoryStore())
	require.NoError(t, err)
	member, err := NewMember("127.0.0.1:7000", "w", w)
	require.NoError(t, err)
	server, err := communicator.NewServer(w)
	require.NoError(t, err)
	var none *net.TCPListener
	for name, run := range map[string]func(context.Context, net.Listener) error{
		"Manager.Run": manager.Run, "Member.Run": member.Run, "Server.Serve": server.Serve,
	} {
		for _, l := range []net.Listener{nil, none} {
			err := run(t.Context(), l)
			require.ErrorIs(t, err, orchestrator.ErrInvalid, name)
			require.ErrorContains(t, err, name+": the net.Listener is nil")
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errClosing)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.ErrorIs(t, manager.Run(ctx, l), errClosing, "the failed call does not count")
	require.NoError(t, member.Close(t.Context()))
}

func TestR2_NewManagerNamesEveryOption(t *testing.T) {
	_, err := New(NewMemoryStore(), WithInterval(0),
		WithOrchestrator(orchestrator.WithConcurrency(-4), orchestrator.WithMaxLoss(2)), communicator.WithMaxMessage(1))
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	for _, option := range []string{"WithInterval(0s)", "WithOrchestrator: ", "WithConcurrency(-4)", "WithMaxLoss(2)", "WithMaxMessage(1)"} {
		require.ErrorContains(t, err, option)
	}
}

// The error names the file of the certificate.
func TestR3_TheFileOfACertificateThatIsNotForClients(t *testing.T) {
	files := testca.New(t, "ours").Manager(t, testca.Usage(x509.ExtKeyUsageServerAuth))
	_, err := New(NewMemoryStore(), with(t, files))
	require.EqualError(t, err, "new manager: invalid: WithCredentials: certificate not accepted: in "+files.Cert+
		", certificate of a manager is not for clients: its extended key usage has no clientAuth")
}

// Names that are too long are truncated in errors.
func TestR4_NamesThatAreTooLong(t *testing.T) {
	long := strings.Repeat("n", 1<<20)
	m, err := New(NewMemoryStore())
	require.NoError(t, err)
	_, put := m.Put(t.Context(), Item{Name: long})
	_, get := m.Get(long)
	w, err := worker.New(func(context.Context, string) error { return nil }, worker.WithLease(10*time.Second, time.Second))
	require.NoError(t, err)
	_, member := NewMember("127.0.0.1:7000", long, w)
	require.NoError(t, w.Close(t.Context()))
	comm, err := communicator.NewCommunicator()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, comm.Close()) })
	for what, err := range map[string]error{
		"put": put, "get": get, "delete": m.Delete(t.Context(), long),
		"drain": m.Drain(t.Context(), long), "undrain": m.Undrain(t.Context(), long), "member": member,
		"connect": comm.Connect(communicator.Worker{Name: long, Incarnation: 1}, "127.0.0.1:7000"),
	} {
		require.Error(t, err, what)
		require.Less(t, len(err.Error()), 300, what)
	}
}
