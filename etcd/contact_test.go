package etcd_test

// What goes wrong at the first contact, and what a server may ask for.

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/internal/proxy"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// firstContacts are the calls that may be the first.
func firstContacts(t *testing.T, c *clientv3.Client, opts ...etcd.Option) map[string]func(context.Context) error {
	t.Helper()
	var electionOpts []etcd.ElectionOption
	for _, opt := range opts {
		electionOpts = append(electionOpts, opt)
	}
	e, err := etcd.NewElection(c, "a", electionOpts...)
	require.NoError(t, err)
	m, err := etcd.NewMembership(c, opts...)
	require.NoError(t, err)
	o, err := etcd.NewOwners(c, opts...)
	require.NoError(t, err)
	r := newRegistry(t, c, opts...)
	return map[string]func(context.Context) error{
		"Election.Run": func(ctx context.Context) error {
			return e.Run(ctx, func(context.Context, *etcd.Leadership) error { return nil })
		},
		"Election.Leader":  func(ctx context.Context) error { _, err := e.Leader(ctx); return err },
		"Membership.List":  func(ctx context.Context) error { _, err := m.List(ctx); return err },
		"Membership.Watch": func(ctx context.Context) error { return m.Watch(ctx, func([]etcd.MemberState) {}) },
		"Owners.Run":       o.Run,
		"Registry.Get":     func(ctx context.Context) error { _, err := r.Get(ctx, "a"); return err },
		"Registry.Watch":   func(ctx context.Context) error { return r.Watch(ctx, func([]etcd.ItemChange) {}) },
	}
}

func TestE1_UnreachableEndpointsAreNamed(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	require.NoError(t, err)
	defer silent.Close()
	for name, endpoint := range map[string]string{"nobody there": nowhere(t), "silence": silent.Addr().String()} {
		c := newClient(t, clientConfig(endpoint))
		for call, first := range firstContacts(t, c, etcd.WithDialTimeout(100*time.Millisecond)) {
			began := time.Now()
			err := first(t.Context())
			require.ErrorIs(t, err, etcd.ErrUnreachable, "%s: %s", name, call)
			require.ErrorContains(t, err, endpoint)
			require.Less(t, time.Since(began), 5*time.Second)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := newRegistry(t, c).Get(ctx, "a")
		cancel()
		require.ErrorIs(t, err, etcd.ErrUnreachable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, endpoint)
	}
}

func TestE1_UnreachableSaysWhy(t *testing.T) {
	_, err := newRegistry(t, newClient(t, clientConfig(nowhere(t))), etcd.WithDialTimeout(time.Second)).Get(t.Context(), "a")
	require.ErrorIs(t, err, etcd.ErrUnreachable)
	require.ErrorContains(t, err, "connection refused")
}

func TestE1_FirstContactIsMadeAgain(t *testing.T) {
	c, p := startProxy(t, startServer(t, embed.Config{}))
	r := newRegistry(t, c, etcd.WithDialTimeout(200*time.Millisecond))
	p.Cut(proxy.Both)
	_, err := r.Get(t.Context(), "a")
	require.ErrorIs(t, err, etcd.ErrUnreachable)
	p.Heal()
	_, err = newRegistry(t, c).Get(t.Context(), "a")
	require.ErrorIs(t, err, etcd.ErrNotFound)
	_, err = r.Get(t.Context(), "a")
	require.ErrorIs(t, err, etcd.ErrNotFound)
}

func TestE1_ForeignPrefix(t *testing.T) {
	c := startEtcd(t)
	put := func(key, value string) {
		t.Helper()
		_, err := c.Put(t.Context(), key, value)
		require.NoError(t, err)
	}
	put("/theirs/config", "x")
	put("/newer/format", "orchestrator 2")
	put("/work/format", "orchestrator 1")
	put("/work/registry/a", "x")
	for prefix, want := range map[string]string{"/theirs/": "/theirs/ holds keys", "/newer/": `"orchestrator 2"`} {
		for call, first := range firstContacts(t, c, etcd.WithPrefix(prefix)) {
			err := first(t.Context())
			require.ErrorIs(t, err, etcd.ErrForeignPrefix, call)
			require.ErrorContains(t, err, want)
		}
	}
	_, err := newRegistry(t, c, etcd.WithPrefix("/empty/")).Draining(t.Context())
	require.NoError(t, err)
	item, err := newRegistry(t, c).Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, "x", string(item.Content))
	resp, err := c.Get(t.Context(), "/theirs/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, resp.Kvs, 1, "nothing was written there")
}

func TestE1_BadOptions(t *testing.T) {
	c := startEtcd(t)
	_, err := etcd.NewElection(c, "", etcd.WithPrefix("work"), etcd.WithDialTimeout(0), etcd.WithLeaseDuration(1500*time.Millisecond), nil)
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	for _, part := range []string{"candidate", `"work"`, "WithDialTimeout(0s)", "WithLeaseDuration", "1.5s", "nil"} {
		require.ErrorContains(t, err, part) // all at once
	}
	for _, construct := range []func(...etcd.Option) error{
		func(o ...etcd.Option) error { _, err := etcd.NewRegistry(c, o...); return err },
		func(o ...etcd.Option) error { _, err := etcd.NewMembership(c, o...); return err },
		func(o ...etcd.Option) error { _, err := etcd.NewOwners(c, o...); return err },
	} {
		require.ErrorIs(t, construct(etcd.WithPrefix("work")), orchestrator.ErrInvalid)
		require.ErrorIs(t, construct(nil), orchestrator.ErrInvalid)
		require.NoError(t, construct(etcd.WithLogger(nil)))
	}
}

func TestE2_LeaseShorterThanEtcdGrants(t *testing.T) {
	s := startServer(t, embed.Config{Tick: 100 * time.Millisecond}) // etcd's default
	c := newClient(t, clientConfig(s.Endpoint()))
	k := stand(t, c, "a", etcd.WithLeaseDuration(time.Second))
	err := receive(t, k.result)
	require.ErrorIs(t, err, etcd.ErrLeaseTooShort)
	require.ErrorContains(t, err, "asked for 1s, granted 2s")
	leases, err := c.Leases(t.Context())
	require.NoError(t, err)
	require.Empty(t, leases.Leases, "what was granted is given back")
}

// certificates makes an authority, and a certificate and key that it has signed,
// for a server on this machine or for a client.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir(), pool: x509.NewCertPool()}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	a.key = key
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	a.pool.AddCert(a.cert)
	a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	require.NoError(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

// sign returns the files of a certificate and its key.
func (a *authority) sign(name string) (certFile, keyFile string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	require.NoError(a.t, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(a.t, err)
	return a.write(name+".pem", "CERTIFICATE", der), a.write(name+".key", "EC PRIVATE KEY", private)
}

func TestE1_TLS(t *testing.T) {
	ca := newAuthority(t)
	certFile, keyFile := ca.sign("server")
	s := startServer(t, embed.Config{TLS: &embed.TLS{
		CertFile: certFile, KeyFile: keyFile, ClientCAFile: filepath.Join(ca.dir, "ca.pem"),
	}})
	require.Regexp(t, "^https://", s.Endpoint())
	clientCert, err := tls.LoadX509KeyPair(ca.sign("client"))
	require.NoError(t, err)
	connect := func(c *tls.Config) *clientv3.Client {
		cfg := clientConfig(s.Endpoint())
		cfg.TLS = c
		return newClient(t, cfg)
	}

	c := connect(&tls.Config{RootCAs: ca.pool, Certificates: []tls.Certificate{clientCert}})
	stand(t, c, "a").elected()
	_, err = newRegistry(t, c).Create(t.Context(), etcd.Item{Name: "a"})
	require.NoError(t, err)

	stranger := newAuthority(t)
	strangerCert, err := tls.LoadX509KeyPair(stranger.sign("stranger"))
	require.NoError(t, err)
	for name, x := range map[string]struct {
		cfg *tls.Config
		why string // what the server has to say may be lost with the connection
	}{
		"no client certificate":        {&tls.Config{RootCAs: ca.pool}, ""},
		"a stranger's certificate":     {&tls.Config{RootCAs: ca.pool, Certificates: []tls.Certificate{strangerCert}}, ""},
		"a server that nobody vouches": {&tls.Config{RootCAs: stranger.pool, Certificates: []tls.Certificate{clientCert}}, "certificate signed by unknown authority"},
	} {
		_, err := newRegistry(t, connect(x.cfg), etcd.WithDialTimeout(time.Second)).Get(t.Context(), "a")
		require.ErrorIs(t, err, etcd.ErrUnreachable, name)
		require.ErrorContains(t, err, s.Endpoint(), name)
		require.ErrorContains(t, err, x.why, name)
	}
}

func TestE1_UserAndPassword(t *testing.T) {
	s := startServer(t, embed.Config{})
	root := newClient(t, clientConfig(s.Endpoint()))
	ctx := t.Context()
	for _, step := range []func() error{
		func() error { _, err := root.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := root.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := root.UserAdd(ctx, "app", "password"); return err },
		func() error { _, err := root.RoleAdd(ctx, "work"); return err },
		func() error {
			_, err := root.RoleGrantPermission(ctx, "work", "/work/", clientv3.GetPrefixRangeEnd("/work/"), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := root.UserGrantRole(ctx, "app", "work"); return err },
		func() error { _, err := root.AuthEnable(ctx); return err },
	} {
		require.NoError(t, step())
	}

	cfg := clientConfig(s.Endpoint())
	cfg.Username, cfg.Password = "app", "wrong"
	_, err := clientv3.New(cfg)
	require.ErrorContains(t, err, "authentication failed")
	_, err = newRegistry(t, root).Get(ctx, "a") // as nobody
	require.ErrorContains(t, err, "user name is empty")

	// The right to the prefix is all that is needed.
	cfg.Password = "password"
	c := newClient(t, cfg)
	k := stand(t, c, "a", etcd.WithLeaseDuration(10*time.Second)) // etcd's cores are busy with passwords
	l := k.elected()
	r := newRegistry(t, c)
	h := watch(t, r)
	item, err := r.Create(ctx, etcd.Item{Name: "a"})
	require.NoError(t, err)
	h.until(t, func(m map[string]etcd.ItemChange) bool { return m["a"].Revision == item.Revision })
	require.NoError(t, r.Feed(ctx, l, newTold()))
	k.resign <- nil
	require.NoError(t, receive(t, k.result))

	_, err = newRegistry(t, c, etcd.WithPrefix("/other/")).Get(ctx, "a")
	require.ErrorContains(t, err, "permission denied")
}
