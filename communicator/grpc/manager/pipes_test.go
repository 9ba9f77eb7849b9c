package manager

// An in-memory network for synctest bubbles.

import (
	"context"
	"net"
	"sync"
)

// wire is a listener whose connections are pipes. gRPC's bufconn creates timers that
// are due immediately for each connection. Go 1.26 with the race detector sometimes
// crashes when it runs such timers in a bubble.
type pipeListener struct {
	calls  chan net.Conn
	closed chan struct{}
	close  func()
}

func newPipeListener() *pipeListener {
	closed := make(chan struct{})
	return &pipeListener{calls: make(chan net.Conn), closed: closed, close: sync.OnceFunc(func() { close(closed) })}
}

// Dial returns a connection when it has been accepted.
func (w *pipeListener) Dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case w.calls <- there:
		return here, nil
	case <-w.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept implements [net.Listener].
func (w *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-w.calls:
		return conn, nil
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (w *pipeListener) Close() error {
	w.close()
	return nil
}

// Addr implements [net.Listener].
func (w *pipeListener) Addr() net.Addr { return wireAddr{} }

type wireAddr struct{}

func (wireAddr) Network() string { return "pipe" }
func (wireAddr) String() string  { return "pipe" }
