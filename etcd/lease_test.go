package etcd

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/internal/netfault"
)

// startProxy starts a server, and returns a proxy before it.
func startProxy(t *testing.T) *netfault.Proxy {
	t.Helper()
	s, err := embed.Start(t.Context(), embed.Config{NoFsync: true, Tick: 2 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	p, err := netfault.New(strings.TrimPrefix(s.Endpoint(), "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// startDelayed returns a client whose answers are delayed.
func startDelayed(t *testing.T, by time.Duration) (*clientv3.Client, *netfault.Proxy) {
	t.Helper()
	p := startProxy(t)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{p.Addr()}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	_, err = c.Get(t.Context(), "connected")
	require.NoError(t, err)
	p.Delay(netfault.Down, by)
	return c, p
}

// TestW5_LeaseCountsFromWhenItWasSent checks that the stamp is taken before a
// keepalive is sent, so the whole round trip lies between stamp and acknowledgement.
func TestW5_LeaseCountsFromWhenItWasSent(t *testing.T) {
	const late = 200 * time.Millisecond
	c, _ := startDelayed(t, late)
	took := make(chan time.Duration, 100)
	sending := func() func() {
		sent := time.Now()
		return func() { took <- time.Since(sent) }
	}
	h, err := grant(t.Context(), c, slog.New(slog.DiscardHandler), 2*time.Second, sending)
	require.NoError(t, err)
	require.GreaterOrEqual(t, <-took, late)

	ctx, stop := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	kept := make(chan error, 1)
	go func() { kept <- h.keep(ctx) }()
	for range 3 {
		require.GreaterOrEqual(t, <-took, late)
	}
	stop(enough)
	require.ErrorIs(t, <-kept, enough)
	h.revoke(t.Context())
	_, err = c.KeepAliveOnce(t.Context(), h.id)
	require.ErrorContains(t, err, "not found")
}

// TestW5_LostAnswersPutNothingOff checks that a keepalive without an answer does not
// count.
func TestW5_LostAnswersPutNothingOff(t *testing.T) {
	c, p := startDelayed(t, 0)
	sent, acknowledged := make(chan struct{}, 100), make(chan struct{}, 100)
	h, err := grant(t.Context(), c, slog.New(slog.DiscardHandler), time.Second, func() func() {
		sent <- struct{}{}
		return func() { acknowledged <- struct{}{} }
	})
	require.NoError(t, err)
	<-sent
	<-acknowledged
	p.Cut(netfault.Down)
	ctx, stop := context.WithCancel(t.Context())
	kept := make(chan error, 1)
	go func() { kept <- h.keep(ctx) }()
	for range 3 {
		<-sent // it keeps trying
	}
	stop()
	require.ErrorIs(t, <-kept, context.Canceled)
	require.Empty(t, acknowledged)
	p.Heal()
}

func TestW5_LeaseThatIsGone(t *testing.T) {
	c, _ := startDelayed(t, 0)
	h, err := grant(t.Context(), c, slog.New(slog.DiscardHandler), time.Second, func() func() { return func() {} })
	require.NoError(t, err)
	h.revoke(t.Context())
	require.ErrorIs(t, h.keep(t.Context()), errLeaseGone)
}

// Keepalives share one stream, because a client with a password logs in for each
// stream. A timeout makes the next keepalive open another stream.
func TestW5_KeepalivesShareAStream(t *testing.T) {
	p := startProxy(t)
	var streams atomic.Int64
	cfg := ClientConfig(p.Addr())
	cfg.DialOptions = append(cfg.DialOptions, grpc.WithChainStreamInterceptor(
		func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if strings.HasSuffix(method, "/LeaseKeepAlive") {
				streams.Add(1)
			}
			return next(ctx, desc, cc, method, opts...)
		}))
	c, err := clientv3.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })

	const length = 2 * time.Second
	var sent, inTime atomic.Int64
	acknowledged := make(chan struct{}, 100)
	sending := func() func() {
		sent.Add(1)
		at := time.Now()
		return func() {
			if time.Since(at) < length/6 {
				inTime.Add(1)
			}
			acknowledged <- struct{}{}
		}
	}
	h, err := grant(t.Context(), c, slog.New(slog.DiscardHandler), length, sending)
	require.NoError(t, err)
	ctx, stop := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	kept := make(chan error, 1)
	go func() { kept <- h.keep(ctx) }()
	for range 5 {
		<-acknowledged
	}
	opened := streams.Load()
	late := sent.Load() - inTime.Load() // on a busy machine
	require.LessOrEqual(t, opened, 1+late)

	p.Cut(netfault.Down)
	<-time.After(h.length / 2)
	p.Heal()
	for len(acknowledged) > 0 {
		<-acknowledged
	}
	<-acknowledged
	require.Greater(t, streams.Load(), opened)
	stop(enough)
	require.ErrorIs(t, <-kept, enough)
}
