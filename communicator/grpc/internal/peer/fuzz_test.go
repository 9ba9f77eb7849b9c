package peer

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/testca"
)

// FuzzServerConn sends arbitrary bytes to a server, with and without the HTTP/2
// preface. The server must survive and serve other clients.
func FuzzServerConn(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add([]byte(preface), false)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), false)
	f.Add([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), false)
	f.Add([]byte{0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, true) // a ping
	call := requestHeaders(orchestratorv1.Manager_Heartbeat_FullMethodName)
	frames := &frameBuffer{}
	framer := http2.NewFramer(frames, nil)
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: call, EndHeaders: true}); err != nil {
		f.Fatal(err)
	}
	if err := framer.WriteData(1, true, []byte{0, 0, 0, 0, 4, 10, 2, 'w', '1'}); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(*frames), true)

	l := bufconn.Listen(1 << 16)
	s := Defaults()
	server, gated, err := s.NewServer(l, 0)
	if err != nil {
		f.Fatal(err)
	}
	orchestratorv1.RegisterManagerServer(server, probed{})
	orchestratorv1.RegisterWorkerServer(server, probed{})
	done := make(chan error, 1)
	go func() { done <- server.Serve(gated) }()
	conn, err := s.Dial("bufconn", aManager, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := conn.Close(); err != nil {
			f.Error(err)
		}
		server.Stop()
		if err := <-done; err != nil {
			f.Error(err)
		}
	})

	f.Fuzz(func(t *testing.T, said []byte, greeted bool) {
		stranger, err := l.DialContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stranger.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			_, _ = io.Copy(io.Discard, stranger) // ignore the server's bytes
		}()
		if greeted {
			_, _ = io.WriteString(stranger, preface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		}
		_, _ = stranger.Write(said) // the server may have closed the connection
		if err := heartbeat(t, conn, "w1"); err != nil {
			t.Fatal(err)
		}
		if err := stranger.Close(); err != nil {
			t.Fatal(err)
		}
		<-answered
	})
}

type frameBuffer []byte

func (b *frameBuffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

// FuzzAuthorities parses arbitrary files.
func FuzzAuthorities(f *testing.F) {
	pem := testca.New(f, "ours").PEM()
	f.Add(pem)
	f.Add(pem[:len(pem)/2])
	f.Add(append(pem, pem...))
	f.Fuzz(func(t *testing.T, content []byte) {
		pool, err := parseAuthorities(content)
		if (pool == nil) != (err != nil) {
			t.Fatalf("%v, %v", pool, err)
		}
	})
}
