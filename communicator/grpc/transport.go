package grpc

// Connections: how servers listen and clients dial, and their limits.

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
)

const (
	// handshakeTimeout is the time to establish a connection. A refused client is
	// disconnected when it is over.
	handshakeTimeout = 5 * time.Second
	// connectTimeout is the time of one attempt to connect to a machine. A short one
	// finds a network that has recovered sooner.
	connectTimeout = time.Second
	// A silent peer is pinged, and is dead if it does not answer.
	keepaliveTime, keepaliveTimeout = 10 * time.Second, 3 * time.Second
	// Connections are renewed regularly, so that peers must present their
	// certificates again. Calls under way get connectionAgeGrace to end.
	connectionAge, connectionAgeGrace = time.Hour, time.Minute
	// A worker has few calls at the same time, in either direction.
	maxStreams = 64
	// Headers are few and short in this protocol.
	maxHeaders = 16 << 10
	// The flow-control windows of a call and of a connection. They are static, so
	// they do not grow with what a peer sends.
	callWindow, connectionWindow = 1 << 20, 4 << 20
)

// newServer returns a server for a listener, and the listener to serve in its place.
// With TLS it admits connections of one role, or of all if serves is 0. opts come
// after its own options.
func (s *settings) newServer(l net.Listener, serves role, opts ...grpc.ServerOption) (*grpc.Server, net.Listener, error) {
	if s.credentials == nil && !s.plaintext && !isLocal(l.Addr()) {
		return nil, nil, fmt.Errorf("serve on %s: %w", l.Addr(), ErrPlaintext)
	}
	c := &logLimiter{logger: s.logger}
	own := []grpc.ServerOption{
		grpc.InTapHandle(authorize),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxRecvMsgSize(s.maxMessage),
		grpc.MaxSendMsgSize(s.maxMessage),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.StaticStreamWindowSize(callWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time:                  keepaliveTime,
			Timeout:               keepaliveTimeout,
			MaxConnectionAge:      connectionAge,
			MaxConnectionAgeGrace: connectionAgeGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             keepaliveTime / 2,
			PermitWithoutStream: true,
		}),
	}
	if s.credentials != nil {
		s.credentials.announce(s.logger)
		own = append(own, grpc.Creds(&overTLS{Credentials: s.credentials, limited: c, serves: serves}))
	} else {
		own = append(own, grpc.Creds(&plainly{limited: c}))
	}
	return grpc.NewServer(append(own, opts...)...), newConnLimiter(l, c), nil
}

// dial returns a connection to an address, at which a peer of the given identity
// must serve. It connects at the first use, and again whenever the connection is
// lost. opts come after its own options. An error of a call is a status, and also
// wraps ErrCertificate or ErrPlaintext if that is the cause.
func (s *settings) dial(address string, who principal, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	again := backoff.DefaultConfig
	again.BaseDelay, again.MaxDelay = 50*time.Millisecond, time.Second
	dialer := net.Dialer{Timeout: connectTimeout}
	f := &failure{}
	own := []grpc.DialOption{
		grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}),
		grpc.WithChainUnaryInterceptor(f.explain),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: handshakeTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(s.maxMessage), grpc.MaxCallSendMsgSize(s.maxMessage)),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithStaticStreamWindowSize(callWindow),
		grpc.WithStaticConnWindowSize(connectionWindow),
		grpc.WithIdleTimeout(0),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time:                keepaliveTime,
			Timeout:             keepaliveTimeout,
			PermitWithoutStream: true,
		}),
	}
	c := &logLimiter{logger: s.logger}
	if s.credentials != nil {
		own = append(own, grpc.WithTransportCredentials(&overTLS{Credentials: s.credentials, limited: c, want: who, failure: f}))
	} else {
		own = append(own, grpc.WithTransportCredentials(&plainly{anywhere: s.plaintext, limited: c, failure: f}))
	}
	conn, err := grpc.NewClient("passthrough:///"+address, append(own, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("dial %s at %s: %w", who, address, err)
	}
	return conn, nil
}
