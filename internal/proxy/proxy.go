package proxy

// The proxy, and its connections.

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
	Up   Direction = 1 << iota // from the client to the server
	Down                       // from the server to the client
	Both = Up | Down
)

// Proxy forwards the connections that it accepts to one server. Its methods may
// be called from many goroutines at once.
type Proxy struct {
	listener net.Listener
	target   string

	wg     sync.WaitGroup
	mu     sync.Mutex
	valves valves // what new connections begin with
	conns  []*Conn
	refuse bool
	closed bool
	news   chan struct{} // closed, and replaced, when a connection was made
}

// New returns a proxy on a port of its own of 127.0.0.1, for the server at
// target, a host:port. The server has to be there only when a client connects.
func New(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, target: target, valves: newValves(), news: make(chan struct{})}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr returns the host:port that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut holds back everything that is on its way in the directions, from now on,
// on all connections and on those still to come. As with a cable that is pulled,
// nobody is told: connections stay open, and are accepted.
func (p *Proxy) Cut(d Direction) {
	p.each(func(v *valves) { v.set(d, func(s *setting) { s.cut = true }) })
}

// Heal lets everything through again, what was held back first.
func (p *Proxy) Heal() {
	p.mu.Lock()
	p.refuse = false
	p.mu.Unlock()
	p.each(func(v *valves) { v.set(Both, func(s *setting) { *s = setting{} }) })
}

// Delay has everything in the directions arrive that much later, in the order
// in which it was sent.
func (p *Proxy) Delay(d Direction, by time.Duration) {
	p.each(func(v *valves) { v.set(d, func(s *setting) { s.delay = by }) })
}

// Throttle has no more than so many bytes a second through in the directions, on
// each connection.
func (p *Proxy) Throttle(d Direction, rate int) {
	p.each(func(v *valves) { v.set(d, func(s *setting) { s.rate = rate }) })
}

// Refuse resets all connections and those still to come, as a machine does on
// which nobody listens, until Heal.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	p.refuse = true
	p.mu.Unlock()
	p.Reset()
}

// Reset resets all connections that there are.
func (p *Proxy) Reset() {
	for _, c := range p.Conns() {
		c.Reset()
	}
}

// Conns returns the connections that are open, the oldest first.
func (p *Proxy) Conns() []*Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.conns)
}

// Connected is closed at the next connection.
func (p *Proxy) Connected() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.news
}

// Close stops listening, resets all connections and waits for their end.
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

// each changes the valves of what is there and of what will come.
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
	close(p.news)
	p.news = make(chan struct{})
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

// Cut does what [Proxy.Cut] does, to this connection.
func (c *Conn) Cut(d Direction) { c.valves.set(d, func(s *setting) { s.cut = true }) }

// Heal does what [Proxy.Heal] does, to this connection.
func (c *Conn) Heal() { c.valves.set(Both, func(s *setting) { *s = setting{} }) }

// Delay does what [Proxy.Delay] does, to this connection.
func (c *Conn) Delay(d Direction, by time.Duration) {
	c.valves.set(d, func(s *setting) { s.delay = by })
}

// CloseHalf ends one direction, as a side does that has nothing more to say: what
// has not gone through is lost. The other direction goes on.
func (c *Conn) CloseHalf(d Direction) { c.valves.set(d, func(s *setting) { s.half = true }) }

// Reset breaks the connection: both sides see it at once.
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

// chunk is what was read at once.
type chunk struct {
	data []byte
	read time.Time
}

// pipe carries one direction. Reading goes on while writing waits, so that a
// delay does not become a limit on what is under way.
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
	for {
		s, changed := v.now()
		if s.half && !closed {
			closeWrite(to)
			closed = true
		}
		select {
		case <-changed:
		case next, ok := <-chunks:
			if !closed && !v.wait(next.read) { // it was closed while that waited
				closeWrite(to)
				closed = true
			}
			switch {
			case !ok && !closed:
				closeWrite(to)
				return
			case !ok:
				return
			case closed: // empty the channel, so that the reader ends
			default:
				v.pace(len(next.data))
				if _, err := to.Write(next.data); err != nil {
					c.Reset()
				}
			}
		}
	}
}

// reset closes with a reset in place of a goodbye.
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
