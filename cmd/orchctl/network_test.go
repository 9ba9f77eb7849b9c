package main

// A network in memory, so that commands run in synctest bubbles.

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC // for the golden files
	goleak.VerifyTestMain(m)
}

// network connects the addresses of servers.
type network struct {
	t  *testing.T
	mu sync.Mutex

	listeners map[string]net.Listener // by address
	real      bool                    // TCP on loopback: TLS needs buffers
}

func newNetwork(t *testing.T) *network {
	return &network{t: t, listeners: make(map[string]net.Listener)}
}

// serve starts a server at an address until stop, or the end of the test.
func (n *network) serve(address string, h http.Handler, opts ...func(*http.Server)) (stop func()) {
	var l net.Listener = &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	if n.real {
		var err error
		l, err = net.Listen("tcp", "127.0.0.1:0")
		require.NoError(n.t, err)
	}
	n.mu.Lock()
	n.listeners[address] = l
	n.mu.Unlock()
	server := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	for _, opt := range opts {
		opt(server)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if server.TLSConfig != nil {
			_ = server.ServeTLS(l, "", "")
		} else {
			_ = server.Serve(l)
		}
	}()
	stop = sync.OnceFunc(func() {
		n.mu.Lock()
		if n.listeners[address] == l {
			delete(n.listeners, address)
		}
		n.mu.Unlock()
		_ = server.Close()
		<-ended
	})
	n.t.Cleanup(stop)
	return stop
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	switch l := l.(type) {
	case *pipes:
		ours, theirs := net.Pipe()
		select {
		case l.conns <- local{theirs}:
			return ours, nil
		case <-l.closed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case net.Listener:
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
}

// pipes is a listener for pipes.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipes) Addr() net.Addr { return loopback() }

// local is a connection from this machine.
type local struct{ net.Conn }

func (local) RemoteAddr() net.Addr { return loopback() }
func (local) LocalAddr() net.Addr  { return loopback() }

func loopback() *net.TCPAddr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// result is what a command leaves.
type result struct {
	code        int
	out, errors string
}

// writer is a buffer for concurrent use.
type writer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *writer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// process returns a process in the network.
func (n *network) process() (p *process, out, errs *writer) {
	out, errs = new(writer), new(writer)
	return &process{
		stdin: strings.NewReader(""), stdout: out, stderr: errs, dial: n.dial,
		getenv: func(string) string { return "" },
	}, out, errs
}

// run runs a command with a server.
func (n *network) run(server string, args ...string) result {
	p, out, errs := n.process()
	code := p.run(n.t.Context(), append([]string{"-server", server}, args...))
	return result{code, out.String(), errs.String()}
}

// file writes a file and returns its path.
func file(t *testing.T, content string) string {
	t.Helper()
	path := t.TempDir() + "/file"
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func withTLS(config *tls.Config) func(*http.Server) {
	return func(s *http.Server) { s.TLSConfig = config }
}
