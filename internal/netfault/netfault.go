package netfault

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// Direction is a set of directions.
type Direction int

// The directions, seen from the client.
const (
	Up   Direction = 1 << iota // client to server
	Down                       // server to client
	Both = Up | Down
)

// Proxy forwards each connection that it accepts to one server. Its methods may be
// called from many goroutines at the same time.
type Proxy struct {
	listener net.Listener
	target   string
	began    time.Time
	wg       sync.WaitGroup

	mu        sync.Mutex
	up, down  faults
	changed   chan struct{} // closed and replaced when faults change, or a connection closes
	conns     []*Conn
	refuse    bool
	closed    bool
	connected chan struct{} // closed and replaced at each connection
}

// faults are those of one direction.
type faults struct {
	cut   bool
	delay time.Duration
}

// New returns a proxy on a free port of 127.0.0.1 for the server at target, a
// host:port. The server need not listen before a client connects.
func New(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, target: target, began: time.Now(), changed: make(chan struct{}), connected: make(chan struct{})}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr returns the proxy's host:port, to which clients connect.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut holds back all data in the given directions, on present and future
// connections, until Heal. Like a pulled cable, it is invisible to both ends:
// connections stay open, and new ones are accepted.
func (p *Proxy) Cut(d Direction) { p.set(d, func(f *faults) { f.cut = true }) }

// Heal removes all faults. Data that was held back is delivered first.
func (p *Proxy) Heal() {
	p.change(func() { p.refuse, p.up, p.down = false, faults{}, faults{} })
}

// Delay delays all data in the given directions by this duration, and keeps its
// order.
func (p *Proxy) Delay(d Direction, by time.Duration) { p.set(d, func(f *faults) { f.delay = by }) }

// Refuse resets present and future connections until Heal, as a machine does for a
// port without a listener.
func (p *Proxy) Refuse() {
	p.change(func() { p.refuse = true })
	p.Reset()
}

// Reset resets all present connections.
func (p *Proxy) Reset() {
	for _, c := range p.Conns() {
		c.Reset()
	}
}

// Conns returns the open connections, the oldest first.
func (p *Proxy) Conns() []*Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.conns)
}

// Connected returns a channel that is closed at the next connection.
func (p *Proxy) Connected() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.connected
}

// Close stops listening, resets all connections and waits until they have ended.
func (p *Proxy) Close() error {
	p.change(func() { p.closed = true })
	err := p.listener.Close()
	p.Reset()
	p.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// change changes something that connections may wait for.
func (p *Proxy) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) set(d Direction, f func(*faults)) {
	p.change(func() {
		if d&Up != 0 {
			f(&p.up)
		}
		if d&Down != 0 {
			f(&p.down)
		}
	})
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		reset(client)
		return
	}
	c := &Conn{proxy: p, client: client, server: server}
	if !p.add(c) {
		c.Reset()
		return
	}
	c.run()
	p.change(func() { p.conns = slices.DeleteFunc(p.conns, func(o *Conn) bool { return o == c }) })
}

func (p *Proxy) add(c *Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.closed {
		return false
	}
	p.conns = append(p.conns, c)
	close(p.connected)
	p.connected = make(chan struct{})
	return true
}

// Conn is one connection through the proxy.
type Conn struct {
	proxy          *Proxy
	client, server net.Conn
	closed         Direction // guarded by proxy.mu
}

// CloseHalf closes the given directions. Data in transit is lost. The other
// direction stays open.
func (c *Conn) CloseHalf(d Direction) {
	c.proxy.change(func() { c.closed |= d })
	if d&Up != 0 {
		closeWrite(c.server)
	}
	if d&Down != 0 {
		closeWrite(c.client)
	}
}

// Reset resets both sides of the connection.
func (c *Conn) Reset() {
	reset(c.client)
	reset(c.server)
	c.proxy.change(func() { c.closed = Both })
}

func (c *Conn) run() {
	var wg sync.WaitGroup
	wg.Go(func() { c.pipe(c.server, c.client, Up) })
	wg.Go(func() { c.pipe(c.client, c.server, Down) })
	wg.Wait()
	_ = c.client.Close()
	_ = c.server.Close()
}

// chunk is the data of one Read, and its time.
type chunk struct {
	data []byte
	read time.Duration // since the proxy began
}

// pipe forwards one direction. It continues to read while a write waits, so that a
// delay does not limit the data in transit.
func (c *Conn) pipe(to, from net.Conn, d Direction) {
	chunks := make(chan chunk, 4096)
	go func() {
		defer close(chunks)
		for {
			buf := make([]byte, 32<<10)
			n, err := from.Read(buf)
			if n > 0 {
				chunks <- chunk{buf[:n], time.Since(c.proxy.began)}
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					c.Reset()
				}
				return
			}
		}
	}()
	for next := range chunks {
		if !c.await(d, next) {
			continue // so that the reader ends
		}
		if _, err := to.Write(next.data); err != nil {
			if _, closed, _ := c.look(d); !closed {
				c.Reset()
			}
		}
	}
	if c.await(d, chunk{}) {
		closeWrite(to)
	}
}

// look returns the faults of a direction, whether it is closed, and a channel that is closed
// when this changes.
func (c *Conn) look(d Direction) (f faults, closed bool, changed <-chan struct{}) {
	p := c.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	f = p.up
	if d == Down {
		f = p.down
	}
	return f, c.closed&d != 0, p.changed
}

// await returns true when a chunk may be written, and false if its direction is closed.
func (c *Conn) await(d Direction, next chunk) bool {
	for {
		f, closed, changed := c.look(d)
		if closed {
			return false
		}
		var timer <-chan time.Time // never, if cut
		if left := next.read + f.delay - time.Since(c.proxy.began); !f.cut && left <= 0 {
			return true
		} else if !f.cut {
			timer = time.After(left)
		}
		select {
		case <-timer:
		case <-changed:
		}
	}
}

// reset closes c with a TCP reset instead of a FIN.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

func closeWrite(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
}
