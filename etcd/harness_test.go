package etcd_test

// Shared helpers: a real server, and clients that reach it directly or through a
// proxy.

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startServer starts a server with short ticks and without fsync.
func startServer(t testing.TB, cfg embed.Config) *embed.Server {
	t.Helper()
	cfg.NoFsync = true
	if cfg.Tick == 0 {
		cfg.Tick = 10 * time.Millisecond
	}
	s, err := embed.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// clientConfig returns the configuration of a client that detects connection losses
// fast and reconnects fast.
func clientConfig(endpoint string) clientv3.Config {
	return clientv3.Config{
		Endpoints: []string{endpoint}, Logger: zap.NewNop(),
		DialKeepAliveTime: 500 * time.Millisecond, DialKeepAliveTimeout: 500 * time.Millisecond,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 100 * time.Millisecond},
			MinConnectTimeout: time.Second,
		})},
	}
}

func newClient(t testing.TB, cfg clientv3.Config) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// startEtcd starts a server and returns a client.
func startEtcd(t testing.TB) *clientv3.Client {
	t.Helper()
	return newClient(t, clientConfig(startServer(t, embed.Config{}).Endpoint()))
}

func hostPort(s *embed.Server) string {
	_, addr, _ := strings.Cut(s.Endpoint(), "://")
	return addr
}

// startProxy returns a client that reaches the server through a proxy, and the
// proxy.
func startProxy(t testing.TB, s *embed.Server) (*clientv3.Client, *netfault.Proxy) {
	t.Helper()
	p, err := netfault.New(hostPort(s))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return newClient(t, clientConfig(p.Addr())), p
}

// nowhere returns an address without a listener.
func nowhere(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// soon is the time limit for events that usually take milliseconds, on a busy
// machine.
const soon = 20 * time.Second

// receive returns the next value of c, and fails the test if none comes soon.
func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(soon):
		require.FailNow(t, "no value received")
		panic("unreachable")
	}
}

var errEnough = errors.New("enough")

// candidate is a running election that leads until it is told to stop.
type candidate struct {
	t      testing.TB
	e      *etcd.Election
	leads  chan reign  // each leadership
	since  time.Time   // begin of the leadership that elected returned last
	over   chan ending // end of each leadership, as lead saw it
	resign chan error  // the next result of lead
	stop   context.CancelCauseFunc
	result chan error // the result of Run
}

type reign struct {
	l  *etcd.Leadership
	at time.Time
}

type ending struct {
	cause error
	at    time.Time
}

func stand(t testing.TB, c *clientv3.Client, name string, opts ...etcd.ElectionOption) *candidate {
	t.Helper()
	e, err := etcd.NewElection(c, name, append([]etcd.ElectionOption{etcd.WithLeaseDuration(2 * time.Second)}, opts...)...)
	require.NoError(t, err)
	ctx, stop := context.WithCancelCause(t.Context())
	k := &candidate{
		t: t, e: e, stop: stop,
		leads: make(chan reign, 100), over: make(chan ending, 100),
		resign: make(chan error), result: make(chan error, 1),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.result <- e.Run(ctx, k.lead)
	}()
	t.Cleanup(func() {
		stop(errEnough)
		<-done
	})
	return k
}

func (k *candidate) lead(ctx context.Context, l *etcd.Leadership) error {
	k.leads <- reign{l, time.Now()}
	select {
	case err := <-k.resign:
		return err
	case <-ctx.Done():
		k.over <- ending{context.Cause(ctx), time.Now()}
		return context.Cause(ctx)
	}
}

// elected waits until the candidate leads, and returns the leadership.
func (k *candidate) elected() *etcd.Leadership {
	k.t.Helper()
	led := receive(k.t, k.leads)
	k.since = led.at
	return led.l
}
