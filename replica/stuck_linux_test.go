package replica_test

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// firewalled returns an address to which no connection is ever made: Linux drops packets
// for a listener whose queue is full. It returns an empty one if this kernel does not.
func firewalled(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	tcp, ok := l.(*net.TCPListener)
	require.True(t, ok)
	raw, err := tcp.SyscallConn()
	require.NoError(t, err)
	var listened error
	require.NoError(t, raw.Control(func(fd uintptr) { listened = syscall.Listen(int(fd), 0) }))
	require.NoError(t, listened)
	for range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
		cancel()
		if err != nil {
			return l.Addr().String()
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	return ""
}
