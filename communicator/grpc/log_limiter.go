package grpc

// The log of refused connections and calls.

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

// logLimiter logs refusals and their reasons, at most once a second, so that
// strangers cannot make the log grow quickly.
type logLimiter struct {
	logger *slog.Logger

	mu      sync.Mutex
	next    time.Time
	omitted int // since the last logged one
}

func (c *logLimiter) log(conn net.Conn, err error) { c.logAddr(conn.RemoteAddr(), err) }

func (c *logLimiter) logAddr(from net.Addr, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return // the peer closed the connection, as load balancers do
	}
	if omitted, ok := c.take(time.Now()); ok {
		c.logger.Warn("connection refused", "peer", from.String(), "err", err, "omitted", omitted)
	}
}

// take reports whether a refusal may be logged now, and how many were omitted since
// the last one.
func (c *logLimiter) take(now time.Time) (omitted int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.next) {
		c.omitted++
		return 0, false
	}
	omitted, c.omitted, c.next = c.omitted, 0, now.Add(time.Second)
	return omitted, true
}
