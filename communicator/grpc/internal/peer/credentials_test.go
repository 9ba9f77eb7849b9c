package peer

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/internal/testca"
)

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
			_, err := LoadCredentials(c.cert, c.key, c.ca, nil)
			require.ErrorContains(t, err, "load credentials")
			require.ErrorContains(t, err, c.says)
		})
	}
	_, err := LoadCredentials(good.Cert, good.Key, file(two), nil)
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
		"several principals":          {ours.Issue(t, []string{identity.WorkerURI("w1"), identity.WorkerURI("w2"), identity.ManagerURI}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := LoadCredentials(c.files.Cert, c.files.Key, c.files.CA, nil)
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

// New files are used for the next connection, at both ends. Existing connections
// continue.
func TestR3_FilesReplaced(t *testing.T) {
	ca := testca.New(t, "ours")
	server, client := ca.Manager(t), ca.Worker(t, "w1")
	var log grpctest.Journal
	serverOption, clientOption := with(t, server), with(t, client)
	address := serve(t, probed{}, serverOption, logged(&log))
	before := connect(t, address, aManager, clientOption)
	require.NoError(t, heartbeat(t, before, "w1"))

	ca.Renew(t, client, []string{identity.WorkerURI("w2")})
	require.NoError(t, heartbeat(t, before, "w1"), "a connection from before")
	after := connect(t, address, aManager, clientOption)
	require.NoError(t, heartbeat(t, after, "w2"))
	require.Equal(t, codes.PermissionDenied, status.Code(heartbeat(t, after, "w1")))

	require.Zero(t, log.Count("certificates replaced"))
	ca.Renew(t, server, []string{identity.WorkerURI("m")})
	require.ErrorContains(t, heartbeat(t, connect(t, address, aManager, clientOption), "w2"), `it identifies worker "m"`)
	require.NoError(t, heartbeat(t, connect(t, address, identity.Principal{Role: identity.RoleWorker, Name: "m"}, clientOption), "w2"))
	require.NoError(t, heartbeat(t, before, "w1"), "a connection from before")
	require.Equal(t, 1, log.Count("certificates replaced"))
}

// While files are partly replaced, the previous set is used. That is logged once.
func TestR3_FilesHalfReplaced(t *testing.T) {
	ca := testca.New(t, "ours")
	server, next := ca.Manager(t), ca.Manager(t)
	var log grpctest.Journal
	address := serve(t, probed{}, with(t, server), logged(&log))
	client := with(t, ca.Worker(t, "w1"))
	works := func() {
		t.Helper()
		beatsOnce(t, address, client)
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
	require.Equal(t, 1, log.Count("certificates not loaded"))
	require.NoError(t, os.Remove(server.CA))
	works()
	require.Equal(t, 2, log.Count("certificates not loaded"), "a different error")
	replace(server.CA, next.CA)
	replace(server.Key, next.Key)
	works()
	require.Equal(t, 1, log.Count("certificates replaced"))
}

// One authority replaces another, and no process is refused at any time. First both
// are accepted everywhere, then certificates are replaced, then the old authority is
// withdrawn.
func TestR3_AuthorityReplaced(t *testing.T) {
	first, second := testca.New(t, "first"), testca.New(t, "second")
	server, client, left := first.Manager(t), first.Worker(t, "w1"), first.Worker(t, "w1")
	both := append(first.PEM(), second.PEM()...)
	var log grpctest.Journal
	address := serve(t, probed{}, with(t, server), logged(&log))
	option, leftOption := with(t, client), with(t, left)
	works := func() {
		t.Helper()
		beatsOnce(t, address, option)
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
	second.Renew(t, client, []string{identity.WorkerURI("w1")})
	accept(client, both)
	works()
	second.Renew(t, server, []string{identity.ManagerURI})
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
		return []string{identity.WorkerURI("w1")}
	}
	address := serve(t, probed{}, withAny(t, ca.Manager(t), asked))
	files := testca.New(t, "another's").Worker(t, "w1")
	files.CA = ca.Manager(t).CA
	require.ErrorIs(t, heartbeat(t, connect(t, address, aManager, withAny(t, files)), "w1"), ErrCertificate)
}

// Concurrent handshakes may load the files, also while they are replaced.
func TestR3_FilesReplacedAmidHandshakes(t *testing.T) {
	renewals := 10
	if *long {
		renewals = 50
	}
	ca := testca.New(t, "ours")
	files := ca.Worker(t, "w1")
	c, err := LoadCredentials(files.Cert, files.Key, files.CA, nil)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
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
	for range renewals {
		ca.Renew(t, files, []string{identity.WorkerURI("w1")})
	}
	stop()
	wg.Wait()
}

const (
	shown   = `level=INFO msg="certificate in use"`
	ending  = `level=WARN msg="certificate expires soon, replace its files"`
	renewal = `level=INFO msg="certificates replaced"`
)

const day = 24 * time.Hour

func loaded(t *testing.T, files testca.Files) *Credentials {
	t.Helper()
	c, err := LoadCredentials(files.Cert, files.Key, files.CA, nil)
	require.NoError(t, err)
	return c
}

// A certificate expires at the latest with its issuer. ValidUntil reads the current
// files.
func TestR3_ValidUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		long, short := testca.New(t, "long", testca.Lasting(100*day)), testca.New(t, "short", testca.Lasting(20*day))
		files := long.Worker(t, "w", testca.Lasting(30*day))
		c := loaded(t, files)
		require.True(t, c.ValidUntil().Equal(now.AddDate(0, 0, 30)), c.ValidUntil())
		short.Renew(t, files, []string{identity.WorkerURI("w")}, testca.Lasting(30*day))
		require.True(t, c.ValidUntil().Equal(now.AddDate(0, 0, 20)), c.ValidUntil())

		require.NoError(t, os.Remove(files.Key))
		require.True(t, c.ValidUntil().Equal(now.AddDate(0, 0, 30)), "the files in use: %v", c.ValidUntil())
		other := long.Worker(t, "w", testca.Lasting(30*day))
		require.NoError(t, os.WriteFile(other.CA, short.PEM(), 0o600))
		untrusted, err := readCredentials(other.Cert, other.Key, other.CA, nil)
		require.NoError(t, err)
		require.True(t, untrusted.ValidUntil().Equal(now.AddDate(0, 0, 30)), "its own validity")
	})
}

// The warning comes when a tenth is left, once a day, until the files are replaced.
// If warnings are not logged, none counts as given.
func TestR3_WarnsBeforeACertificateEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := testca.New(t, "ours", testca.Lasting(1000*day))
		files := ca.Worker(t, "w", testca.Lasting(30*day))
		c := loaded(t, files)
		var log grpctest.Journal
		logger := slog.New(slog.NewTextHandler(&log, nil))
		watch := func() {
			for range 10 {
				c.Watch(logger)
				c.current(logger) // as a handshake does
			}
		}
		pass := func(d time.Duration) { <-time.After(d) }

		pass(27*day - time.Hour)
		watch()
		require.Zero(t, log.Count("level="))
		pass(time.Hour)
		c.Watch(slog.New(slog.DiscardHandler))
		watch()
		require.Equal(t, 1, log.Count(ending))
		require.Equal(t, 1, log.Count("valid_until=2000-01-31T00:00:00Z left=72h0m0s"), log.String())
		require.Equal(t, 1, log.Count(files.Cert))
		pass(day - time.Hour)
		watch()
		require.Equal(t, 1, log.Count(ending), "once a day")
		pass(time.Hour)
		watch()
		require.Equal(t, 2, log.Count(ending))

		// Files that do not match replace nothing.
		key, err := os.ReadFile(files.Key)
		require.NoError(t, err)
		require.NoError(t, os.Remove(files.Key))
		pass(day)
		watch()
		require.Equal(t, 3, log.Count(ending))
		require.NoError(t, os.WriteFile(files.Key, key, 0o600))
		pass(2 * day) // it has expired
		watch()
		require.Equal(t, 4, log.Count(ending))

		ca.Renew(t, files, []string{identity.WorkerURI("w")}, testca.Lasting(10*day))
		pass(day)
		watch()
		require.Equal(t, 1, log.Count(renewal))
		require.Equal(t, 4, log.Count(ending))
		pass(8 * day)
		watch()
		require.Equal(t, 5, log.Count(ending), "the next one expires too")
	})
}

// There is no warning of a certificate that was replaced in time, even if no
// handshake has read the new one yet.
func TestR3_DoesNotWarnOfACertificateThatWasReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := testca.New(t, "ours", testca.Lasting(1000*day))
		files := ca.Worker(t, "w", testca.Lasting(30*day))
		c := loaded(t, files)
		var log grpctest.Journal
		logger := slog.New(slog.NewTextHandler(&log, nil))
		<-time.After(28 * 24 * time.Hour)
		ca.Renew(t, files, []string{identity.WorkerURI("w")}, testca.Lasting(30*day))
		c.Watch(logger)
		require.Equal(t, 1, log.Count(renewal))
		require.Zero(t, log.Count(ending))
	})
}
