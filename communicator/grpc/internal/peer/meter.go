package peer

// The bounds of what a connection may send.

import (
	"errors"
	"net"
	"sync"
	"time"
)

const (
	// workerFrames is how many frames and reads a second the connections of one worker
	// may cause together, and workerBytes how many bytes. A call takes about three. Ten
	// times as many as a worker with a lease of a second and many short jobs needs.
	workerFrames, workerBytes = 4_000, 8 << 20
	// trustedFrames is the limit of a manager, and of a connection without TLS.
	trustedFrames = 200_000
	// strangerFrames is how many frames and reads a client without an accepted
	// certificate may cause in all, until it has been told why.
	strangerFrames = 200
	// burst is how many seconds' worth may come at once.
	burst = 5
	// smallData is the size below which a DATA frame counts. Larger ones count as bytes.
	smallData = 1 << 10
)

// budget is an amount that is spent, and grows again. The zero value has nothing.
type budget struct {
	mu    sync.Mutex
	rate  float64 // growth a second
	spent float64 // what lacks to the most
	most  float64
	at    time.Time // when spent was computed
}

// spend takes n, even if that is more than there is. It returns what is left.
func (b *budget) spend(n int, now time.Time) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent = max(b.spent-b.rate*now.Sub(b.at).Seconds(), 0) + float64(n)
	b.at = now
	return b.most - b.spent
}

// share is what the connections of one name may do, or one connection without a name.
type share struct {
	conns  int // guarded by connLimiter.mu
	frames budget
	bytes  budget // its rate is 0: no limit
}

func newShare(frames, bytes float64) *share {
	return &share{frames: budget{rate: frames, most: burst * frames}, bytes: budget{rate: bytes, most: burst * bytes}}
}

func strangersShare() *share { return &share{frames: budget{most: strangerFrames}} }
func trustedShare() *share   { return newShare(trustedFrames, 0) }
func workersShare() *share   { return newShare(workerFrames, workerBytes) }

// idle reports whether a share is as a new one.
func (s *share) idle(now time.Time) bool {
	return s.conns == 0 && s.frames.spend(0, now) == s.frames.most
}

var errFlood = errors.New("peer sends too many calls or frames, connection closed")

// meteredConn is a connection that fails when its share of frames is exceeded, and
// reads no faster than its share of bytes. One goroutine reads.
type meteredConn struct {
	net.Conn
	share    *share
	refusals *refusalLog
	over     <-chan struct{} // closed when the server ends

	skip int     // bytes until the next frame begins
	head [9]byte // of the next frame
	have int     // bytes in head
}

// metered returns conn with the limits of its raw connection.
func metered(conn, raw net.Conn, log *refusalLog) net.Conn {
	c, ok := raw.(*limitedConn)
	if !ok {
		return conn
	}
	return &meteredConn{Conn: conn, share: c.share, refusals: log, over: c.limiter.closed, skip: len(preface)}
}

// Read reads what the share allows.
func (m *meteredConn) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	now := time.Now()
	if m.share.frames.spend(1+m.frames(b[:n]), now) < 0 {
		m.refusals.log(m.RemoteAddr(), errFlood)
		return 0, errors.Join(errFlood, m.Close())
	}
	if left, rate := m.share.bytes.spend(n, now), m.share.bytes.rate; left < 0 && rate > 0 {
		select {
		case <-time.After(time.Duration(-left / rate * float64(time.Second))):
		case <-m.over:
		}
	}
	return n, err
}

// frames returns the number of frames that begin in b, without large DATA frames.
func (m *meteredConn) frames(b []byte) (n int) {
	for len(b) > 0 {
		passed := min(m.skip, len(b))
		m.skip -= passed
		got := copy(m.head[m.have:], b[passed:])
		b = b[passed+got:]
		if m.have += got; m.have < len(m.head) {
			break
		}
		m.have = 0
		m.skip = int(m.head[0])<<16 | int(m.head[1])<<8 | int(m.head[2])
		if m.head[3] != 0 || m.skip < smallData { // 0: DATA
			n++
		}
	}
	return n
}
