//go:build peers

package main

// Traffic of connections over gRPC, counted in both directions at their listeners.

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
)

// bytesSent is the traffic of a period, both directions together.
type bytesSent struct {
	wire     int // all bytes over TCP, including headers, settings and pings of HTTP/2
	payload  int // only messages, as a gRPC stats handler counts them
	messages int
}

func (b bytesSent) less(before bytesSent) bytesSent {
	return bytesSent{b.wire - before.wire, b.payload - before.payload, b.messages - before.messages}
}

// meter counts the traffic over the connections of listeners. Each call must have at
// most one message in each direction.
type meter struct{ wire, payload, messages atomic.Int64 }

// read returns the traffic so far.
func (m *meter) read() bytesSent {
	return bytesSent{int(m.wire.Load()), int(m.payload.Load()), int(m.messages.Load())}
}

// on returns a listener whose connections are counted.
func (m *meter) on(l net.Listener) net.Listener { return metered{l, m} }

type metered struct {
	net.Listener
	meter *meter
}

func (l metered) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &meteredConn{Conn: conn}
	c.in = framing{meter: l.meter, skip: clientPreface}
	c.out = framing{meter: l.meter}
	return c, nil
}

// meteredConn counts the bytes read and written.
type meteredConn struct {
	net.Conn
	reading, writing sync.Mutex
	in, out          framing
}

func (c *meteredConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.reading.Lock()
	defer c.reading.Unlock()
	c.in.take(b[:n])
	return n, err
}

func (c *meteredConn) Write(b []byte) (int, error) {
	c.writing.Lock()
	c.out.take(b) // before the write, so that a reader finds them counted
	c.writing.Unlock()
	return c.Conn.Write(b)
}

const (
	// clientPreface is the number of bytes that an HTTP/2 client sends before its
	// first frame.
	clientPreface = 24
	frameHeader   = 9
	frameData     = 0
	frameHeaders  = 1
	endStream     = 1
	// messagePrefix is the number of bytes that gRPC puts before a message.
	messagePrefix = 5
)

// framing finds the HTTP/2 frames in one direction of a connection.
type framing struct {
	meter  *meter
	skip   int               // bytes up to the next frame
	header [frameHeader]byte // the part of the next header that has arrived
	have   int
	open   map[uint32]bool // the streams whose message has begun
}

// take counts the next bytes.
func (f *framing) take(b []byte) {
	f.meter.wire.Add(int64(len(b)))
	for len(b) > 0 {
		if n := min(f.skip, len(b)); n > 0 {
			b, f.skip = b[n:], f.skip-n
			continue
		}
		n := copy(f.header[f.have:], b)
		b, f.have = b[n:], f.have+n
		if f.have == frameHeader {
			f.have = 0
			f.frame()
		}
	}
}

// frame counts a frame whose header has arrived.
func (f *framing) frame() {
	length := int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
	kind, flags, stream := f.header[3], f.header[4], binary.BigEndian.Uint32(f.header[5:])
	f.skip = length
	if kind != frameData && kind != frameHeaders {
		return
	}
	if kind == frameData && length > 0 {
		if !f.open[stream] {
			if f.open == nil {
				f.open = make(map[uint32]bool)
			}
			f.open[stream] = true
			f.meter.messages.Add(1)
			length -= messagePrefix
		}
		f.meter.payload.Add(int64(length))
	}
	if flags&endStream != 0 {
		delete(f.open, stream)
	}
}
