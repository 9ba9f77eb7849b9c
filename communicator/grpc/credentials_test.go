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

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/testca"
)

// journal keeps what is logged.
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
		"a key for authority":  {good.Cert, good.Key, good.Key, "where only certificates belong"},
		"an empty authority":   {good.Cert, good.Key, file(nil), "no certificate"},
		"half the authorities": {good.Cert, good.Key, file(two[:len(two)-100]), "the last certificate is incomplete"},
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

// New files are used for the next connection, at both ends; those that there are
// live on.
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

	require.Zero(t, log.count("certificates were replaced"))
	ca.Renew(t, server, []string{WorkerURI("m")})
	require.ErrorContains(t, heartbeat(t, connect(t, address, aManager, clientOption), "w2"), `it is that of worker "m"`)
	require.NoError(t, heartbeat(t, connect(t, address, party{role: roleWorker, name: "m"}, clientOption), "w2"))
	require.NoError(t, heartbeat(t, before, "w1"), "a connection from before")
	require.Equal(t, 1, log.count("certificates were replaced"))
}

// While files are half replaced, the whole that was there before is used; that is
// said once.
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
	require.Equal(t, 1, log.count("certificates could not be loaded"))
	require.NoError(t, os.Remove(server.CA))
	works()
	require.Equal(t, 2, log.count("certificates could not be loaded"), "that is another reason")
	replace(server.CA, next.CA)
	replace(server.Key, next.Key)
	works()
	require.Equal(t, 1, log.count("certificates were replaced"))
}

// One authority follows another without a moment at which anybody is turned away:
// first both are accepted everywhere, then certificates are replaced, then the old
// authority is withdrawn.
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
	require.ErrorContains(t, err, `is signed by "CN=first", which is no authority accepted here`)
}

// A certificate that says something about itself that nobody knows, but must, is
// refused; and whatever is refused, nobody is asked whom it stands for.
func TestR3_IdentitiesOfVerifiedCertificatesOnly(t *testing.T) {
	ca := testca.New(t, "ours")
	asked := func(*x509.Certificate) []string {
		t.Error("asked whom a certificate stands for that is not accepted")
		return []string{WorkerURI("w1")}
	}
	address := serve(t, probed{}, with(t, ca.Manager(t), WithIdentities(asked)))
	files := testca.New(t, "another's").Worker(t, "w1")
	files.CA = ca.Manager(t).CA
	require.ErrorIs(t, heartbeat(t, connect(t, address, aManager, with(t, files)), "w1"), ErrCertificate)
}

// Handshakes may load files while others do, and while they are replaced.
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
