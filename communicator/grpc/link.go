package grpc

// The connection to one worker, and what the error of a call means for its effect.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
)

// link is a worker with its connection and its last report.
type link struct {
	worker      WorkerID
	address     string
	settings    *option.Communicator
	last        *atomic.Pointer[snapshot] // the newest report; never nil
	runsUngiven atomic.Bool               // the worker has not stopped tasks that it was not given
	pinsLost    atomic.Bool               // nothing collected the pins of the last List of a leader
	assigned    *assigned                 // nil if there are no receipts

	mu     sync.Mutex
	conn   *grpc.ClientConn // nil: not needed yet
	closed bool
	calls  sync.WaitGroup // those under way; none begins once closed is true
}

func (c *Communicator) newLink(w WorkerID, address string) *link {
	l := &link{worker: w, address: address, settings: &c.settings, last: new(atomic.Pointer[snapshot])}
	l.last.Store(&snapshot{})
	if c.settings.Receipts != nil {
		l.assigned = &assigned{known: c.settings.Restored == nil || !c.settings.Restored(state.WorkerID(w))}
	}
	return l
}

// adopt takes over the state of the same worker's link to another address.
func (l *link) adopt(before *link) {
	l.last, l.assigned = before.last, before.assigned
	l.runsUngiven.Store(before.runsUngiven.Load())
	l.pinsLost.Store(before.pinsLost.Load())
}

// lastAnswers is how long a call may still take when its worker is disconnected. A
// worker that leaves has answered all calls, but the answers may arrive after the news
// that it has left, which has another connection.
const lastAnswers = time.Second

// close closes the connection when the calls on it have ended, and ends them after
// timeout. No call begins any more.
func (l *link) close(timeout time.Duration) {
	l.mu.Lock()
	conn := l.conn
	l.conn, l.closed = nil, true
	l.mu.Unlock()
	if conn == nil {
		return
	}
	idle := make(chan struct{})
	go func() {
		l.calls.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(timeout):
	}
	_ = conn.Close() // an error changes nothing
	<-idle
}

// connection returns a connection on which a call either gets through or fails
// immediately. A connection that has failed is replaced. gRPC would pause before it
// retries, and fail every call until then, even if the worker is back. The call counts
// until the caller calls l.calls.Done, which it must do if there is no error.
func (l *link) connection() (*grpc.ClientConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errNotConnected
	}
	if l.conn != nil {
		if l.conn.GetState() != connectivity.TransientFailure {
			l.calls.Add(1)
			return l.conn, nil
		}
		_ = l.conn.Close() // no call is on it
		l.conn = nil
	}
	// A small buffer, because there are many connections with little traffic.
	opts := append([]grpc.DialOption{grpc.WithReadBufferSize(4 << 10)}, l.settings.Dialing...)
	conn, err := l.settings.Dial(l.address, identity.Principal{Role: identity.RoleWorker, Name: l.worker.Name}, opts...)
	if err != nil {
		return nil, err
	}
	l.conn = conn
	l.calls.Add(1)
	return conn, nil
}

// call makes a call. sent is false if certainly nothing of it has reached the
// worker.
func (l *link) call(ctx context.Context, method string, request proto.Message, reply wire.Response) (sent bool, err error) {
	conn, err := l.connection()
	if err != nil {
		return false, err
	}
	defer l.calls.Done()
	// gRPC sets to when it hands the call to a transport.
	var to peer.Peer
	err = conn.Invoke(ctx, method, request, reply, grpc.ForceCodecV2(wire.ResponseCodec{}), grpc.Peer(&to))
	sent = to.Addr != nil
	if err != nil && !sent && ctx.Err() == nil {
		l.drop(conn)
	}
	return sent, callError(ctx, err)
}

// drop closes a connection that could not be established.
func (l *link) drop(conn *grpc.ClientConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == conn {
		l.conn = nil
		_ = conn.Close() // no call is on it
	}
}

// reportReachability reports to the observer whether the worker can be called.
func (l *link) reportReachability(ctx context.Context, err error) {
	if l.settings.Observe == nil || errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	if errors.Is(err, orchestrator.ErrDeposed) {
		err = nil // an answer of the worker
	}
	if err == nil && l.runsUngiven.Load() {
		err = errNotGiven // lets the lease expire, as if the worker could not be called
	}
	l.settings.Observe(state.WorkerID(l.worker), err)
}

// failed adds the worker's address to an error.
func (l *link) failed(err error) error { return fmt.Errorf("at %s: %w", l.address, err) }

var (
	errNotConnected = errors.New("not connected: never was, or lease expired")
	errClosed       = errors.New("communicator is closed")
)

// callError converts the error of a call for the caller. The result wraps ErrRejected
// only if nothing was done, whatever the call.
func callError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	if cause := context.Cause(ctx); cause != nil && (s.Code() == codes.DeadlineExceeded || s.Code() == codes.Canceled) {
		return cause
	}
	switch s.Code() {
	case codes.FailedPrecondition:
		if wire.OtherReason(err, wire.ReasonIncarnation) {
			break
		}
		return wire.Explained(orchestrator.ErrRejected, s.Message())
	case codes.DeadlineExceeded: // the worker's clock is ahead
		return fmt.Errorf("%w: %s", context.DeadlineExceeded, s.Message())
	case codes.Unimplemented:
		return fmt.Errorf("%w: not a worker of this protocol: %s", orchestrator.ErrRejected, s.Message())
	case codes.Unauthenticated, codes.PermissionDenied: // decided before the request is read
		return fmt.Errorf("%w: %w", orchestrator.ErrRejected, wire.Readable(err))
	case codes.ResourceExhausted:
		return fmt.Errorf("message exceeds WithMaxMessage at one end: %s", s.Message())
	}
	return wire.Readable(err)
}

// errUnconfirmed is wrapped if one worker alone names a higher epoch.
var errUnconfirmed = errors.New("no other worker confirms it")

// checkEpoch returns an error if a worker's answer names a higher epoch than that of
// the call. The error wraps ErrDeposed if the worker is believed.
func (l *link) checkEpoch(ctx context.Context, later orchestrator.Term) error {
	own, ok := orchestrator.TermFromContext(ctx)
	if !ok || later.Epoch <= own.Epoch {
		return nil
	}
	if l.settings.Believe == nil || l.settings.Believe(state.WorkerID(l.worker), later) {
		return fmt.Errorf("%w: epoch %d is lower than %d", orchestrator.ErrDeposed, own.Epoch, later.Epoch)
	}
	return fmt.Errorf("worker names epoch %d, higher than %d, but %w", later.Epoch, own.Epoch, errUnconfirmed)
}
