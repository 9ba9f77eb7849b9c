package grpc

// The gate: how many connections there are at a time, and who has to make way.

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxPending is how many connections may be on the way to be accepted, or may
	// have been refused and be about to hear it.
	maxPending = 1024
	// patience is how long one of those may keep us waiting for its next words,
	// when others wait behind it.
	patience = 250 * time.Millisecond
	// maxAdmitted is how many connections there may be beside those.
	maxAdmitted = 16384
	// writeTimeout is how long a peer may not read what it is told.
	writeTimeout = keepaliveTime
)

// gate is a listener whose connections are few until they are admitted: when too
// many say nothing, who has said nothing for the longest makes way. Those that
// were admitted never do. So a flood of connections costs a bounded amount,
// and those who know what to say get through.
//
// Accept is called by one goroutine at a time.
type gate struct {
	net.Listener
	complaints *complaints
	freed      chan struct{} // of capacity 1: a pending connection is none any more
	closed     chan struct{}
	closing    sync.Once
	began      time.Time

	mu       sync.Mutex // guards the following, and is held for moments
	pending  map[*guarded]struct{}
	admitted int
}

func newGate(l net.Listener, c *complaints) *gate {
	return &gate{
		Listener:   l,
		complaints: c,
		freed:      make(chan struct{}, 1),
		closed:     make(chan struct{}),
		began:      time.Now(),
		pending:    make(map[*guarded]struct{}),
	}
}

func (g *gate) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if err := g.makeRoom(); err != nil {
		_ = conn.Close() // which nobody has seen
		return nil, err
	}
	c := &guarded{Conn: conn, gate: g, end: time.Now().Add(handshakeTimeout)}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.closed:
		return nil, errors.Join(net.ErrClosed, conn.Close())
	default:
	}
	g.pending[c] = struct{}{}
	return c, nil
}

// Close also ends what is pending: a server that stops waits for every handshake.
func (g *gate) Close() error {
	g.mu.Lock()
	g.closing.Do(func() { close(g.closed) })
	pending := slices.Collect(maps.Keys(g.pending))
	g.mu.Unlock()
	for _, c := range pending {
		_ = c.Close() // it is gone in any case
	}
	return g.Listener.Close()
}

// makeRoom returns when one more connection may be pending.
func (g *gate) makeRoom() error {
	for {
		slowest, waited, full := g.slowest()
		if !full {
			return nil
		}
		if slowest != nil && waited >= patience {
			g.complaints.log(slowest, fmt.Errorf("it has said nothing for %s, and others wait", waited.Round(time.Millisecond)))
			_ = slowest.Close() // it is gone in any case
			continue
		}
		again := time.NewTimer(max(patience-waited, time.Millisecond))
		select {
		case <-g.freed:
		case <-again.C:
		case <-g.closed:
			again.Stop()
			return net.ErrClosed
		}
		again.Stop()
	}
}

// slowest returns which pending connection keeps us waiting for the longest.
func (g *gate) slowest() (slowest *guarded, waited time.Duration, full bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.pending) < maxPending {
		return nil, 0, false
	}
	now := time.Since(g.began)
	for c := range g.pending {
		if since := time.Duration(c.silent.Load()); since > 0 && now-since > waited {
			slowest, waited = c, now-since
		}
	}
	return slowest, waited, true
}

// admit makes a pending connection one that counts, until its certificate ends; the
// zero time is never. It does nothing to a connection that came through no gate.
func admit(conn net.Conn, until time.Time) error {
	c, ok := conn.(*guarded)
	if !ok {
		return nil
	}
	g := c.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.pending[c]; !ok {
		return net.ErrClosed
	}
	if g.admitted >= maxAdmitted {
		return errors.New("there are too many connections")
	}
	delete(g.pending, c)
	g.admitted++
	c.admitted.Store(true)
	c.end = until
	g.free()
	return nil
}

// free says that there is room.
func (g *gate) free() {
	select {
	case g.freed <- struct{}{}:
	default:
	}
}

// guarded is a connection that came through a gate.
type guarded struct {
	net.Conn
	gate     *gate
	end      time.Time // read and changed by who shakes hands; the zero time is never
	admitted atomic.Bool
	silent   atomic.Int64 // since when a pending one is waited for, from gate.began; 0: it is not
	closing  sync.Once
}

func (c *guarded) Read(b []byte) (int, error) {
	if c.admitted.Load() {
		return c.Conn.Read(b)
	}
	c.silent.Store(int64(max(time.Since(c.gate.began), 1)))
	defer c.silent.Store(0)
	return c.Conn.Read(b)
}

// Write fails if the peer does not read for too long: what is there for it takes
// memory.
func (c *guarded) Write(b []byte) (int, error) {
	deadline := time.Now().Add(writeTimeout)
	if !c.end.IsZero() && c.end.Before(deadline) {
		deadline = c.end
	}
	if err := c.SetWriteDeadline(deadline); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// SetDeadline is called when the handshake begins, and with the zero time when it
// is over. A connection never outlives its end.
func (c *guarded) SetDeadline(t time.Time) error {
	if t.IsZero() || (!c.end.IsZero() && c.end.Before(t)) {
		t = c.end
	}
	return c.SetReadDeadline(t)
}

func (c *guarded) Close() error {
	c.closing.Do(func() {
		g := c.gate
		g.mu.Lock()
		defer g.mu.Unlock()
		if _, ok := g.pending[c]; ok {
			delete(g.pending, c)
			g.free()
		} else if c.admitted.Load() {
			g.admitted--
		}
	})
	return c.Conn.Close()
}
