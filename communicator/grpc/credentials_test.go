package grpc

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/testca"
	"github.com/f8949c05/orchestrator/worker"
)

// journal records what is logged.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) count(what string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), what)
}

func (j *journal) option() Option {
	return WithLogger(slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug})))
}

func TestR3_LoadCredentialsSaysWhatIsWrong(t *testing.T) {
	ca := testca.New(t, "ours")
	good, other := ca.Worker(t, "w1"), ca.Worker(t, "w1")
	file := func(content []byte) string {
		name := filepath.Join(t.TempDir(), "file.pem")
		require.NoError(t, os.WriteFile(name, content, 0o600))
		return name
	}
	two := append(ca.PEM(), testca.New(t, "next").PEM()...)
	for name, c := range map[string]struct {
		cert, key, ca string
		says          string
	}{
		"no certificate":       {filepath.Join(t.TempDir(), "none"), good.Key, good.CA, "none: no such file"},
		"no key":               {good.Cert, filepath.Join(t.TempDir(), "none"), good.CA, "none: no such file"},
		"no authorities":       {good.Cert, good.Key, filepath.Join(t.TempDir(), "none"), "none: no such file"},
		"another's key":        {good.Cert, other.Key, good.CA, "private key does not match public key"},
		"files mixed up":       {good.Key, good.Cert, good.CA, good.Key},
		"a key for authority":  {good.Cert, good.Key, good.Key, "only certificates are allowed"},
		"an empty authority":   {good.Cert, good.Key, file(nil), "no certificate"},
		"half the authorities": {good.Cert, good.Key, file(two[:len(two)-100]), "last certificate is incomplete"},
		"no such certificate":  {good.Cert, good.Key, file(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("?")})), "authorities in"},
		"too large":            {good.Cert, good.Key, file(make([]byte, maxFile+1)), "more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := LoadCredentials(c.cert, c.key, c.ca)
			require.ErrorContains(t, err, "load credentials")
			require.ErrorContains(t, err, c.says)
		})
	}
	_, err := LoadCredentials(good.Cert, good.Key, good.CA, nil)
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	_, err = LoadCredentials(good.Cert, good.Key, good.CA, WithIdentities(nil))
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	_, err = LoadCredentials(good.Cert, good.Key, file(two))
	require.NoError(t, err)
}

// A certificate that no peer could accept is an error of LoadCredentials, not of a
// later call.
func TestR3_OwnCertificatesOfNoUse(t *testing.T) {
	ours, other := testca.New(t, "ours"), testca.New(t, "another's")
	accepting := func(files testca.Files, authorities ...[]byte) testca.Files {
		require.NoError(t, os.WriteFile(files.CA, bytes.Join(authorities, nil), 0o600))
		return files
	}
	leaf, err := os.ReadFile(ours.Worker(t, "w2").Cert)
	require.NoError(t, err)
	gone := func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = c.NotBefore.AddDate(-2, 0, 0), c.NotAfter.AddDate(-2, 0, 0)
	}
	for name, c := range map[string]struct {
		files testca.Files
		says  string // "": the certificate is accepted
	}{
		"expired":                     {ours.Worker(t, "w1", testca.Expired()), `worker "w1" expired at 20`},
		"not valid yet":               {ours.Worker(t, "w1", testca.NotYet()), `worker "w1" is not valid before 20`},
		"no identity":                 {ours.Issue(t, []string{"https://example.com/w1"}), "identifies no manager and no worker"},
		"for code":                    {ours.Worker(t, "w1", testca.Usage(x509.ExtKeyUsageCodeSigning)), `worker "w1" is not for clients`},
		"for code, once more":         {ours.Worker(t, "w1", testca.Usage(x509.ExtKeyUsageCodeSigning)), `worker "w1" is not for servers`},
		"another authority":           {accepting(other.Worker(t, "w1"), ours.PEM()), `worker "w1" is signed by "CN=another's", not by an accepted authority`},
		"a leaf for authority":        {accepting(ours.Worker(t, "w1"), leaf), `certificate of worker "w2" is no authority`},
		"a leaf beside an authority":  {accepting(ours.Worker(t, "w1"), ours.PEM(), leaf), `certificate of worker "w2" is no authority`},
		"for servers only":            {ours.Worker(t, "w1", testca.Usage(x509.ExtKeyUsageServerAuth)), ""},
		"for clients only":            {ours.Worker(t, "w1", testca.Usage(x509.ExtKeyUsageClientAuth)), ""},
		"for everything":              {ours.Worker(t, "w1", testca.Usage(x509.ExtKeyUsageAny)), ""},
		"one of several authorities":  {accepting(ours.Worker(t, "w1"), other.PEM(), ours.PEM()), ""},
		"beside one that has expired": {accepting(ours.Worker(t, "w1"), testca.New(t, "former", gone).PEM(), ours.PEM()), ""},
		"by one that has expired":     {testca.New(t, "former", gone).Worker(t, "w1"), `"CN=former" expired at 20`},
		"several principals":          {ours.Issue(t, []string{WorkerURI("w1"), WorkerURI("w2"), ManagerURI}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := LoadCredentials(c.files.Cert, c.files.Key, c.files.CA)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "load credentials")
			require.ErrorContains(t, err, c.files.CA)
			require.ErrorContains(t, err, c.says)
		})
	}
}

// A process needs a certificate for its own identity, for clients and servers both.
func TestR3_CertificatesOfAnotherIdentity(t *testing.T) {
	ca := testca.New(t, "ours")
	w, err := worker.New(func(context.Context, string) error { return nil }, worker.WithLease(10*time.Second, time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close(context.WithoutCancel(t.Context()))) })
	manager := func(opt Option) error {
		_, err := NewManager(NewMemoryStore(), opt)
		return err
	}
	member := func(opt Option) error {
		_, err := NewMember("127.0.0.1:7000", "w1", w, opt)
		return err
	}
	for name, c := range map[string]struct {
		make  func(Option) error
		files testca.Files
		says  string // "": no error
	}{
		"a manager":                  {manager, ca.Manager(t), ""},
		"a manager that is a worker": {manager, ca.Worker(t, "w1"), `identifies worker "w1", not a manager`},
		"a manager that only serves": {manager, ca.Manager(t, testca.Usage(x509.ExtKeyUsageServerAuth)), "a manager is not for clients"},
		"a manager that only calls":  {manager, ca.Manager(t, testca.Usage(x509.ExtKeyUsageClientAuth)), "a manager is not for servers"},
		"a worker":                   {member, ca.Worker(t, "w1"), ""},
		"a worker, among others":     {member, ca.Issue(t, []string{ManagerURI, WorkerURI("w0"), WorkerURI("w1")}), ""},
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
			require.ErrorIs(t, err, ErrCertificate)
			require.ErrorContains(t, err, c.files.Cert)
			require.ErrorContains(t, err, c.says)
		})
	}
}

// New files are used for the next connection, at both ends. Existing connections
// continue.
func TestR3_FilesReplaced(t *testing.T) {
	ca := testca.New(t, "ours")
	server, client := ca.Manager(t), ca.Worker(t, "w1")
	var log journal
	serverOption, clientOption := with(t, server), with(t, client)
	address := serve(t, probed{}, serverOption, log.option())
	before := connect(t, address, aManager, clientOption)
	require.NoError(t, heartbeat(t, before, "w1"))

	ca.Renew(t, client, []string{WorkerURI("w2")})
	require.NoError(t, heartbeat(t, before, "w1"), "a connection from before")
	after := connect(t, address, aManager, clientOption)
	require.NoError(t, heartbeat(t, after, "w2"))
	require.Equal(t, codes.PermissionDenied, status.Code(heartbeat(t, after, "w1")))

	require.Zero(t, log.count("certificates replaced"))
	ca.Renew(t, server, []string{WorkerURI("m")})
	require.ErrorContains(t, heartbeat(t, connect(t, address, aManager, clientOption), "w2"), `it identifies worker "m"`)
	require.NoError(t, heartbeat(t, connect(t, address, principal{role: roleWorker, name: "m"}, clientOption), "w2"))
	require.NoError(t, heartbeat(t, before, "w1"), "a connection from before")
	require.Equal(t, 1, log.count("certificates replaced"))
}

// While files are partly replaced, the previous set is used. That is logged once.
func TestR3_FilesHalfReplaced(t *testing.T) {
	ca := testca.New(t, "ours")
	server, next := ca.Manager(t), ca.Manager(t)
	var log journal
	address := serve(t, probed{}, with(t, server), log.option())
	client := with(t, ca.Worker(t, "w1"))
	works := func() {
		t.Helper()
		require.NoError(t, heartbeat(t, connect(t, address, aManager, client), "w1"))
	}
	replace := func(to, from string) {
		t.Helper()
		content, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to, content, 0o600))
	}
	works()
	replace(server.Cert, next.Cert)
	works()
	works()
	require.Equal(t, 1, log.count("certificates not loaded"))
	require.NoError(t, os.Remove(server.CA))
	works()
	require.Equal(t, 2, log.count("certificates not loaded"), "a different error")
	replace(server.CA, next.CA)
	replace(server.Key, next.Key)
	works()
	require.Equal(t, 1, log.count("certificates replaced"))
}

// One authority replaces another, and no process is refused at any time. First both
// are accepted everywhere, then certificates are replaced, then the old authority is
// withdrawn.
func TestR3_AuthorityReplaced(t *testing.T) {
	first, second := testca.New(t, "first"), testca.New(t, "second")
	server, client, left := first.Manager(t), first.Worker(t, "w1"), first.Worker(t, "w1")
	both := append(first.PEM(), second.PEM()...)
	var log journal
	address := serve(t, probed{}, with(t, server), log.option())
	option, leftOption := with(t, client), with(t, left)
	works := func() {
		t.Helper()
		require.NoError(t, heartbeat(t, connect(t, address, aManager, option), "w1"))
	}
	accept := func(files testca.Files, authorities []byte) {
		t.Helper()
		require.NoError(t, os.WriteFile(files.CA, authorities, 0o600))
	}
	works()
	accept(server, both)
	works()
	accept(client, both)
	works()
	second.Renew(t, client, []string{WorkerURI("w1")})
	accept(client, both)
	works()
	second.Renew(t, server, []string{ManagerURI})
	accept(server, both)
	works()
	accept(client, second.PEM())
	works()
	accept(left, both)
	require.NoError(t, heartbeat(t, connect(t, address, aManager, leftOption), "w1"))
	accept(server, second.PEM())
	works()
	err := heartbeat(t, connect(t, address, aManager, leftOption), "w1")
	require.Equal(t, codes.Unauthenticated, status.Code(err))
	require.ErrorContains(t, err, `is signed by "CN=first", not by an accepted authority`)
}

// A certificate with an unknown critical extension is refused. The identities of a
// refused certificate are not read.
func TestR3_IdentitiesOfVerifiedCertificatesOnly(t *testing.T) {
	ca := testca.New(t, "ours")
	asked := func(*x509.Certificate) []string {
		t.Error("asked whom a certificate stands for that is not accepted")
		return []string{WorkerURI("w1")}
	}
	address := serve(t, probed{}, withAny(t, ca.Manager(t), WithIdentities(asked)))
	files := testca.New(t, "another's").Worker(t, "w1")
	files.CA = ca.Manager(t).CA
	require.ErrorIs(t, heartbeat(t, connect(t, address, aManager, withAny(t, files)), "w1"), ErrCertificate)
}

// Concurrent handshakes may load the files, also while they are replaced.
func TestR3_FilesReplacedAmidHandshakes(t *testing.T) {
	ca := testca.New(t, "ours")
	files := ca.Worker(t, "w1")
	c, err := LoadCredentials(files.Cert, files.Key, files.CA)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				m := c.current(slog.New(slog.DiscardHandler))
				_, _, err := c.verify(m, []*x509.Certificate{m.certificate.Leaf}, x509.ExtKeyUsageClientAuth, ca.Certificate.NotAfter.AddDate(0, 0, -1))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 50 {
		ca.Renew(t, files, []string{WorkerURI("w1")})
	}
	stop()
	wg.Wait()
}
