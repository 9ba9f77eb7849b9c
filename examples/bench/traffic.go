//go:build peers

package main

// Traffic, counted in both directions: of connections over gRPC at their listeners, and of
// etcd clients at gRPC, by transactions, operations and bytes.

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/stats"
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

// side is a group of clients that are counted together.
type side int

const (
	leaders side = iota
	workers
	users // they write the tasks
	sides
)

// traffic is the traffic of a period. Messages of leases are not counted, because
// keepalives do not depend on events.
type traffic struct {
	begun   int        // transactions that begin a term
	txns    [sides]int // other transactions, by side
	reads   [sides]int // reads outside transactions
	watches [sides]int // watches begun
	largest int        // operations of the largest transaction
	read    [sides]int // bytes of messages received, without HTTP/2 frames
	written [sides]int // bytes of messages sent
}

// counter counts the traffic of many clients.
type counter struct {
	mu    sync.Mutex
	count traffic
}

// take returns the traffic since the previous call.
func (c *counter) take() traffic {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.count
	c.count = traffic{}
	return taken
}

// handler counts the messages of one side's clients. It is a stats.Handler.
type handler struct {
	*counter
	side side
}

var _ stats.Handler = handler{}

type methodKey struct{}

// leaseMethods is the prefix of the methods that grant, renew and revoke leases.
const leaseMethods = "/etcdserverpb.Lease/"

// TagRPC stores the method in the context for HandleRPC.
func (h handler) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, methodKey{}, info.FullMethodName)
}

// HandleRPC counts a message.
func (h handler) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if method, _ := ctx.Value(methodKey{}).(string); strings.HasPrefix(method, leaseMethods) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch s := s.(type) {
	case *stats.InPayload:
		h.count.read[h.side] += s.WireLength
	case *stats.OutPayload:
		h.count.written[h.side] += s.WireLength
		h.sent(s.Payload)
	}
}

func (h handler) sent(message any) {
	switch r := message.(type) {
	case *pb.TxnRequest:
		h.count.largest = max(h.count.largest, operations(r))
		if beginsTerm(r) {
			h.count.begun++
		} else {
			h.count.txns[h.side]++
		}
	case *pb.RangeRequest:
		h.count.reads[h.side]++
	case *pb.WatchRequest:
		if r.GetCreateRequest() != nil {
			h.count.watches[h.side]++
		}
	}
}

// TagConn does nothing.
func (h handler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (h handler) HandleConn(context.Context, stats.ConnStats) {}

// operations counts the comparisons and the operations of both branches of a
// transaction, including nested transactions.
func operations(r *pb.TxnRequest) int {
	n := len(r.Compare)
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range branch {
			if inner := op.GetRequestTxn(); inner != nil {
				n += operations(inner)
			} else {
				n++
			}
		}
	}
	return n
}

// beginsTerm reports whether a transaction writes the term's number.
func beginsTerm(r *pb.TxnRequest) bool {
	return len(r.Success) > 0 && bytes.Equal(r.Success[0].GetRequestPut().GetKey(), []byte(etcdPrefix+"term"))
}
