package netfault_test

import (
	"bufio"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo starts a server that returns each line, and returns its address.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

type conn struct {
	t *testing.T
	net.Conn
	lines *bufio.Reader
}

func dial(t *testing.T, p *netfault.Proxy) *conn {
	t.Helper()
	connected := p.Connected()
	c, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	<-connected
	return &conn{t, c, bufio.NewReader(c)}
}

func (c *conn) say(line string) {
	c.t.Helper()
	_, err := io.WriteString(c, line+"\n")
	require.NoError(c.t, err)
}

func (c *conn) hear(line string) {
	c.t.Helper()
	require.NoError(c.t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	got, err := c.lines.ReadString('\n')
	require.NoError(c.t, err)
	require.Equal(c.t, line+"\n", got)
}

func (c *conn) hearNothing() {
	c.t.Helper()
	require.NoError(c.t, c.SetReadDeadline(time.Now().Add(30*time.Millisecond)))
	got, err := c.lines.ReadString('\n')
	require.ErrorContains(c.t, err, "timeout", "%q", got)
}

func start(t *testing.T) *netfault.Proxy {
	t.Helper()
	p, err := netfault.New(echo(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func TestProxy_CutIsInvisibleAndLosesNothing(t *testing.T) {
	for _, d := range []netfault.Direction{netfault.Up, netfault.Down, netfault.Both} {
		p := start(t)
		before := dial(t, p)
		before.say("1")
		before.hear("1")

		p.Cut(d)
		before.say("2")
		before.hearNothing()
		after := dial(t, p)
		after.say("3")
		after.hearNothing()

		p.Heal()
		before.hear("2")
		after.hear("3")
	}
}

func TestProxy_Delay(t *testing.T) {
	p := start(t)
	c := dial(t, p)
	p.Delay(netfault.Up, 50*time.Millisecond)
	p.Delay(netfault.Down, 50*time.Millisecond)
	waited := proctest.MeasureWaiting(t)
	began := time.Now()
	for range 100 {
		c.say("1")
	}
	for range 100 {
		c.hear("1")
	}
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)
	require.Less(t, time.Since(began)-waited(), 5*time.Second)
}

func TestProxy_HalfCloseLeavesTheOtherHalf(t *testing.T) {
	p := start(t)
	c := dial(t, p)
	p.Delay(netfault.Down, 20*time.Millisecond)
	c.say("1")
	c.hear("1")
	c.say("2")
	tcp, ok := c.Conn.(*net.TCPConn)
	require.True(t, ok)
	require.NoError(t, tcp.CloseWrite())
	c.hear("2") // after the client's half was closed

	c = dial(t, p)
	c.say("1")
	c.hear("1")
	conns := p.Conns()
	conns[len(conns)-1].CloseHalf(netfault.Down)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err := c.lines.ReadByte()
	require.ErrorIs(t, err, io.EOF)
	c.say("2") // the other half is open
}

// Closing a half loses the data in transit, and still signals the end.
func TestProxy_HalfCloseWhileSomethingIsOnItsWay(t *testing.T) {
	p := start(t)
	c := dial(t, p)
	c.say("one")
	c.hear("one")
	p.Cut(netfault.Down)
	c.say("two")
	c.hearNothing()
	p.Conns()[0].CloseHalf(netfault.Down)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err := c.lines.ReadByte()
	require.ErrorIs(t, err, io.EOF)
}

func TestProxy_ResetAndRefuse(t *testing.T) {
	p := start(t)
	c := dial(t, p)
	c.say("1")
	c.hear("1")
	p.Reset()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err := c.lines.ReadByte()
	require.Error(t, err)
	require.NotErrorIs(t, err, io.EOF)

	p.Refuse()
	if refused, err := net.Dial("tcp", p.Addr()); err == nil { // or it was reset at once
		defer refused.Close()
		require.NoError(t, refused.SetReadDeadline(time.Now().Add(10*time.Second)))
		_, err = refused.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	}

	p.Heal()
	c = dial(t, p)
	c.say("2")
	c.hear("2")
}

func TestProxy_CloseEndsWhatIsHeldBack(t *testing.T) {
	p := start(t)
	c := dial(t, p)
	p.Cut(netfault.Both)
	c.say("1")
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
}
