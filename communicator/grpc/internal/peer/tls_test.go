package peer

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/internal/testca"
)

var aManager = identity.Principal{Role: identity.RoleManager}

// The server tells a client what is wrong with its certificate.
func TestR3_ClientCertificateRefused(t *testing.T) {
	ours, other := testca.New(t, "ours"), testca.New(t, "another's")
	address := serve(t, probed{}, with(t, ours.Manager(t)))
	otherCA := func(files testca.Files) testca.Files { // trusts ours, is signed by another
		files.CA = ours.Manager(t).CA
		return files
	}
	for name, c := range map[string]struct {
		files testca.Files
		code  codes.Code
		says  string
	}{
		"another authority":     {otherCA(other.Worker(t, "w1")), codes.Unauthenticated, `worker "w1" is signed by "CN=another's", not by an accepted authority`},
		"expired":               {ours.Worker(t, "w1", testca.Expired()), codes.Unauthenticated, `worker "w1" expired at 20`},
		"not yet valid":         {ours.Worker(t, "w1", testca.NotYet()), codes.Unauthenticated, `worker "w1" is not valid before 20`},
		"for servers only":      {ours.Worker(t, "w1", testca.Usage(x509.ExtKeyUsageServerAuth)), codes.Unauthenticated, `worker "w1" is not for clients`},
		"no identity":           {ours.Issue(t, []string{"https://example.com/w1"}), codes.Unauthenticated, "identifies no manager and no worker"},
		"another worker's":      {ours.Worker(t, "w2"), codes.PermissionDenied, `only worker "w1" may call this, and it identifies worker "w2"`},
		"a manager's":           {ours.Manager(t), codes.PermissionDenied, "it identifies a manager"},
		"a name like another's": {ours.Worker(t, "w1/"), codes.PermissionDenied, `it identifies worker "w1/"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := heartbeat(t, connect(t, address, aManager, withAny(t, c.files)), "w1")
			require.Equal(t, c.code, status.Code(err), "%v", err)
			require.ErrorIs(t, err, ErrCertificate)
			require.ErrorContains(t, err, c.says)
		})
	}
	require.NoError(t, heartbeat(t, connect(t, address, aManager, with(t, ours.Worker(t, "w1"))), "w1"))
}

// If a client refuses a server, the server's error says which end refused. TLS uses
// the same words for both directions.
func TestR3_RefusedByTheClient(t *testing.T) {
	ours, other := testca.New(t, "ours"), testca.New(t, "another's")
	log := &grpctest.Journal{}
	address := serve(t, probed{}, with(t, other.Manager(t)), logged(log))
	err := heartbeat(t, connect(t, address, aManager, with(t, ours.Worker(t, "w1"))), "w1")
	require.ErrorIs(t, err, ErrCertificate)
	require.Eventually(t, func() bool {
		return log.Count("refused by peer") > 0
	}, 10*time.Second, time.Millisecond)
}

// A client's error states what is wrong with the server's certificate.
func TestR3_ServerCertificateRefused(t *testing.T) {
	ours, other := testca.New(t, "ours"), testca.New(t, "another's")
	client := with(t, ours.Worker(t, "w1"))
	for name, c := range map[string]struct {
		files testca.Files
		cause any // for errors.As
		says  string
	}{
		"another authority": {other.Manager(t), new(x509.UnknownAuthorityError), `a manager is signed by "CN=another's", not by an accepted authority`},
		"expired":           {ours.Manager(t, testca.Expired()), new(x509.CertificateInvalidError), "a manager expired at 20"},
		"not yet valid":     {ours.Manager(t, testca.NotYet()), new(x509.CertificateInvalidError), "a manager is not valid before 20"},
		"for clients only":  {ours.Manager(t, testca.Usage(x509.ExtKeyUsageClientAuth)), new(x509.CertificateInvalidError), "a manager is not for servers"},
		"a worker's":        {ours.Worker(t, "w1"), nil, `it identifies worker "w1", but the call is for a manager`},
		"no identity":       {ours.Issue(t, nil), nil, "identifies no manager and no worker"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := connect(t, serve(t, probed{}, withAny(t, c.files)), aManager, client)
			err := heartbeat(t, conn, "w1")
			require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
			require.ErrorIs(t, err, ErrCertificate)
			require.ErrorContains(t, err, c.says)
			if c.cause != nil {
				require.ErrorAs(t, err, c.cause)
			}
		})
	}
	require.NoError(t, heartbeat(t, connect(t, serve(t, probed{}, with(t, ours.Manager(t))), aManager, client), "w1"))
}
