package peer

import (
	"context"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/testca"
)

// cable is a network between one server and its clients that can be unplugged.
type cable struct {
	*bufconn.Listener
	once   sync.Once
	pulled chan struct{}
}

func newCable() *cable {
	return &cable{Listener: bufconn.Listen(1 << 20), pulled: make(chan struct{})}
}

func (c *cable) pull() { c.once.Do(func() { close(c.pulled) }) }

func (c *cable) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := c.DialContext(ctx)
	return &plug{Conn: conn, cable: c, closed: make(chan struct{})}, err
}

// plug is a client's end. Once the cable is unplugged, nothing arrives, and neither
// end is notified.
type plug struct {
	net.Conn
	cable  *cable
	once   sync.Once
	closed chan struct{}
}

func (p *plug) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	select {
	case <-p.cable.pulled:
		<-p.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (p *plug) Write(b []byte) (int, error) {
	select {
	case <-p.cable.pulled:
		return len(b), nil
	default:
		return p.Conn.Write(b)
	}
}

func (p *plug) Close() error { // the server is not notified either
	p.once.Do(func() { close(p.closed) })
	select {
	case <-p.cable.pulled:
		return nil
	default:
		return p.Conn.Close()
	}
}

// over serves p over a cable. It returns a connection, and a function that counts
// the server's admitted connections.
func over(t *testing.T, c *cable, who identity.Principal, server, client []option) (conn *grpc.ClientConn, admitted func() int, stop func()) {
	t.Helper()
	s, l, err := settingsOf(t, server...).NewServer(c, 0)
	require.NoError(t, err)
	orchestratorv1.RegisterManagerServer(s, probed{})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	conn, err = settingsOf(t, client...).Dial("bufconn", who, grpc.WithContextDialer(c.dial))
	require.NoError(t, err)
	g, ok := l.(*connLimiter)
	require.True(t, ok)
	return conn, func() int {
			_, n := g.counts()
			return n
		}, func() {
			require.NoError(t, conn.Close())
			s.Stop()
			if err := <-done; err != nil {
				require.ErrorContains(t, err, "closed", "if the test has closed the listener")
			}
		}
}

// Both ends detect a dead peer within 13 s, even without calls.
func TestR3_DeadPeersAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCable()
		conn, admitted, stop := over(t, c, aManager, nil, nil)
		require.NoError(t, heartbeat(t, conn, "w1"))
		time.Sleep(time.Hour / 2) // no calls: the pings keep the connection
		require.Equal(t, connectivity.Ready, conn.GetState())
		require.Equal(t, 1, admitted())

		c.pull()
		time.Sleep(keepaliveTime + keepaliveTimeout + time.Second/10)
		synctest.Wait()
		require.NotEqual(t, connectivity.Ready, conn.GetState(), "the client")
		require.Zero(t, admitted(), "the server")
		stop()
	})
}

// A connection ends when one of its certificates expires, at both ends.
func TestR3_ConnectionsEndWithTheirCertificates(t *testing.T) {
	for name, ofServer := range map[string]bool{"client's": false, "server's": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ca := testca.New(t, "ours")
				server, client := ca.Manager(t), ca.Worker(t, "w1")
				soon := testca.Until(time.Now().Add(time.Minute))
				if ofServer {
					ca.Renew(t, server, []string{identity.ManagerURI}, soon)
				} else {
					ca.Renew(t, client, []string{identity.WorkerURI("w1")}, soon)
				}
				c := newCable()
				conn, admitted, stop := over(t, c, aManager, []option{with(t, server)}, []option{with(t, client)})
				require.NoError(t, heartbeat(t, conn, "w1"))
				time.Sleep(time.Minute - time.Second)
				synctest.Wait()
				require.Equal(t, connectivity.Ready, conn.GetState())
				require.Equal(t, 1, admitted())
				time.Sleep(2 * time.Second)
				synctest.Wait()
				require.NotEqual(t, connectivity.Ready, conn.GetState())
				require.Zero(t, admitted())

				err := heartbeat(t, conn, "w1")
				require.ErrorIs(t, err, ErrCertificate)
				require.ErrorContains(t, err, "expired at")
				ca.Renew(t, server, []string{identity.ManagerURI})
				ca.Renew(t, client, []string{identity.WorkerURI("w1")})
				time.Sleep(10 * time.Second) // until the refused connections are closed
				require.NoError(t, heartbeat(t, conn, "w1"), "with new certificates")
				stop()
			})
		})
	}
}

// A certificate of a withdrawn authority is accepted only as long as its connection
// lasts. Calls are not interrupted when their connection is replaced.
func TestR3_ConnectionsDoNotLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := testca.New(t, "first"), testca.New(t, "second")
		server, client := first.Manager(t), first.Worker(t, "w1")
		c := newCable()
		conn, _, stop := over(t, c, aManager, []option{with(t, server)}, []option{with(t, client)})
		for range 3 * 60 {
			require.NoError(t, heartbeat(t, conn, "w1"))
			time.Sleep(time.Minute)
		}
		require.NoError(t, heartbeat(t, conn, "w1")) // the last connection may have ended within this minute
		second.Renew(t, server, []string{identity.ManagerURI})
		require.NoError(t, os.WriteFile(client.CA, second.PEM(), 0o600))
		require.NoError(t, heartbeat(t, conn, "w1"), "a connection from before")
		time.Sleep(connectionAge + connectionAge/10 + connectionAgeGrace)
		require.Equal(t, codes.Unauthenticated, status.Code(heartbeat(t, conn, "w1")))
		stop()
	})
}

// The failure of an earlier handshake is not the cause of a later error.
func TestR3_AnOldFailureIsNotBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := testca.New(t, "ours")
		c := newCable()
		conn, _, stop := over(t, c, aManager, []option{withAny(t, ca.Manager(t, testca.Expired()))}, []option{with(t, ca.Worker(t, "w1"))})
		err := heartbeat(t, conn, "w1")
		require.ErrorIs(t, err, ErrCertificate)
		require.Equal(t, codes.Unavailable, status.Code(err))
		time.Sleep(time.Minute)
		require.ErrorIs(t, heartbeat(t, conn, "w1"), ErrCertificate, "every handshake has failed")

		require.NoError(t, c.Close())
		time.Sleep(5 * time.Second) // until it has tried again, without a server
		err = heartbeat(t, conn, "w1")
		require.Equal(t, codes.Unavailable, status.Code(err))
		require.NotErrorIs(t, err, ErrCertificate)
		require.ErrorContains(t, err, "closed")
		stop()
	})
}

// A silent connection does not delay a server that stops.
func TestR3_StoppingWaitsForNoHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCable()
		conn, _, stop := over(t, c, aManager, nil, nil)
		require.NoError(t, heartbeat(t, conn, "w1"))
		silent, err := c.DialContext(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		began := time.Now()
		stop()
		require.Zero(t, time.Since(began))
		require.NoError(t, silent.Close())
	})
}
