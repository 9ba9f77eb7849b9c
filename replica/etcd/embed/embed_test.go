package embed_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/f8949c05/orchestrator/internal/proctest"
	"github.com/f8949c05/orchestrator/internal/testca"
	"github.com/f8949c05/orchestrator/replica/etcd/embed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a server, with short ticks unless cfg says otherwise.
func start(t *testing.T, cfg embed.Config) *embed.Server {
	t.Helper()
	if cfg.Tick == 0 {
		cfg.Tick = 10 * time.Millisecond
	}
	s, err := embed.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func client(t *testing.T, s *embed.Server) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestEmbed_KeepsWhatItAcknowledged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	first := start(t, embed.Config{Dir: dir})
	written, err := client(t, first).Put(t.Context(), "a", "\x00\xff")
	require.NoError(t, err)
	require.NoError(t, first.Close())
	require.NoError(t, first.Close())

	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	resp, err := client(t, start(t, embed.Config{Dir: dir})).Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, "\x00\xff", string(resp.Kvs[0].Value))
	require.Equal(t, written.Header.ClusterId, resp.Header.ClusterId)

	resp, err = client(t, start(t, embed.Config{})).Get(t.Context(), "a")
	require.NoError(t, err)
	require.Empty(t, resp.Kvs)
	require.NotEqual(t, written.Header.ClusterId, resp.Header.ClusterId)
}

func TestEmbed_CloseDoesNotWaitForClients(t *testing.T) {
	s := start(t, embed.Config{NoFsync: true})
	c := client(t, s)
	watch := c.Watch(t.Context(), "a", clientv3.WithCreatedNotify())
	require.True(t, (<-watch).Created)

	requireClosed(t, s)
}

// requireClosed fails the test if Close takes as long as etcd's own, which is five seconds or more.
func requireClosed(t *testing.T, s *embed.Server) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = s.Close()
	}()
	select {
	case <-closed:
	case <-time.After(3 * time.Second):
		require.Fail(t, "Close waits for a watch")
	}
}

// With TLS, streams that begin while the server stops are cut off too.
func TestEmbed_CloseDoesNotWaitForClientsThatReturn(t *testing.T) {
	ca := testca.New(t, "ca")
	files := ca.Issue(t, nil, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} })
	pool := x509.NewCertPool()
	pool.AddCert(ca.Certificate)
	s := start(t, embed.Config{NoFsync: true, TLS: &embed.TLS{CertFile: files.Cert, KeyFile: files.Key}})
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop(), TLS: &tls.Config{RootCAs: pool}})
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var streams sync.WaitGroup
	defer streams.Wait()
	defer cancel()
	began := make(chan struct{}, 100)
	for range 20 {
		streams.Go(func() {
			for ctx.Err() == nil {
				stream, err := pb.NewWatchClient(c.ActiveConnection()).Watch(ctx)
				if err != nil {
					continue
				}
				select {
				case began <- struct{}{}:
				default:
				}
				_, _ = stream.Recv()
			}
		})
	}
	for range 20 {
		<-began
	}
	requireClosed(t, s)
}

func TestEmbed_TemporaryFolderIsRemoved(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	s := start(t, embed.Config{NoFsync: true})
	folders, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Len(t, folders, 1)
	require.NoError(t, s.Close())
	folders, err = os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, folders)
}

func TestEmbed_ListensWhereItIsTold(t *testing.T) {
	addr := proctest.FreeAddrs(t, 1)[0]
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)

	_, err = embed.Start(t.Context(), embed.Config{Listen: addr})
	require.ErrorContains(t, err, strings.Split(addr, ":")[1])

	require.NoError(t, l.Close())
	require.Equal(t, "http://"+addr, start(t, embed.Config{Listen: addr}).Endpoint())
	_, port, err := net.SplitHostPort(start(t, embed.Config{Listen: "0.0.0.0:0"}).Endpoint()[len("http://"):])
	require.NoError(t, err)
	require.NotEqual(t, "0", port)
}

func TestEmbed_BadConfig(t *testing.T) {
	for want, cfg := range map[string]embed.Config{
		"Listen":          {Listen: "localhost"},
		"Tick":            {Tick: time.Hour},
		"BcryptCost":      {BcryptCost: 3},
		"Compaction":      {Compaction: time.Millisecond},
		"TLS certificate": {TLS: &embed.TLS{CertFile: "nowhere", KeyFile: "nowhere"}},
	} {
		_, err := embed.Start(t.Context(), cfg)
		require.ErrorContains(t, err, want)
	}
}

// The normal life of a server logs no errors.
func TestEmbed_CloseIsNoError(t *testing.T) {
	var errors strings.Builder
	logger := slog.New(slog.NewTextHandler(&errors, &slog.HandlerOptions{Level: slog.LevelError}))
	// With short ticks, etcd may log that it has no term yet.
	s := start(t, embed.Config{Logger: logger, Tick: 100 * time.Millisecond})
	c := client(t, s)
	_, err := c.Put(t.Context(), "a", "b")
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.Empty(t, errors.String())
}
