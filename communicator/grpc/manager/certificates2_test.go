package manager

import (
	"context"
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/testca"
	"github.com/f8949c05/orchestrator/worker"
)

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
