package peer

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/internal/testca"
)

// elsewhere is a listener or connection with an address off loopback.
type elsewhere struct{}

func (elsewhere) Network() string { return "tcp" }
func (elsewhere) String() string  { return "192.0.2.1:80" }

type listenerElsewhere struct{ net.Listener }

func (listenerElsewhere) Addr() net.Addr { return elsewhere{} }

type connElsewhere struct {
	net.Conn
	written chan<- []byte
}

func (connElsewhere) RemoteAddr() net.Addr { return elsewhere{} }

func (c connElsewhere) Write(b []byte) (int, error) {
	c.written <- append([]byte(nil), b...)
	return c.Conn.Write(b)
}

func TestR3_PlaintextServesOnLoopbackOnly(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()

	_, _, err = settingsOf(t).NewServer(listenerElsewhere{l}, 0)
	require.ErrorIs(t, err, ErrPlaintext)
	require.ErrorContains(t, err, "192.0.2.1:80")
	require.ErrorContains(t, err, "WithCredentials")
	require.ErrorContains(t, err, "WithPlaintext")

	for name, opt := range map[string]option{
		"asked for": func(s *Settings) { s.Plaintext = true },
		"with TLS":  with(t, testca.New(t, "ours").Manager(t)),
	} {
		t.Run(name, func(t *testing.T) {
			server, _, err := settingsOf(t, opt).NewServer(listenerElsewhere{l}, 0)
			require.NoError(t, err)
			server.Stop()
		})
	}
	for _, address := range []string{"0.0.0.0:0", "[::]:0"} {
		all, err := net.Listen("tcp", address)
		require.NoError(t, err)
		_, _, err = settingsOf(t).NewServer(all, 0)
		require.ErrorIs(t, err, ErrPlaintext)
		require.NoError(t, all.Close())
	}
}

// The actual remote address decides, not the name that was dialed.
func TestR3_PlaintextDialsOnLoopbackOnly(t *testing.T) {
	address := serve(t, probed{})
	written := make(chan []byte, 100)
	away := grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		return connElsewhere{conn, written}, err
	})

	conn, err := settingsOf(t).Dial(address, aManager, away)
	require.NoError(t, err)
	err = heartbeat(t, conn, "w1")
	require.ErrorIs(t, err, ErrPlaintext)
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.NoError(t, conn.Close())
	require.Empty(t, written, "nothing may be sent")

	conn, err = settingsOf(t, func(s *Settings) { s.Plaintext = true }).Dial(address, aManager, away)
	require.NoError(t, err)
	require.NoError(t, heartbeat(t, conn, "w1"))
	require.NoError(t, conn.Close())
}

// If only one end uses TLS, the errors at both ends ask about it.
func TestR3_PlaintextMeetsTLS(t *testing.T) {
	ca := testca.New(t, "ours")
	for name, opts := range map[string]struct {
		server, client []option
		says           string // the server
	}{
		"the server uses it": {[]option{with(t, ca.Manager(t))}, nil, "does not look like a TLS handshake"},
		"the client uses it": {nil, []option{with(t, ca.Worker(t, "w1"))}, "does it use TLS (WithCredentials)?"},
	} {
		t.Run(name, func(t *testing.T) {
			log := &grpctest.Journal{}
			err := heartbeat(t, connect(t, serve(t, probed{}, append(opts.server, logged(log))...), aManager, opts.client...), "w1")
			require.Equal(t, codes.Unavailable, status.Code(err))
			require.ErrorContains(t, err, "other side use TLS (WithCredentials)?")
			require.Contains(t, log.String(), opts.says)
		})
	}
}

func TestR3_WhatIsLocal(t *testing.T) {
	for address, local := range map[net.Addr]bool{
		&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}:     true,
		&net.TCPAddr{IP: net.IPv4(127, 1, 2, 3), Port: 80}:     true,
		&net.TCPAddr{IP: net.IPv6loopback, Port: 80}:           true,
		&net.TCPAddr{IP: net.ParseIP("::ffff:127.0.0.1")}:      true,
		&net.UnixAddr{Name: "/run/manager", Net: "unix"}:       true,
		&net.TCPAddr{IP: net.IPv4zero, Port: 80}:               false,
		&net.TCPAddr{Port: 80}:                                 false,
		&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 80}:      false,
		&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"}: false,
		elsewhere{}: false,
	} {
		require.Equal(t, local, isLocal(address), "%s", address)
	}
}
