package netfault

import (
	"errors"
	"fmt"
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

	wg        sync.WaitGroup
	mu        sync.Mutex
	valves    valves // settings of new connections
	conns     []*Conn
	refuse    bool
	closed    bool
	connected chan struct{} // closed and replaced at each connection
}

// New returns a proxy on a free port of 127.0.0.1 for the server at target, a
// host:port. The server need not listen before a client connects.
func New(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, target: target, valves: newValves(), connected: make(chan struct{})}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr returns the proxy's host:port, to which clients connect.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut holds back all data in the given directions, on present and future
// connections, until Heal. Like a pulled cable, it is invisible to both ends:
// connections stay open, and new ones are accepted.
func (p *Proxy) Cut(d Direction) {
	p.each(func(v *valves) { v.set(d, func(s *setting) { s.cut = true }) })
}

// Heal removes all faults. Data that was held back is delivered first.
func (p *Proxy) Heal() {
	p.mu.Lock()
	p.refuse = false
	p.mu.Unlock()
	p.each(func(v *valves) { v.set(Both, func(s *setting) { *s = setting{} }) })
}

// Delay delays all data in the given directions by this duration, and keeps its
// order.
func (p *Proxy) Delay(d Direction, by time.Duration) {
	p.each(func(v *valves) { v.set(d, func(s *setting) { s.delay = by }) })
}

// Throttle limits each connection to rate bytes a second in the given directions.
func (p *Proxy) Throttle(d Direction, rate int) {
	p.each(func(v *valves) { v.set(d, func(s *setting) { s.rate = rate }) })
}

// Refuse resets present and future connections until Heal, as a machine does for a
// port without a listener.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	p.refuse = true
	p.mu.Unlock()
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
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.Reset()
	p.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// each changes the valves of present and future connections.
func (p *Proxy) each(change func(*valves)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.valves)
	for _, c := range p.conns {
		change(&c.valves)
	}
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
	c := &Conn{client: client, server: server, valves: newValves()}
	if !p.add(c) {
		c.Reset()
		return
	}
	c.run()
	p.remove(c)
}

func (p *Proxy) add(c *Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.closed {
		return false
	}
	c.valves = p.valves.clone()
	p.conns = append(p.conns, c)
	close(p.connected)
	p.connected = make(chan struct{})
	return true
}

func (p *Proxy) remove(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = slices.DeleteFunc(p.conns, func(o *Conn) bool { return o == c })
}

// Conn is one connection through the proxy.
type Conn struct {
	client, server net.Conn
	valves         valves
}

// Cut is [Proxy.Cut] for this connection.
func (c *Conn) Cut(d Direction) { c.valves.set(d, func(s *setting) { s.cut = true }) }

// Heal is [Proxy.Heal] for this connection.
func (c *Conn) Heal() { c.valves.set(Both, func(s *setting) { *s = setting{} }) }

// Delay is [Proxy.Delay] for this connection.
func (c *Conn) Delay(d Direction, by time.Duration) {
	c.valves.set(d, func(s *setting) { s.delay = by })
}

// CloseHalf closes the given directions. Data in transit is lost. The other
// direction stays open.
func (c *Conn) CloseHalf(d Direction) { c.valves.set(d, func(s *setting) { s.half = true }) }

// Reset resets both sides of the connection.
func (c *Conn) Reset() {
	reset(c.client)
	reset(c.server)
	c.valves.set(Both, func(s *setting) { s.over = true })
}

func (c *Conn) String() string {
	return fmt.Sprintf("%v to %v", c.client.RemoteAddr(), c.server.RemoteAddr())
}

func (c *Conn) run() {
	var wg sync.WaitGroup
	wg.Go(func() { c.pipe(c.server, c.client, c.valves.up) })
	wg.Go(func() { c.pipe(c.client, c.server, c.valves.down) })
	wg.Wait()
	_ = c.client.Close()
	_ = c.server.Close()
}

// chunk is the data of one Read, and its time.
type chunk struct {
	data []byte
	read time.Time
}

// pipe forwards one direction. It continues to read while a write waits, so that a
// delay does not limit the data in transit.
func (c *Conn) pipe(to, from net.Conn, v *valve) {
	chunks := make(chan chunk, 4096)
	go func() {
		defer close(chunks)
		for {
			buf := make([]byte, 32<<10)
			n, err := from.Read(buf)
			if n > 0 {
				chunks <- chunk{buf[:n], time.Now()}
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					c.Reset()
				}
				return
			}
		}
	}()
	closed := false
	var free time.Time // when the last chunk was due
	for {
		s, changed := v.now()
		if s.half && !closed {
			closeWrite(to)
			closed = true
		}
		select {
		case <-changed:
		case next, ok := <-chunks:
			if !closed && !v.wait(next.read) { // closed during the wait
				closeWrite(to)
				closed = true
			}
			switch {
			case !ok && !closed:
				closeWrite(to)
				return
			case !ok:
				return
			case closed: // drain the channel, so that the reader ends
			default:
				if next.read.After(free) {
					free = next.read
				}
				free = v.pace(len(next.data), free)
				if _, err := to.Write(next.data); err != nil {
					c.Reset()
				}
			}
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
