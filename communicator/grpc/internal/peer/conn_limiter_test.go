package peer

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/testca"
)

// pipes is an in-memory listener.
type pipes struct{ conns chan net.Conn }

// newPipes returns a listener to which n clients may connect, and its limiter.
func newPipes(n int) (*pipes, *connLimiter) {
	p := &pipes{conns: make(chan net.Conn, n)}
	return p, newConnLimiter(p, newRefusalLog(slog.New(slog.DiscardHandler)))
}

func (p *pipes) Accept() (net.Conn, error) {
	conn, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p *pipes) Close() error {
	close(p.conns)
	return nil
}

func (p *pipes) Addr() net.Addr { return elsewhere{} }

func (p *pipes) connect() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

// shaking accepts connections, and admits each that sends a byte.
func shaking(g *connLimiter, refused chan<- error) {
	for {
		conn, err := g.Accept()
		if err != nil {
			close(refused)
			return
		}
		go func() {
			_ = conn.SetDeadline(time.Now().Add(handshakeTimeout)) // as a gRPC server does
			_, err := io.ReadFull(conn, make([]byte, 1))
			if err == nil {
				err = admit(conn, nil, time.Time{})
			}
			if err != nil {
				refused <- errors.Join(err, conn.Close())
				return
			}
			_ = conn.SetDeadline(time.Time{})
			_, _ = io.Copy(conn, conn) // until the peer closes
			_ = conn.Close()
		}()
	}
}

// counts returns the numbers of pending and admitted connections.
func (l *connLimiter) counts() (pending, admitted int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending), l.admitted
}

func echo(t *testing.T, conn net.Conn) {
	t.Helper()
	_, err := conn.Write([]byte{1})
	require.NoError(t, err)
	_, err = io.ReadFull(conn, make([]byte, 1))
	require.NoError(t, err)
}

// Ten thousand silent connections neither keep out a client that sends data, nor
// disturb an admitted one.
func TestR3_SilentConnectionsMakeWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const flood = 10_000
		p, g := newPipes(flood + 10)
		refused := make(chan error, flood)
		go shaking(g, refused)

		before := p.connect()
		_, err := before.Write([]byte{1})
		require.NoError(t, err)
		silent := make([]net.Conn, flood)
		for i := range silent {
			silent[i] = p.connect()
		}
		began := time.Now()
		late := p.connect()
		for range 10 {
			echo(t, before)
			time.Sleep(firstSilence / 10)
		}
		_, err = late.Write([]byte{1})
		require.NoError(t, err)
		echo(t, late)
		require.LessOrEqual(t, time.Since(began), (flood/maxPending+2)*firstSilence)
		for range flood {
			require.Error(t, <-refused)
			pending, _ := g.counts()
			require.LessOrEqual(t, pending, maxPending)
		}
		require.LessOrEqual(t, time.Since(began), (flood/maxPending+2)*firstSilence+handshakeTimeout)
		echo(t, before)
		echo(t, late)

		pending, admitted := g.counts()
		require.Zero(t, pending)
		require.Equal(t, 2, admitted)
		for _, conn := range append(silent, before, late) {
			require.NoError(t, conn.Close())
		}
		synctest.Wait()
		_, admitted = g.counts()
		require.Zero(t, admitted)
		require.NoError(t, g.Close())
	})
}

// If the limiter is full of connections that have sent data, it waits for one to end,
// and can be closed at any time.
func TestR3_LimiterClosesWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPipes(maxPending + 10)
		var accepted, clients []net.Conn
		for range maxPending {
			clients = append(clients, p.connect())
			conn, err := g.Accept()
			require.NoError(t, err)
			accepted = append(accepted, conn) // the server does not read, so the peers are not to blame
		}
		next := make(chan error)
		accept := func() {
			conn, err := g.Accept()
			if err == nil {
				err = conn.Close()
			}
			next <- err
		}
		clients = append(clients, p.connect())
		go accept()
		time.Sleep(10 * time.Second)
		require.NoError(t, accepted[7].Close())
		require.NoError(t, <-next)
		clients = append(clients, p.connect())

		conn, err := g.Accept() // takes the freed place
		require.NoError(t, err)
		clients = append(clients, p.connect())
		go accept()
		time.Sleep(10 * time.Second)
		require.NoError(t, g.Close())
		require.ErrorIs(t, <-next, net.ErrClosed)
		for _, c := range append(append(clients, accepted...), conn) {
			_ = c.Close()
		}
	})
}

// The number of connections is limited, whatever their identity.
func TestR3_TooManyConnections(t *testing.T) {
	p, g := newPipes(1)
	g.admitted = maxAdmitted
	client := p.connect()
	defer client.Close()
	conn, err := g.Accept()
	require.NoError(t, err)
	require.ErrorContains(t, admit(conn, nil, time.Time{}), "too many connections")
	g.admitted--
	require.NoError(t, admit(conn, nil, time.Time{}))
	require.NoError(t, conn.Close())
	require.NoError(t, conn.Close(), "a pipe may be closed twice")
	require.Equal(t, maxAdmitted-1, g.admitted)
	require.ErrorIs(t, admit(conn, nil, time.Time{}), net.ErrClosed)
}

// A peer that does not read is disconnected.
func TestR3_APeerThatDoesNotReadIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPipes(1)
		client := p.connect()
		conn, err := g.Accept()
		require.NoError(t, err)
		require.NoError(t, admit(conn, nil, time.Time{}))
		began := time.Now()
		_, err = conn.Write([]byte("hello"))
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		require.True(t, timeout.Timeout())
		require.Equal(t, writeTimeout, time.Since(began))
		require.NoError(t, conn.Close())
		require.NoError(t, client.Close())
	})
}

// Strangers cannot make the log grow quickly.
func TestR3_RefusalsAreLoggedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log grpctest.Journal
		c := newRefusalLog(settingsOf(t, logged(&log)).Logger)
		for range 10_000 {
			c.log(elsewhere{}, errors.New("no good"))
			time.Sleep(time.Millisecond)
		}
		require.Equal(t, 10, log.Count("connection refused"))
		require.Equal(t, 9, log.Count("omitted=999"))
		c.log(elsewhere{}, io.EOF)
		time.Sleep(time.Second)
		c.log(elsewhere{}, io.EOF)
		require.Equal(t, 10, log.Count("connection refused"))
	})
}

// R5: the memory and the connections that one worker may take from a manager.

// One identity gets its share of the connections, and the others keep theirs.
func TestR5_OneIdentityTakesFewConnections(t *testing.T) {
	p, g := newPipes(1)
	enter := func(whose ...identity.Principal) (net.Conn, error) {
		client := p.connect()
		t.Cleanup(func() { _ = client.Close() })
		conn, err := g.Accept()
		require.NoError(t, err)
		return conn, admit(conn, whose, time.Time{})
	}
	w1, w2 := identity.Principal{Role: identity.RoleWorker, Name: "w1"}, identity.Principal{Role: identity.RoleWorker, Name: "w2"}
	var all []net.Conn
	for range maxPerName {
		conn, err := enter(w1)
		require.NoError(t, err)
		all = append(all, conn)
	}
	refused, err := enter(w1)
	require.ErrorContains(t, err, `too many connections of worker "w1"`)
	require.NoError(t, refused.Close())
	for range 2 * maxPerName {
		conn, err := enter(w1, w2)
		require.NoError(t, err, "a certificate with two names has places for both")
		all = append(all, conn)
	}
	refused, err = enter(w1, w2)
	require.Error(t, err)
	require.NoError(t, refused.Close())
	other, err := enter(w2)
	require.NoError(t, err)
	require.NoError(t, all[0].Close())
	again, err := enter(w1)
	require.NoError(t, err)
	for _, conn := range append(all[1:], other, again) {
		require.NoError(t, conn.Close())
	}
	_, admitted := g.counts()
	require.Zero(t, admitted)
	require.Empty(t, g.perName)
}

// A worker cannot occupy the connections of another worker's server that managers
// need.
func TestR5_AWorkersServerAdmitsManagersOnly(t *testing.T) {
	ca := testca.New(t, "ours")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, accepting, err := settingsOf(t, with(t, ca.Worker(t, "w1"))).NewServer(l, identity.RoleManager)
	require.NoError(t, err)
	orchestratorv1.RegisterWorkerServer(server, probed{})
	go func() { _ = server.Serve(accepting) }()
	t.Cleanup(server.Stop)
	g, ok := accepting.(*connLimiter)
	require.True(t, ok)
	target := identity.Principal{Role: identity.RoleWorker, Name: "w1"}
	intruder := connect(t, l.Addr().String(), target, with(t, ca.Worker(t, "w2")))
	_, err = orchestratorv1.NewWorkerClient(intruder).Apply(t.Context(), &orchestratorv1.ApplyRequest{})
	require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
	_, admitted := g.counts()
	require.Zero(t, admitted)
	manager := connect(t, l.Addr().String(), target, with(t, ca.Manager(t)))
	_, err = orchestratorv1.NewWorkerClient(manager).Apply(t.Context(), &orchestratorv1.ApplyRequest{})
	require.NoError(t, err)
	_, admitted = g.counts()
	require.Equal(t, 1, admitted)
}
