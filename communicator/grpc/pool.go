package grpc

// One worker, as a Communicator knows it: the connection, the calls that are made
// on it, and what was reported last.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/f8949c05/orchestrator"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
)

// link is a worker and the way to it.
type link struct {
	worker   Worker
	address  string
	settings *communicatorSettings
	last     atomic.Pointer[snapshot] // of the newest report; never nil
	defies   atomic.Bool              // it has not stopped what it was not given
	assigned *assigned                // nil if there are no receipts

	mu     sync.Mutex
	conn   *grpc.ClientConn // nil: none was needed yet
	closed bool
}

func (c *Communicator) newLink(w Worker, address string) *link {
	l := &link{worker: w, address: address, settings: &c.settings}
	l.last.Store(&snapshot{})
	if c.settings.receipts != nil {
		l.assigned = &assigned{known: true}
	}
	return l
}

// follow takes over what is known of the same worker at another address.
func (l *link) follow(before *link) {
	l.last.Store(before.last.Load())
	l.assigned = before.assigned
	l.defies.Store(before.defies.Load())
}

// close ends the connection, and the calls on it.
func (l *link) close() {
	l.mu.Lock()
	conn := l.conn
	l.conn, l.closed = nil, true
	l.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // what else could be done
	}
}

// connection returns a connection on which a call either gets through or fails
// at once. One that could not be made is not kept: gRPC would pause before it tries
// again, and have every call fail meanwhile, though the worker may be back.
func (l *link) connection() (*grpc.ClientConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errStranger
	}
	if l.conn != nil {
		if l.conn.GetState() != connectivity.TransientFailure {
			return l.conn, nil
		}
		_ = l.conn.Close() // there is nothing on it
		l.conn = nil
	}
	// Small, as there are many, and little is said on most.
	opts := append([]grpc.DialOption{grpc.WithReadBufferSize(4 << 10)}, l.settings.dialing...)
	conn, err := l.settings.dial(l.address, party{role: roleWorker, name: l.worker.Name}, opts...)
	l.conn = conn
	return conn, err
}

// call makes a call. sent is false where certainly nothing of it has reached the
// worker.
func (l *link) call(ctx context.Context, method string, request proto.Message, reply answer) (sent bool, err error) {
	conn, err := l.connection()
	if err != nil {
		return false, err
	}
	// It is set when a call was given to a transport.
	var to peer.Peer
	err = conn.Invoke(ctx, method, request, reply, grpc.ForceCodecV2(answerCodec{}), grpc.Peer(&to))
	sent = to.Addr != nil
	if err != nil && !sent && ctx.Err() == nil {
		l.drop(conn)
	}
	return sent, meaningOf(ctx, err)
}

// drop gives up a connection that could not be made.
func (l *link) drop(conn *grpc.ClientConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == conn {
		l.conn = nil
		_ = conn.Close() // there is nothing on it
	}
}

// observed tells who wants to know whether the worker can be called.
func (l *link) observed(ctx context.Context, err error) {
	if l.settings.observe == nil || errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	if errors.Is(err, orchestrator.ErrDeposed) {
		err = nil // it has answered that
	}
	if err == nil && l.defies.Load() {
		err = errNotGiven // its lease is to end, as if it could not be called
	}
	l.settings.observe(l.worker, err)
}

// failed says where a call has failed.
func (l *link) failed(err error) error { return fmt.Errorf("at %s: %w", l.address, err) }
