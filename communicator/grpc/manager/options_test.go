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

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/internal/testca"
	"github.com/f8949c05/orchestrator/worker"
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
		"connect": comm.Connect(communicator.WorkerID{Name: long, Incarnation: 1}, "127.0.0.1:7000"),
	} {
		require.Error(t, err, what)
		require.Less(t, len(err.Error()), 300, what)
	}
}

const (
	shown  = `level=INFO msg="certificate in use"`
	ending = `level=WARN msg="certificate expires soon, replace its files"`
)

// A member logs until when its certificate is valid, and checks with each heartbeat,
// because a connection may last until the end.
func TestR3_AMemberWarnsBeforeItsCertificateEnds(t *testing.T) {
	inMemberNet(t, func(n *memberNet) {
		ca := testca.New(n.T, "ours", testca.Lasting(1000*24*time.Hour))
		n.option = with(n.T, ca.Worker(n.T, "w", testca.Lasting(10*time.Minute)))
		n.startMember()
		n.after(9*time.Minute - 2*time.Second)
		require.Equal(n, 1, n.said(shown))
		require.Equal(n, 1, n.said("valid_until=2000-01-01T00:10:00Z"))
		require.Zero(n, n.said("level=WARN"))
		n.after(4 * time.Second)
		require.Equal(n, 1, n.said(ending))
	})
}

// A manager checks in each term, with or without members.
func TestR3_AManagerWarnsBeforeItsCertificateEnds(t *testing.T) {
	inTestNet(t, func(t *testing.T, n *testNet) {
		ca := testca.New(t, "ours", testca.Lasting(1000*24*time.Hour))
		var log grpctest.Journal
		m := n.open(NewMemoryStore(), logged(&log), with(t, ca.Manager(t, testca.Lasting(10*time.Minute))),
			WithOrchestrator(orchestrator.WithStats(func(orchestrator.TermStats) {})))
		n.pass(9*time.Minute - 2*time.Second)
		require.Equal(t, 1, log.Count(shown))
		require.Equal(t, 1, log.Count("valid_until=2000-01-01T00:10:00Z"))
		require.Zero(t, log.Count("level=WARN"))
		n.pass(4 * time.Second)
		require.Equal(t, 1, log.Count(ending))
		m.close()
	})
}

// A certificate that expires soon is logged at the start.
func TestR3_WarnsAtTheStart(t *testing.T) {
	inTestNet(t, func(t *testing.T, n *testNet) {
		ca := testca.New(t, "ours", testca.Lasting(1000*24*time.Hour))
		files := ca.Manager(t, testca.Lasting(1*24*time.Hour))
		<-time.After(22 * time.Hour)
		var log grpctest.Journal
		m := n.open(NewMemoryStore(), logged(&log), with(t, files))
		require.Equal(t, 1, log.Count(ending))
		m.close()
	})
}

// A process needs a certificate for its own identity, for clients and servers both.
func TestR3_CertificatesOfAnotherIdentity(t *testing.T) {
	ca := testca.New(t, "ours")
	w, err := worker.New(func(context.Context, string) error { return nil }, worker.WithLease(10*time.Second, time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close(context.WithoutCancel(t.Context()))) })
	manager := func(opt communicator.Option) error {
		_, err := New(NewMemoryStore(), opt)
		return err
	}
	member := func(opt communicator.Option) error {
		_, err := NewMember("127.0.0.1:7000", "w1", w, opt)
		return err
	}
	for name, c := range map[string]struct {
		make  func(communicator.Option) error
		files testca.Files
		says  string // "": no error
	}{
		"a manager":                  {manager, ca.Manager(t), ""},
		"a manager that is a worker": {manager, ca.Worker(t, "w1"), `identifies worker "w1", not a manager`},
		"a manager that only serves": {manager, ca.Manager(t, testca.Usage(x509.ExtKeyUsageServerAuth)), "a manager is not for clients"},
		"a manager that only calls":  {manager, ca.Manager(t, testca.Usage(x509.ExtKeyUsageClientAuth)), "a manager is not for servers"},
		"a worker":                   {member, ca.Worker(t, "w1"), ""},
		"a worker, among others":     {member, ca.Issue(t, []string{communicator.ManagerURI, communicator.WorkerURI("w0"), communicator.WorkerURI("w1")}), ""},
		"a worker for anything":      {member, ca.Worker(t, "w1", testca.Usage(x509.ExtKeyUsageAny)), ""},
		"a worker, no usages":        {member, ca.Worker(t, "w1", testca.Usage()), ""},
		"a worker of another name":   {member, ca.Worker(t, "w2"), `identifies worker "w2", not worker "w1"`},
		"a worker that is a manager": {member, ca.Manager(t), `identifies a manager, not worker "w1"`},
		"a worker that only calls":   {member, ca.Worker(t, "w1", testca.Usage(x509.ExtKeyUsageClientAuth)), "is not for servers"},
		"a worker that answers only": {member, ca.Worker(t, "w1", testca.Usage(x509.ExtKeyUsageServerAuth)), "is not for clients"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.make(with(t, c.files))
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, orchestrator.ErrInvalid)
			require.ErrorIs(t, err, communicator.ErrCertificate)
			require.ErrorContains(t, err, c.files.Cert)
			require.ErrorContains(t, err, c.says)
		})
	}
}
