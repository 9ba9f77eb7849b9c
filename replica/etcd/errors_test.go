package etcd_test

// What users do wrong, and one line for each that says what to do.

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/f8949c05/orchestrator/internal/testca"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/etcd"
	"github.com/f8949c05/orchestrator/replica/etcd/embed"
)

// read reads a table once, for at most a second.
func read(t *testing.T, c *clientv3.Client, prefix string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := etcd.New(c, prefix, etcd.WithLogger(slog.New(slog.DiscardHandler))).Read(ctx, replica.Query{Self: 1})
	if err != nil {
		require.NotContains(t, err.Error(), "\n")
	}
	return err
}

func TestBadInput_Arguments(t *testing.T) {
	c := clientOf(t, startServer(t, embed.Config{}))
	for name, table := range map[string]*etcd.Table{
		"no client":   etcd.New(nil, "/pollers/"),
		"no prefix":   etcd.New(c, ""),
		"the root":    etcd.New(c, "/"),
		"long prefix": etcd.New(c, strings.Repeat("x", 201)),
		"nil option":  etcd.New(c, "/pollers/", nil),
		"nil logger":  etcd.New(c, "/pollers/", etcd.WithLogger(nil)),
	} {
		_, err := table.Read(t.Context(), replica.Query{Self: 1})
		require.ErrorIs(t, err, replica.ErrInvalid, name)
		_, err = table.Sync(t.Context(), replica.Update{})
		require.ErrorIs(t, err, replica.ErrInvalid, name)
		require.ErrorIs(t, table.Wait(t.Context(), replica.Query{}), replica.ErrInvalid, name)
	}
	require.NoError(t, read(t, c, "/pollers"))
	require.NoError(t, read(t, c, "/pollers/"), "the same table")
}

func TestBadInput_Users(t *testing.T) {
	s := startServer(t, embed.Config{BcryptCost: 4})
	secure(t, clientOf(t, s), "pollers", "secret", "/pollers/")
	root := clientOf(t, s, "root", "root")
	cfg := clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop(), Username: "pollers", Password: "wrong"}
	_, err := clientv3.New(cfg)
	require.ErrorContains(t, err, "authentication failed, invalid user ID or password")

	c := clientOf(t, s, "pollers", "secret")
	require.NoError(t, read(t, c, "/pollers"))
	err = read(t, c, "/others")
	require.ErrorContains(t, err, `user "pollers" may not read and write the keys below /others/: `+
		"etcdctl role grant-permission ROLE --prefix=true readwrite /others/, and etcdctl user grant-role pollers ROLE")
	require.ErrorContains(t, read(t, clientOf(t, s), "/pollers"), "etcd asks for a user: set Username and Password of the client's Config")

	_, err = root.RoleGrantPermission(t.Context(), "pollers", "/pollers/", "", clientv3.PermissionType(clientv3.PermRead))
	require.NoError(t, err)
	_, err = root.UserChangePassword(t.Context(), "pollers", "another")
	require.NoError(t, err)
	err = read(t, c, "/pollers")
	require.ErrorContains(t, err, `the name or the password of user "pollers" is wrong: see Username and Password of the client's Config`)
}

func TestBadInput_AnotherProgram(t *testing.T) {
	c := clientOf(t, startServer(t, embed.Config{}))
	for name, keys := range map[string][]string{
		"one key":            {"config"},
		"a similar one":      {"members/w1", "tasks/t"},
		"the same name":      {"table"},
		"among many of ours": {"members/1", "tasks/a", "zebra"},
	} {
		t.Run(name, func(t *testing.T) {
			prefix := unique()
			for _, key := range keys {
				_, err := c.Put(t.Context(), prefix+key, "theirs")
				require.NoError(t, err)
			}
			err := read(t, c, prefix)
			require.ErrorIs(t, err, replica.ErrForeign)
			require.ErrorContains(t, err, "another program has put the key "+prefix)
			require.ErrorContains(t, err, ": give this service a prefix of its own")
			resp, err := c.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
			require.NoError(t, err)
			require.EqualValues(t, len(keys), resp.Count, "nothing is written")
		})
	}
}

// Records of a later version of this library are left alone.
func TestBadInput_AnotherFormat(t *testing.T) {
	l := newLoss(t, clientOf(t, startServer(t, embed.Config{})))
	l.put("table", strings.Replace(l.keys()["table"], "replica 1", "replica 2", 1))
	_, err := l.a.try(t.Context(), nil)
	require.ErrorIs(t, err, replica.ErrForeign)
	require.ErrorContains(t, err, `another version of this library has written the key table, in the format "replica 2"`)
}

func TestBadInput_Connections(t *testing.T) {
	ca, stranger := testca.New(t, "ca"), testca.New(t, "stranger")
	files := ca.Issue(t, nil, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} })
	open, secure := startServer(t, embed.Config{}), startServer(t, embed.Config{TLS: &embed.TLS{CertFile: files.Cert, KeyFile: files.Key}})
	mutual := startServer(t, embed.Config{TLS: &embed.TLS{CertFile: files.Cert, KeyFile: files.Key, ClientCAFile: files.CA}})
	trusts := func(ca *testca.CA) *tls.Config {
		pool := x509.NewCertPool()
		pool.AddCert(ca.Certificate)
		return &tls.Config{RootCAs: pool}
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	const advice = "see TLS of the client's Config, and whether the endpoints begin with http or https"
	host := func(s *embed.Server) string { return s.Endpoint()[strings.Index(s.Endpoint(), "//")+2:] }
	for _, test := range []struct {
		name, endpoint string
		tls            *tls.Config
		want           []string
	}{
		{"nobody listens", l.Addr().String(), nil, []string{"etcd at " + l.Addr().String(), "connection refused"}},
		{"TLS to plaintext", "https://" + host(open), trusts(ca), []string{advice}},
		{"plaintext to TLS", "http://" + host(secure), nil, []string{advice}},
		{"unknown authority", secure.Endpoint(), trusts(stranger), []string{"certificate signed by unknown authority", advice}},
		{"no client certificate", mutual.Endpoint(), trusts(ca), []string{advice}},
		{"right", secure.Endpoint(), trusts(ca), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // it waits a second
			c := dial(t, clientv3.Config{Endpoints: []string{test.endpoint}, TLS: test.tls, Logger: zap.NewNop()})
			err := read(t, c, "/pollers")
			if test.want == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
			for _, want := range test.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// A call whose context has a cause names it.
func TestB5_Cause(t *testing.T) {
	l := newLoss(t, clientOf(t, startServer(t, embed.Config{})))
	why := errors.New("no answer within 3.75s")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err := l.a.try(ctx, nil)
	require.ErrorIs(t, err, why)
}
