package grpc

// The gate: how many connections there are at a time, and who has to make way.

import (
	"container/list"
	"errors"
	"fmt"
	"iter"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxPending is how many connections may be on the way to be accepted, or may
	// have been refused and be about to hear it.
	maxPending = 1024
	// patience is how long one of those may keep us waiting for its next words,
	// when others wait behind it; firstPatience, for its first, which are sent
	// together with the last step of connecting.
	patience, firstPatience = 250 * time.Millisecond, 50 * time.Millisecond
	// maxAdmitted is how many connections there may be beside those, and maxOfOne how
	// many for each name in one certificate. Without TLS that limit does not hold.
	maxAdmitted = 16384
	maxOfOne    = 64
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
	pending  *list.List // of *guarded, in the order in which they came
	admitted int
	of       map[string]int // the admitted ones with TLS, by the names in their certificate
}

func newGate(l net.Listener, c *complaints) *gate {
	return &gate{
		Listener:   l,
		complaints: c,
		freed:      make(chan struct{}, 1),
		closed:     make(chan struct{}),
		began:      time.Now(),
		pending:    list.New(),
		of:         make(map[string]int),
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
	c.place = g.pending.PushBack(c)
	return c, nil
}

// Close also ends what is pending: a server that stops waits for every handshake.
func (g *gate) Close() error {
	g.mu.Lock()
	g.closing.Do(func() { close(g.closed) })
	pending := make([]*guarded, 0, g.pending.Len())
	for c := range g.inOrder() {
		pending = append(pending, c)
	}
	g.mu.Unlock()
	for _, c := range pending {
		_ = c.Close() // it is gone in any case
	}
	return g.Listener.Close()
}

// inOrder yields what is pending, while the lock is held.
func (g *gate) inOrder() iter.Seq[*guarded] {
	return func(yield func(*guarded) bool) {
		for at := g.pending.Front(); at != nil; at = at.Next() {
			if c, ok := at.Value.(*guarded); !ok || !yield(c) {
				return
			}
		}
	}
}

// makeRoom returns when one more connection may be pending.
func (g *gate) makeRoom() error {
	for {
		slow, wait := g.slow()
		switch {
		case slow != nil:
			g.complaints.log(slow, errors.New("it says nothing, and others wait"))
			_ = slow.Close() // it is gone in any case
			continue
		case wait == 0:
			return nil
		}
		again := time.NewTimer(wait)
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

// slow returns, where there is no room, a pending connection that has kept us
// waiting for too long; if there is none, how long it takes until there may be.
func (g *gate) slow() (slow *guarded, wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pending.Len() < maxPending {
		return nil, 0
	}
	wait, now := firstPatience, time.Since(g.began)
	for c := range g.inOrder() {
		left, waiting := c.patience(now)
		if waiting && left <= 0 {
			return c, 0
		}
		if waiting {
			wait = min(wait, left)
		}
	}
	return nil, wait
}

// admit makes a pending connection of some parties one that counts, until its
// certificate ends; the zero time is never. It does nothing to a connection that came
// through no gate.
func admit(conn net.Conn, whose []party, until time.Time) error {
	c, ok := conn.(*guarded)
	if !ok {
		return nil
	}
	g := c.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.place == nil {
		return net.ErrClosed
	}
	if g.admitted >= maxAdmitted {
		return errors.New("there are too many connections")
	}
	names := fmt.Sprintf("%q", whose)
	if len(whose) > 0 && g.of[names] >= maxOfOne*len(whose) {
		return fmt.Errorf("there are too many connections of %s", describe(whose))
	}
	g.leave(c)
	g.admitted++
	g.of[names]++
	c.admitted.Store(true)
	c.names, c.end = names, until
	return nil
}

// leave has a connection be pending no more.
func (g *gate) leave(c *guarded) {
	g.pending.Remove(c.place)
	c.place = nil
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
	heard    atomic.Bool   // it has said something
	silent   atomic.Int64  // since when a pending one is waited for, from gate.began; 0: it is not
	place    *list.Element // among the pending; nil: it is none; guarded by gate.mu
	names    string        // in the certificate of an admitted one; guarded by gate.mu
	closing  sync.Once
}

// patience returns how much longer a pending connection may be waited for, and
// whether it is.
func (c *guarded) patience(now time.Duration) (left time.Duration, waiting bool) {
	since := time.Duration(c.silent.Load())
	if c.heard.Load() {
		return since + patience - now, since > 0
	}
	return since + firstPatience - now, since > 0
}

func (c *guarded) Read(b []byte) (int, error) {
	if c.admitted.Load() {
		return c.Conn.Read(b)
	}
	c.silent.Store(int64(max(time.Since(c.gate.began), 1)))
	n, err := c.Conn.Read(b)
	c.silent.Store(0)
	if n > 0 {
		c.heard.Store(true)
	}
	return n, err
}

// Write ends the connection if the peer does not read for too long: what is there
// for it takes memory. gRPC leaves that to who reads from it, who goes on for as
// long as the peer says something.
func (c *guarded) Write(b []byte) (int, error) {
	deadline := time.Now().Add(writeTimeout)
	if !c.end.IsZero() && c.end.Before(deadline) {
		deadline = c.end
	}
	if err := c.SetWriteDeadline(deadline); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(b)
	if err != nil {
		_ = c.Close() // err says why
	}
	return n, err
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
		if c.place != nil {
			g.leave(c)
		} else if c.admitted.Load() {
			g.admitted--
			if g.of[c.names]--; g.of[c.names] == 0 {
				delete(g.of, c.names)
			}
		}
	})
	return c.Conn.Close()
}
