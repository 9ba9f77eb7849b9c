package etcd

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// Keepalives share one stream, because a client with a password logs in for each
// stream. A timeout makes the next keepalive open another stream.
func TestW5_KeepalivesShareAStream(t *testing.T) {
	s, err := embed.Start(t.Context(), embed.Config{NoFsync: true, Tick: 10 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	p, err := netfault.New(strings.TrimPrefix(s.Endpoint(), "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
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

	acknowledged := make(chan struct{}, 100)
	sending := func() func() { return func() { acknowledged <- struct{}{} } }
	h, err := grant(t.Context(), c, slog.New(slog.DiscardHandler), 2*time.Second, sending)
	require.NoError(t, err)
	ctx, stop := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	kept := make(chan error, 1)
	go func() { kept <- h.keep(ctx) }()
	for range 5 {
		<-acknowledged
	}
	require.EqualValues(t, 1, streams.Load())

	p.Cut(netfault.Down)
	<-time.After(h.length / 2)
	p.Heal()
	for len(acknowledged) > 0 {
		<-acknowledged
	}
	<-acknowledged
	require.Greater(t, streams.Load(), int64(1))
	stop(enough)
	require.ErrorIs(t, <-kept, enough)
}
