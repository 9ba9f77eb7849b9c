package grpc

// What is logged of those who are turned away.

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

// complaints logs who was turned away and why, at most once a second: how fast a
// log grows is not for strangers to say.
type complaints struct {
	logger *slog.Logger

	mu      sync.Mutex
	next    time.Time
	omitted int // since the last one
}

func (c *complaints) log(conn net.Conn, err error) { c.logAddr(conn.RemoteAddr(), err) }

func (c *complaints) logAddr(from net.Addr, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return // who comes and goes, as load balancers do
	}
	if omitted, ok := c.take(time.Now()); ok {
		c.logger.Warn("a connection was refused", "peer", from.String(), "err", err, "omitted", omitted)
	}
}

// take says whether one may be logged now, and how many were not.
func (c *complaints) take(now time.Time) (omitted int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.next) {
		c.omitted++
		return 0, false
	}
	omitted, c.omitted, c.next = c.omitted, 0, now.Add(time.Second)
	return omitted, true
}
