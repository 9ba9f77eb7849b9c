package grpc

// Connections: how servers listen and clients dial, and what bounds them.

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
	// handshakeTimeout bounds how long a connection may take to be one. Whoever
	// is refused is disconnected when it is over.
	handshakeTimeout = 5 * time.Second
	// connectTimeout bounds how long a client tries to reach a machine, before it
	// tries again: in a network that is back, that finds it sooner.
	connectTimeout = time.Second
	// A peer that says nothing is asked, and is dead without an answer.
	keepaliveTime, keepaliveTimeout = 10 * time.Second, 3 * time.Second
	// Connections do not last: with a new one, whoever is at its other end has to
	// show a certificate again. Calls under way have a while to end.
	connectionAge, connectionAgeGrace = time.Hour, time.Minute
	// A worker is called a few times at once, and calls no more often.
	maxStreams = 64
	// Headers are few and short here.
	maxHeaders = 16 << 10
	// What may be on its way unread: of a call, and of a connection. They do not
	// grow with what a peer sends.
	callWindow, connectionWindow = 1 << 20, 4 << 20
)

// newServer returns a server for a listener, and the listener that it has to be
// given in place of that one. With TLS it admits connections of a role, or of all if
// that is 0. opts come after its own.
func (s *settings) newServer(l net.Listener, serves role, opts ...grpc.ServerOption) (*grpc.Server, net.Listener, error) {
	if s.credentials == nil && !s.plaintext && !isLocal(l.Addr()) {
		return nil, nil, fmt.Errorf("serve on %s: %w", l.Addr(), ErrPlaintext)
	}
	c := &complaints{logger: s.logger}
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
		own = append(own, grpc.Creds(&overTLS{Credentials: s.credentials, complaints: c, serves: serves}))
	} else {
		own = append(own, grpc.Creds(&plainly{complaints: c}))
	}
	return grpc.NewServer(append(own, opts...)...), newGate(l, c), nil
}

// dial returns a connection to an address, at whose other end has to be who. It
// connects when it is used first, and then again whenever it is lost. opts come
// after its own. What a call on it returns wraps ErrCertificate or ErrPlaintext
// where that is why it failed, beside having a status.
func (s *settings) dial(address string, who party, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
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
	c := &complaints{logger: s.logger}
	if s.credentials != nil {
		own = append(own, grpc.WithTransportCredentials(&overTLS{Credentials: s.credentials, complaints: c, want: who, failure: f}))
	} else {
		own = append(own, grpc.WithTransportCredentials(&plainly{anywhere: s.plaintext, complaints: c, failure: f}))
	}
	conn, err := grpc.NewClient("passthrough:///"+address, append(own, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("dial %s at %s: %w", who, address, err)
	}
	return conn, nil
}
