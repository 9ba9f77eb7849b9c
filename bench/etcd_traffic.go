package main

// What the clients of etcd send and receive, counted where the messages enter
// and leave gRPC: transactions by kind, operations and bytes.

import (
	"bytes"
	"context"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/stats"
)

// side is whose clients are counted together.
type side int

const (
	leaders side = iota
	workers
	users // who write the tasks
	sides
)

// traffic is what went over the connections for some time. Leases are kept
// alive whatever else happens, so that their messages do not count.
type traffic struct {
	begun   int        // transactions that begin a term
	txns    [sides]int // other transactions, by side
	reads   [sides]int // reads that are no transactions
	watches [sides]int // watches begun
	largest int        // operations of the largest transaction
	read    [sides]int // bytes of messages received, the frame of HTTP/2 not counted
	written [sides]int // and sent
}

// counter counts the traffic of many clients.
type counter struct {
	mu    sync.Mutex
	count traffic
}

// take returns what was counted since it was called last.
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

// TagRPC notes the method where the messages will find it.
func (h handler) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, methodKey{}, info.FullMethodName)
}

// HandleRPC counts a message.
func (h handler) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if method, _ := ctx.Value(methodKey{}).(string); strings.HasPrefix(method, "/etcdserverpb.Lease/") {
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

// TagConn has nothing to do.
func (h handler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn has nothing to do.
func (h handler) HandleConn(context.Context, stats.ConnStats) {}

// operations counts everything in a transaction: comparisons, both branches,
// and what is in transactions within.
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
