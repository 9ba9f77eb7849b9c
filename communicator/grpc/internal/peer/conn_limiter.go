package peer

// The limits on connections, and which connections are closed when they are exceeded.

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
)

const (
	// maxPending is the number of pending connections: not accepted yet, or refused
	// and about to be told.
	maxPending = 1024
	// maxSilence is how long a pending connection may keep the server waiting for its
	// next bytes while others wait behind it. firstSilence is the limit for its
	// first bytes, which a client sends together with the last step of connecting.
	maxSilence, firstSilence = 250 * time.Millisecond, 50 * time.Millisecond
	// maxPerAddress is the number of pending connections from one address.
	maxPerAddress = 256
	// maxAdmitted is the number of connections besides the pending ones, and
	// maxPerName their number for each name of a worker in one certificate. All
	// managers have one name, and maxManagers connections. Neither applies without TLS.
	maxAdmitted = 16384
	maxPerName  = 4
	maxManagers = 64
	// writeTimeout is how long a peer may leave sent data unread.
	writeTimeout = keepaliveTime
)

// connLimiter is a listener that limits its connections. A connection is pending until it
// is admitted. When there are too many pending ones, the limiter closes the first that
// has been silent for too long; when there are too many from one address, it closes one of
// them that is silent. It never closes an admitted connection.
// So a flood of connections has a bounded cost, and clients that do send data get through.
//
// Few handshakes compute at the same time, however many are under way. So the calls on
// admitted connections, which share the processors with them, wait for few.
//
// Accept is called by one goroutine at a time.
type connLimiter struct {
	net.Listener
	refusals *refusalLog
	freed    chan struct{} // capacity 1: a connection is no longer pending
	closed   chan struct{}
	closing  sync.Once
	began    time.Time
	turns    chan struct{} // holds one for each handshake that computes

	mu       sync.Mutex     // guards the fields below; held briefly
	pending  []*limitedConn // in order of arrival
	admitted int
	perName  map[string]*share // of connections with TLS, by the names in their certificate
}

func newConnLimiter(l net.Listener, c *refusalLog) *connLimiter {
	return &connLimiter{
		Listener: l,
		refusals: c,
		freed:    make(chan struct{}, 1),
		closed:   make(chan struct{}),
		began:    time.Now(),
		turns:    make(chan struct{}, max(runtime.GOMAXPROCS(0)/2, 1)),
		perName:  make(map[string]*share),
	}
}

// Accept waits until one more connection may be pending, and returns it. It closes those
// of an address that has too many.
func (l *connLimiter) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &limitedConn{Conn: conn, limiter: l, from: sourceOf(conn.RemoteAddr()), share: strangersShare(), end: time.Now().Add(handshakeTimeout)}
		if !l.makeRoomFrom(c.from) {
			l.refusals.log(conn.RemoteAddr(), errors.New("too many connections from this address"))
			_ = conn.Close() // the server does not have it
			continue
		}
		if err := l.makeRoom(); err != nil {
			_ = conn.Close() // the server does not have it
			return nil, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		select {
		case <-l.closed:
			return nil, errors.Join(net.ErrClosed, conn.Close())
		default:
		}
		l.pending = append(l.pending, c)
		c.pending = true
		return c, nil
	}
}

// Close also closes pending connections, because a server that stops waits for every
// handshake.
func (l *connLimiter) Close() error {
	l.mu.Lock()
	l.closing.Do(func() { close(l.closed) })
	pending := slices.Clone(l.pending)
	l.mu.Unlock()
	for _, c := range pending {
		_ = c.Close() // an error changes nothing
	}
	return l.Listener.Close()
}

// sourceOf returns the address whose connections count together: of an IPv6 address the
// network that one machine may have to itself. It is empty for other kinds of addresses.
func sourceOf(addr net.Addr) netip.Prefix {
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return netip.Prefix{}
	}
	ip := at.Addr().Unmap()
	from, _ := ip.Prefix(min(ip.BitLen(), 64)) // fails only for longer prefixes
	return from
}

// makeRoomFrom reports whether one more connection from an address may be pending. If
// there are too many, it closes one that is silent.
func (l *connLimiter) makeRoomFrom(from netip.Prefix) bool {
	n, slow, _ := l.slowest(from)
	full := from.IsValid() && n >= maxPerAddress
	if full && slow != nil {
		l.closeSilent(slow)
	}
	return !full || slow != nil
}

// closeSilent closes a pending connection in favour of another.
func (l *connLimiter) closeSilent(c *limitedConn) {
	l.refusals.log(c.RemoteAddr(), errors.New("peer is silent while others wait"))
	_ = c.Close() // an error changes nothing
}

// makeRoom returns when one more connection may be pending.
func (l *connLimiter) makeRoom() error {
	for {
		n, slow, left := l.slowest(netip.Prefix{})
		switch {
		case n < maxPending:
			return nil
		case slow == nil:
			left = firstSilence
		case left <= 0:
			l.closeSilent(slow)
			continue
		}
		select {
		case <-l.freed:
		case <-time.After(min(left, firstSilence)):
		case <-l.closed:
			return net.ErrClosed
		}
	}
}

// slowest returns the number of pending connections from an address, or of all if it is
// the zero one. If the server waits for any of them, it also returns the one that may be
// silent for the shortest time, and that time.
func (l *connLimiter) slowest(from netip.Prefix) (n int, slow *limitedConn, left time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(l.began)
	for _, c := range l.pending {
		if from.IsValid() && c.from != from {
			continue
		}
		n++
		if d, waiting := c.timeLeft(now); waiting && (slow == nil || d < left) {
			slow, left = c, d
		}
	}
	return n, slow, left
}

// admit makes a pending connection of these identities an admitted one, until its
// certificate expires; the zero time means never. It does nothing to a connection
// without a limiter.
func admit(conn net.Conn, whose []identity.Principal, until time.Time) error {
	c, ok := conn.(*limitedConn)
	if !ok {
		return nil
	}
	l := c.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.pending {
		return net.ErrClosed
	}
	if l.admitted >= maxAdmitted {
		return errors.New("too many connections")
	}
	names := fmt.Sprintf("%q", whose)
	s, err := l.shareOf(names, whose)
	if err != nil {
		return fmt.Errorf("%w of %s", err, identity.Describe(whose))
	}
	l.removePending(c)
	l.admitted++
	s.conns++
	c.share, c.names, c.end = s, names, until
	c.admitted.Store(true)
	return nil
}

// shareOf returns the share of one more connection of these identities, or an error if
// they have too many or have sent too much. The caller holds mu.
func (l *connLimiter) shareOf(names string, whose []identity.Principal) (*share, error) {
	if len(whose) == 0 {
		return trustedShare(), nil
	}
	if now := time.Now(); len(l.perName) > 2*l.admitted+maxPending {
		maps.DeleteFunc(l.perName, func(_ string, s *share) bool { return s.idle(now) })
	}
	known, most, fresh := l.perName[names], maxManagers, trustedShare
	if slices.ContainsFunc(whose, func(p identity.Principal) bool { return p.Role == identity.RoleWorker }) {
		most, fresh = maxPerName*len(whose), workersShare
	}
	switch {
	case known == nil:
		known = fresh()
		l.perName[names] = known
	case known.conns >= most:
		return nil, errors.New("too many connections")
	case known.frames.spend(0, time.Now()) < known.frames.rate:
		return nil, errors.New("too many calls or frames")
	}
	return known, nil
}

// removePending removes a connection from the pending ones. The caller holds mu.
func (l *connLimiter) removePending(c *limitedConn) {
	l.pending = slices.DeleteFunc(l.pending, func(other *limitedConn) bool { return other == c })
	c.pending = false
	c.rest()
	select {
	case l.freed <- struct{}{}:
	default:
	}
}

// limitedConn is a connection from a limiter.
type limitedConn struct {
	net.Conn
	limiter  *connLimiter
	end      time.Time // used by the goroutine of the handshake only, then constant; zero: never
	admitted atomic.Bool
	heard    atomic.Bool  // it has sent data
	silent   atomic.Int64 // since when a read of a pending one waits, from limiter.began; 0: none waits
	from     netip.Prefix // see sourceOf
	computes atomic.Bool  // it has a turn
	shaken   atomic.Bool  // its handshake has ended
	share    *share       // of a stranger until it is admitted
	pending  bool         // guarded by limiter.mu
	names    string       // in the certificate, once admitted; guarded by limiter.mu
	closing  sync.Once
}

// timeLeft returns how much longer a pending connection may be silent, and whether a
// read waits for it at all.
func (c *limitedConn) timeLeft(now time.Duration) (left time.Duration, waiting bool) {
	since := time.Duration(c.silent.Load())
	if c.heard.Load() {
		return since + maxSilence - now, since > 0
	}
	return since + firstSilence - now, since > 0
}

// rest gives the turn back, if the connection has one.
func (c *limitedConn) rest() {
	if c.computes.CompareAndSwap(true, false) {
		<-c.limiter.turns
	}
}

// shaken ends the handshake of a connection.
func shaken(conn net.Conn) {
	if c, ok := conn.(*limitedConn); ok {
		c.shaken.Store(true)
		c.rest()
	}
}

// Read notes since when the connection keeps the server waiting, while it is pending. It
// then waits for a turn, which the handshake has until it reads or writes again.
func (c *limitedConn) Read(b []byte) (int, error) {
	if c.admitted.Load() {
		return c.Conn.Read(b)
	}
	c.rest()
	c.silent.Store(int64(max(time.Since(c.limiter.began), 1)))
	n, err := c.Conn.Read(b)
	c.silent.Store(0)
	if n > 0 {
		c.heard.Store(true)
	}
	if n > 0 && !c.shaken.Load() {
		select {
		case c.limiter.turns <- struct{}{}:
			c.computes.Store(true)
		case <-c.limiter.closed:
		}
	}
	return n, err
}

// Write closes the connection if the peer does not read for too long, because its
// unread data takes memory. gRPC closes such a connection only if the peer sends
// nothing either.
func (c *limitedConn) Write(b []byte) (int, error) {
	c.rest()
	deadline := time.Now().Add(writeTimeout)
	if !c.end.IsZero() && c.end.Before(deadline) {
		deadline = c.end
	}
	if err := c.SetWriteDeadline(deadline); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(b)
	if err != nil {
		_ = c.Close() // err is the reason
	}
	return n, err
}

// SetDeadline is called when the handshake begins, and with the zero time when it
// has ended. The deadline is never after the connection's end.
func (c *limitedConn) SetDeadline(t time.Time) error {
	if t.IsZero() || (!c.end.IsZero() && c.end.Before(t)) {
		t = c.end
	}
	return c.SetReadDeadline(t)
}

// Close frees the connection's place.
func (c *limitedConn) Close() error {
	c.closing.Do(func() {
		l := c.limiter
		l.mu.Lock()
		defer l.mu.Unlock()
		if c.pending {
			l.removePending(c)
		} else if c.admitted.Load() {
			l.admitted--
			c.share.conns--
			if l.perName[c.names] == c.share && c.share.idle(time.Now()) {
				delete(l.perName, c.names)
			}
		}
	})
	return c.Conn.Close()
}
