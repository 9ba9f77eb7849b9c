package main

// The Redis of the tests, which is a real one if available, otherwise the stand-in,
// and a connection that is cut after a number of bytes.

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator/examples/internal/stage/stagetest"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

func TestMain(m *testing.M) {
	if stagetest.IsProgram() {
		main()
	}
	goleak.VerifyTestMain(m)
}

// startRedis starts a private redis-server for the test, and returns a function to
// dial it. If there is none on the PATH, it uses the stand-in, and logs that.
func startRedis(t *testing.T) (dial func(ctx context.Context) (net.Conn, error)) {
	t.Helper()
	var d net.Dialer
	program, ok := proctest.Lookup(t, "redis-server", "redis-server")
	if !ok {
		t.Log("not installed: redis-server; the embedded stand-in is used")
		standIn := miniredis.RunT(t)
		return func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, "tcp", standIn.Addr()) }
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	cmd := exec.CommandContext(t.Context(), program, "--port", "0", "--unixsocket", socket, "--dir", dir,
		"--save", "", "--appendonly", "no", "--logfile", filepath.Join(dir, "log"))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // when the test ends
	cmd.WaitDelay = 10 * time.Second
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // a signal ends it

	dial = func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, "unix", socket) }
	require.Eventually(t, func() bool {
		conn, err := dial(t.Context())
		return err == nil && conn.Close() == nil
	}, 20*time.Second, 5*time.Millisecond, "redis-server does not listen")
	rdb := oneShot(t, dial)
	t.Log(regexp.MustCompile(`redis_version:\S+`).FindString(ask(t, redis.String, rdb, "INFO", "server")))
	return dial
}

// oneShot returns connections with the options of the service.
func oneShot(t *testing.T, dial func(ctx context.Context) (net.Conn, error)) *redis.Pool {
	t.Helper()
	rdb := newPool("", redis.DialContextFunc(func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }))
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// ask runs a command and converts its answer.
func ask[A any](t *testing.T, as func(answer any, err error) (A, error), rdb *redis.Pool, name string, args ...any) A {
	t.Helper()
	answer, err := as(do(t.Context(), rdb, name, args...))
	require.NoError(t, err)
	return answer
}

// members returns the members of a set.
func members(t *testing.T, rdb *redis.Pool, set string) []string {
	t.Helper()
	return ask(t, redis.Strings, rdb, "SMEMBERS", set)
}

var errCut = errors.New("cut")

// cutter makes connections that share a number of bytes to send. The connection that
// exceeds it sends the allowed part and is closed, as if its process had crashed.
type cutter struct {
	dial func(ctx context.Context) (net.Conn, error)
	left atomic.Int64
}

func (c *cutter) connect(ctx context.Context) (net.Conn, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: conn, left: &c.left}, nil
}

type cutConn struct {
	net.Conn
	left *atomic.Int64
}

func (c *cutConn) Write(p []byte) (int, error) {
	left := c.left.Add(-int64(len(p)))
	if left >= 0 {
		return c.Conn.Write(p)
	}
	_, err := c.Conn.Write(p[:max(0, int64(len(p))+left)])
	return 0, errors.Join(errCut, err, c.Close())
}
