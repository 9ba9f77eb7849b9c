package etcd_test

// Failures of the first contact, TLS and users.

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"maps"
	"math"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/internal/proctest"
	"github.com/f8949c05/orchestrator/worker"
)

// firstContacts returns the calls that may make the first contact: those that ask
// once, and those that retry until their context ends.
func firstContacts(t *testing.T, c *clientv3.Client, opts ...etcd.Option) (once, goOn map[string]func(context.Context) error) {
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
	once = map[string]func(context.Context) error{
		"Election.Leader": func(ctx context.Context) error { _, err := e.Leader(ctx); return err },
		"Membership.List": func(ctx context.Context) error { _, err := m.List(ctx); return err },
		"Registry.Get":    func(ctx context.Context) error { _, err := r.Get(ctx, "a"); return err },
	}
	goOn = map[string]func(context.Context) error{
		"Election.Run": func(ctx context.Context) error {
			return e.Run(ctx, func(context.Context, *etcd.Leadership) error { return nil })
		},
		"Member.Run":       newMember(t, c, "a", opts...).Run,
		"Membership.Watch": func(ctx context.Context) error { return m.Watch(ctx, func([]etcd.MemberState) {}) },
		"Owners.Run":       o.Run,
		"Registry.Watch":   func(ctx context.Context) error { return r.Watch(ctx, func([]etcd.ItemChange) {}) },
	}
	return once, goOn
}

// newMember returns a member without tasks.
func newMember(t *testing.T, c *clientv3.Client, name string, opts ...etcd.Option) *etcd.Member {
	t.Helper()
	w, err := worker.New(func(ctx context.Context, _ string) error { <-ctx.Done(); return nil }, worker.WithLease(2*time.Second, 100*time.Millisecond))
	require.NoError(t, err)
	var memberOpts []etcd.MemberOption
	for _, opt := range opts {
		memberOpts = append(memberOpts, opt)
	}
	m, err := etcd.NewMember(c, name, w, memberOpts...)
	require.NoError(t, err)
	return m
}

func TestE1_UnreachableEndpointsAreNamed(t *testing.T) {
	t.Parallel() // it mostly waits, without a lease
	waited := proctest.MeasureWaiting(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, but never answers
	require.NoError(t, err)
	defer silent.Close()
	for name, endpoint := range map[string]string{"no listener": nowhere(t), "silence": silent.Addr().String()} {
		c := newClient(t, clientConfig(endpoint))
		once, _ := firstContacts(t, c, etcd.WithDialTimeout(100*time.Millisecond))
		for call, first := range once {
			began, before := time.Now(), waited()
			err := first(t.Context())
			require.ErrorIs(t, err, etcd.ErrUnreachable, "%s: %s", name, call)
			require.ErrorContains(t, err, endpoint)
			require.Less(t, time.Since(began)-(waited()-before), 5*time.Second)
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
	t.Parallel() // it mostly waits, without a lease
	_, err := newRegistry(t, newClient(t, clientConfig(nowhere(t))), etcd.WithDialTimeout(time.Second)).Get(t.Context(), "a")
	require.ErrorIs(t, err, etcd.ErrUnreachable)
	require.ErrorContains(t, err, "connection refused")
}

// A transient error is retried until the dial timeout ends, and only then makes etcd
// unreachable.
func TestE1_AnErrorThatMayPassIsTriedAgain(t *testing.T) {
	t.Parallel() // it mostly waits, without a lease
	fake := &busyKV{}
	fake.left.Store(3)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	etcdserverpb.RegisterKVServer(server, fake)
	serving := make(chan error, 1)
	go func() { serving <- server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); require.NoError(t, <-serving) })
	c := newClient(t, clientConfig(l.Addr().String()))
	_, err = newRegistry(t, c).Get(t.Context(), "a")
	require.ErrorIs(t, err, etcd.ErrForeignPrefix, "the later answer counts")

	fake.left.Store(math.MaxInt64)
	_, err = newRegistry(t, c, etcd.WithDialTimeout(300*time.Millisecond)).Get(t.Context(), "a")
	require.ErrorIs(t, err, etcd.ErrUnreachable)
	require.ErrorContains(t, err, "too many requests")
}

// busyKV is an etcd that fails at first.
type busyKV struct {
	etcdserverpb.UnimplementedKVServer
	left atomic.Int64 // failures left
}

func (b *busyKV) Range(context.Context, *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	if b.left.Add(-1) >= 0 {
		return nil, rpctypes.ErrGRPCRequestTooManyRequests
	}
	return &etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{}, Kvs: []*mvccpb.KeyValue{{Value: []byte("theirs")}}, Count: 1}, nil
}

// An etcd that starts after its clients, or restarts while they start, ends none of
// them. Not every attempt is logged.
func TestE8_AnEtcdThatStartsLater(t *testing.T) {
	for name, earlier := range map[string]func(*testing.T, string) (address string){
		"for the first time": func(t *testing.T, _ string) string { return nowhere(t) },
		"again": func(t *testing.T, dir string) string {
			s := startServer(t, embed.Config{Dir: dir})
			_, err := newRegistry(t, newClient(t, clientConfig(s.Endpoint()))).Create(t.Context(), etcd.Item{Name: "t"})
			require.NoError(t, err)
			require.NoError(t, s.Close())
			return hostPort(s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			address := earlier(t, dir)
			c := newClient(t, clientConfig(address))
			var log countingLog
			logger := slog.New(slog.NewTextHandler(&log, nil))
			_, goOn := firstContacts(t, c, etcd.WithDialTimeout(20*time.Millisecond), etcd.WithLogger(logger))
			ctx, stop := context.WithCancelCause(t.Context())
			ended := make(chan error, len(goOn))
			for _, first := range goOn {
				go func() { ended <- first(ctx) }()
			}
			const warning = `level=WARN msg="etcd does not answer, retrying"`
			require.Eventually(t, func() bool { return log.count(warning) == len(goOn) }, soon, time.Millisecond)
			<-time.After(300 * time.Millisecond) // many attempts
			require.Empty(t, ended)
			require.Equal(t, len(goOn), log.count(warning), "each call warns once")

			s := startServer(t, embed.Config{Dir: dir, Listen: address})
			other := newClient(t, clientConfig(s.Endpoint()))
			require.Eventually(t, func() bool {
				got, err := other.Get(t.Context(), "/work/members/a")
				return err == nil && len(got.Kvs) == 1
			}, soon, 10*time.Millisecond)
			require.NoError(t, receive(t, ended), "the candidate was elected, and lead returned nil")
			require.Eventually(t, func() bool { return log.count(`level=INFO msg="etcd answers"`) == len(goOn) }, soon, time.Millisecond)
			stop(errEnough)
			for range len(goOn) - 1 {
				require.ErrorIs(t, receive(t, ended), errEnough)
			}
		})
	}
}

// countingLog counts texts in a log.
type countingLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *countingLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *countingLog) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

func TestE1_FirstContactIsMadeAgain(t *testing.T) {
	t.Parallel() // it mostly waits, without a lease
	c, p := startProxy(t, startServer(t, embed.Config{}))
	r := newRegistry(t, c, etcd.WithDialTimeout(200*time.Millisecond))
	p.Cut(netfault.Both)
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
		once, goOn := firstContacts(t, c, etcd.WithPrefix(prefix))
		maps.Copy(once, goOn)
		for call, first := range once {
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
	require.Len(t, resp.Kvs, 1, "nothing must be written")
}

func TestE1_BadOptions(t *testing.T) {
	c := startEtcd(t)
	_, err := etcd.NewElection(c, "", etcd.WithPrefix("work"), etcd.WithDialTimeout(0), etcd.WithLeaseDuration(1500*time.Millisecond), nil)
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	for _, part := range []string{"candidate", `"work"`, "WithDialTimeout(0s)", "WithLeaseDuration", "1.5s", "nil"} {
		require.ErrorContains(t, err, part) // all errors are joined
	}
	for _, construct := range []func(...etcd.Option) error{
		func(o ...etcd.Option) error { _, err := etcd.NewRegistry(c, o...); return err },
		func(o ...etcd.Option) error { _, err := etcd.NewMembership(c, o...); return err },
		func(o ...etcd.Option) error { _, err := etcd.NewOwners(c, o...); return err },
	} {
		require.ErrorIs(t, construct(etcd.WithPrefix("work")), orchestrator.ErrInvalid)
		require.ErrorIs(t, construct(nil), orchestrator.ErrInvalid)
		require.NoError(t, construct(etcd.WithOptions(etcd.WithPrefix("/a/"))))
		require.ErrorContains(t, construct(etcd.WithOptions(etcd.WithPrefix("work"), nil)), "WithPrefix")
		require.ErrorContains(t, construct(etcd.WithOptions(etcd.WithPrefix("work"), nil)), "etcd.Option is nil")
		require.NoError(t, construct(etcd.WithLogger(nil)))
	}
}

func TestE2_LeaseShorterThanEtcdGrants(t *testing.T) {
	t.Parallel()                                                    // it mostly waits, without a lease
	s := startServer(t, embed.Config{Tick: 100 * time.Millisecond}) // etcd's default
	c := newClient(t, clientConfig(s.Endpoint()))
	k := stand(t, c, "a", etcd.WithLeaseDuration(time.Second))
	err := receive(t, k.result)
	require.ErrorIs(t, err, etcd.ErrLeaseTooShort)
	require.ErrorContains(t, err, "asked for 1s, granted 2s")
	leases, err := c.Leases(t.Context())
	require.NoError(t, err)
	require.Empty(t, leases.Leases, "the lease must be revoked")
}

// authority signs certificates for servers and clients on this machine.
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

// sign creates a certificate and its key, and returns their files.
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
	t.Parallel() // it mostly waits, under a long lease
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
	stand(t, c, "a", etcd.WithLeaseDuration(time.Minute)).elected()
	_, err = newRegistry(t, c).Create(t.Context(), etcd.Item{Name: "a"})
	require.NoError(t, err)

	stranger := newAuthority(t)
	strangerCert, err := tls.LoadX509KeyPair(stranger.sign("stranger"))
	require.NoError(t, err)
	open := startServer(t, embed.Config{})
	oneWay := startServer(t, embed.Config{TLS: &embed.TLS{CertFile: certFile, KeyFile: keyFile}})
	trusted := &tls.Config{RootCAs: ca.pool, Certificates: []tls.Certificate{clientCert}}
	mutual := hostPort(s) + " speaks TLS and requires a client certificate"
	type attempt struct {
		endpoint string
		cfg      *tls.Config
		why      string
	}
	attempts := map[string]attempt{
		"no client certificate":              {s.Endpoint(), &tls.Config{RootCAs: ca.pool}, mutual},
		"a stranger's certificate":           {s.Endpoint(), &tls.Config{RootCAs: ca.pool, Certificates: []tls.Certificate{strangerCert}}, mutual},
		"an authority that is not trusted":   {s.Endpoint(), &tls.Config{RootCAs: stranger.pool, Certificates: []tls.Certificate{clientCert}}, "certificate signed by unknown authority"},
		"plaintext to mutual TLS":            {hostPort(s), nil, mutual},
		"plaintext to TLS":                   {hostPort(oneWay), nil, hostPort(oneWay) + " speaks TLS but the client plaintext"},
		"TLS to plaintext":                   {hostPort(open), trusted, hostPort(open) + " speaks plaintext but the client TLS"},
		"TLS by the scheme of the endpoint":  {"https://" + hostPort(open), nil, hostPort(open) + " speaks plaintext but the client TLS"},
		"plaintext by the endpoint's scheme": {"http://" + hostPort(oneWay), trusted, hostPort(oneWay) + " speaks TLS but the client plaintext"},
	}
	type result struct {
		name string
		err  error
	}
	results := make(chan result, len(attempts)) // at the same time, because each takes the whole timeout
	for name, x := range attempts {
		cfg := clientConfig(x.endpoint)
		cfg.TLS = x.cfg
		r := newRegistry(t, newClient(t, cfg), etcd.WithDialTimeout(time.Second))
		go func() {
			_, err := r.Get(t.Context(), "a")
			// The endpoint is asked for a second at most, in which a busy machine may not
			// answer. Only then may the error say no more than that.
			for began := time.Now(); errors.Is(err, etcd.ErrUnreachable) && !strings.Contains(err.Error(), x.why) && time.Since(began) < soon; {
				_, err = r.Get(t.Context(), "a")
			}
			results <- result{name, err}
		}()
	}
	for range attempts {
		got := <-results
		require.ErrorIs(t, got.err, etcd.ErrUnreachable, got.name)
		require.ErrorContains(t, got.err, attempts[got.name].endpoint, got.name)
		require.ErrorContains(t, got.err, attempts[got.name].why, got.name)
	}
}

func TestE1_UserAndPassword(t *testing.T) {
	s := startServer(t, embed.Config{BcryptCost: 4})
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
	once, goOn := firstContacts(t, root) // without a user
	maps.Copy(once, goOn)
	for call, first := range once {
		err := first(ctx)
		require.ErrorContains(t, err, "user name is empty", call)
		require.NotErrorIs(t, err, etcd.ErrUnreachable, call)
	}

	// The user needs only the right to the prefix.
	cfg.Password = "password"
	c := newClient(t, cfg)
	k := stand(t, c, "a", etcd.WithLeaseDuration(10*time.Second))
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
