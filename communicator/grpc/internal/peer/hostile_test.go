package peer

// Hostile strangers, which can reach a port and have no certificate.

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/testca"
)

// long makes the tests with many connections and long floods take as long as in CI.
var long = flag.Bool("peer.long", false, "open 10,000 connections at once, flood for half a second, and replace the files 50 times")

// strangers makes n concurrent connections, and returns when do has returned for
// each.
func strangers(t *testing.T, address string, n int, do func(net.Conn)) {
	t.Helper()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			conn, err := net.DialTimeout("tcp", address, 10*time.Second)
			if err != nil {
				t.Error(err)
				return
			}
			do(conn)
			_ = conn.Close() // the server may have closed it
		})
	}
	wg.Wait()
}

// drain reads until the server closes the connection, as it must.
func drain(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(4 * handshakeTimeout)); err != nil {
		return // closed
	}
	var timeout net.Error
	if _, err := io.Copy(io.Discard, conn); errors.As(err, &timeout) && timeout.Timeout() {
		t.Error("the server does not close the connection")
	}
}

func TestR3_RandomBytes(t *testing.T) {
	each(t, func(t *testing.T, address string, log *grpctest.Journal, opts ...option) {
		call, anew := healthy(t, address, opts...)
		grpctest.Meanwhile(t, 64*grpctest.Mebi, call, anew, func() {
			strangers(t, address, 200, func(conn net.Conn) {
				random := make([]byte, 64<<10)
				for i := range random {
					random[i] = byte(rand.Uint32())
				}
				_, _ = conn.Write(random) // fails when the server has closed the connection
				drain(t, conn)
			})
		})
		require.NotZero(t, log.Count("connection refused"))
	})
}

func TestR3_HTTP1(t *testing.T) {
	each(t, func(t *testing.T, address string, log *grpctest.Journal, opts ...option) {
		call, anew := healthy(t, address, opts...)
		request := []byte("GET / HTTP/1.1\r\nHost: manager\r\n" + strings.Repeat("X-Filler: x\r\n", 10_000))
		grpctest.Meanwhile(t, 64*grpctest.Mebi, call, anew, func() {
			strangers(t, address, 200, func(conn net.Conn) {
				_, _ = conn.Write(request) // fails when the server has closed the connection
				drain(t, conn)
			})
		})
		require.NotZero(t, log.Count("connection refused"))
	})
}

// each runs a test with a TLS server and with a plaintext server.
func each(t *testing.T, test func(t *testing.T, address string, log *grpctest.Journal, opts ...option)) {
	t.Run("plaintext", func(t *testing.T) {
		var log grpctest.Journal
		test(t, serve(t, probed{}, logged(&log)), &log)
	})
	t.Run("TLS", func(t *testing.T) {
		ca := testca.New(t, "ours")
		var log grpctest.Journal
		test(t, serve(t, probed{}, with(t, ca.Manager(t)), logged(&log)), &log, with(t, ca.Worker(t, "w1")))
	})
}

// Thousands of connections that are silent or nearly so.
func TestR3_HalfOpenConnections(t *testing.T) {
	n := 4_000
	if *long {
		n = 10_000
	}
	for name, c := range map[string]struct {
		says string
		opts func(t *testing.T) (server, client []option)
	}{
		"silent, plaintext":    {"", func(*testing.T) (_, _ []option) { return nil, nil }},
		"silent, TLS":          {"", secured},
		"half a hello, of TLS": {"\x16\x03\x01\x02\x00\x01", secured},
	} {
		t.Run(name, func(t *testing.T) {
			server, client := c.opts(t)
			address := serve(t, probed{}, server...)
			call, anew := healthy(t, address, client...)
			conns := make(chan net.Conn, n)
			grpctest.Meanwhile(t, 128*grpctest.Mebi, call, anew, func() {
				var wg sync.WaitGroup
				for range 20 {
					wg.Go(func() {
						for range n / 20 {
							conn, err := net.DialTimeout("tcp", address, 30*time.Second)
							if errors.Is(err, syscall.EMFILE) {
								return // the limit of this process
							}
							if err != nil {
								t.Error(err)
								return
							}
							_, _ = io.WriteString(conn, c.says) // may be closed already
							conns <- conn
						}
					})
				}
				wg.Wait()
			})
			close(conns)
			t.Logf("%d connections", len(conns))
			require.Greater(t, len(conns), 2*maxPending, "the limit of open files is too low for this test: see ulimit -n")
			for conn := range conns {
				require.NoError(t, conn.Close())
			}
		})
	}
}

// secured returns the options of a manager and of worker w1.
func secured(t *testing.T) (server, client []option) {
	t.Helper()
	ca := testca.New(t, "ours")
	return []option{with(t, ca.Manager(t))}, []option{with(t, ca.Worker(t, "w1"))}
}

// A client that sends one byte at a time is disconnected soon.
func TestR3_Slowloris(t *testing.T) {
	server, client := secured(t)
	address := serve(t, probed{}, server...)
	call, anew := healthy(t, address, client...)
	hello := "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("x", 100)
	grpctest.Meanwhile(t, 64*grpctest.Mebi, call, anew, func() {
		began := time.Now()
		strangers(t, address, 500, func(conn net.Conn) {
			every := time.NewTicker(handshakeTimeout / 10)
			defer every.Stop()
			for _, letter := range []byte(hello) {
				if _, err := conn.Write([]byte{letter}); err != nil {
					return // the server has closed the connection
				}
				<-every.C
			}
			t.Error("the server has listened to all of it")
		})
		require.Less(t, time.Since(began), 2*handshakeTimeout)
	})
}

// Floods of HTTP/2 frames: from a client without a certificate and, without TLS,
// from an admitted one.
func TestR3_HTTP2Floods(t *testing.T) {
	lasts := 60 * time.Millisecond
	if *long {
		lasts = 500 * time.Millisecond
	}
	apply := orchestratorv1.Worker_Apply_FullMethodName
	for name, flood := range map[string]func(f *http2.Framer, i uint32) error{
		"pings":    func(f *http2.Framer, _ uint32) error { return f.WritePing(false, [8]byte{}) },
		"settings": func(f *http2.Framer, _ uint32) error { return f.WriteSettings() },
		"calls": func(f *http2.Framer, i uint32) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: requestHeaders(apply), EndHeaders: true})
		},
		"calls taken back": func(f *http2.Framer, i uint32) error {
			return errors.Join(f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: requestHeaders(apply), EndHeaders: true}), f.WriteRSTStream(2*i+1, http2.ErrCodeCancel))
		},
		"large headers": func(f *http2.Framer, i uint32) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: requestHeaders(apply, "x", strings.Repeat("\xff", 12_000)), EndHeaders: true})
		},
		"headers without end": func(f *http2.Framer, i uint32) error {
			if i == 0 {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestHeaders(apply)})
			}
			return f.WriteContinuation(1, false, requestHeaders(apply, "x", strings.Repeat("y", 12_000)))
		},
		"messages that are announced": func(f *http2.Framer, i uint32) error {
			return errors.Join(f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: requestHeaders(apply), EndHeaders: true}), f.WriteData(2*i+1, false, []byte{0, 0, 0xff, 0xff, 0xff}))
		},
		"empty data": func(f *http2.Framer, i uint32) error {
			if i == 0 {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestHeaders(apply), EndHeaders: true})
			}
			return f.WriteData(1, false, nil)
		},
		"windows": func(f *http2.Framer, _ uint32) error { return f.WriteWindowUpdate(0, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, address string, _ *grpctest.Journal, opts ...option) {
				call, anew := healthy(t, address, opts...)
				grpctest.Meanwhile(t, 128*grpctest.Mebi, call, anew, func() {
					strangers(t, address, 4, func(conn net.Conn) {
						if len(opts) > 0 {
							conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
						}
						if _, err := io.WriteString(conn, preface); err != nil {
							return // the server has closed the connection
						}
						if err := conn.SetWriteDeadline(time.Now().Add(lasts)); err != nil {
							t.Error(err)
						}
						f := http2.NewFramer(conn, nil) // never reads
						err := f.WriteSettings()
						for i := uint32(0); err == nil && i < 100_000; i++ {
							err = flood(f, i)
						}
					})
				})
			})
		})
	}
}

// requestHeaders returns the HTTP/2 headers of a call.
func requestHeaders(method string, more ...string) []byte {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	fields := append([]string{":method", "POST", ":scheme", "http", ":path", method, ":authority", "x", "content-type", "application/grpc", "te", "trailers"}, more...)
	for i := 0; i < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // into memory
	}
	return block.Bytes()
}

// A message above the limit is refused by the receiver, and by a sender with that
// limit. The error says so, and the connection survives.
func TestR3_MessagesAboveTheLimit(t *testing.T) {
	const most = 2 * grpctest.Mebi
	small := option(func(s *Settings) { s.MaxMessage = most })
	large := strings.Repeat("x", most+1)
	address := serve(t, probed{}, small)
	for name, sender := range map[string][]option{"received": nil, "sent": {small}} {
		t.Run(name, func(t *testing.T) {
			conn := connect(t, address, aManager, sender...)
			for range 20 {
				require.Equal(t, codes.ResourceExhausted, status.Code(heartbeat(t, conn, large)))
				require.NoError(t, heartbeat(t, conn, "w1"))
			}
		})
	}
}

// A compressed message is refused as soon as its decompressed length exceeds the
// limit.
func TestR3_CompressedBombs(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	zeros := make([]byte, grpctest.Mebi)
	for range 64 {
		_, err := z.Write(zeros)
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	message := append(binary.BigEndian.AppendUint32([]byte{1}, uint32(bomb.Len())), bomb.Bytes()...)

	address := serve(t, probed{}, func(s *Settings) { s.MaxMessage = 2 * grpctest.Mebi })
	call, anew := healthy(t, address)
	grpctest.Meanwhile(t, 256*grpctest.Mebi, call, anew, func() {
		strangers(t, address, 4, func(conn net.Conn) {
			_, err := io.WriteString(conn, preface)
			if err != nil {
				t.Error(err)
				return
			}
			f := http2.NewFramer(conn, conn)
			f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
			err = f.WriteSettings()
			for i := uint32(1); err == nil && i < 16; i += 2 {
				err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: i, BlockFragment: requestHeaders(orchestratorv1.Manager_Heartbeat_FullMethodName, "grpc-encoding", "gzip"), EndHeaders: true})
				for rest := message; err == nil && len(rest) > 0; {
					n := min(len(rest), 16<<10)
					err = f.WriteData(i, n == len(rest), rest[:n])
					rest = rest[n:]
				}
			}
			for refused := 0; err == nil && refused < 8; {
				var frame http2.Frame
				frame, err = f.ReadFrame()
				if h, ok := frame.(*http2.MetaHeadersFrame); ok {
					for _, field := range h.Fields {
						if field.Name == "grpc-status" && field.Value == "8" { // RESOURCE_EXHAUSTED
							refused++
						}
					}
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	})
}

// A client that never reads is disconnected, whatever it sends.
func TestR3_SlowReadingClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCable()
		s, l, err := settingsOf(t).NewServer(c, 0)
		require.NoError(t, err)
		orchestratorv1.RegisterWorkerServer(s, grpctest.Reporting{Names: func(yield func(string)) {
			for range 12 {
				yield(strings.Repeat("x", grpctest.Mebi))
			}
		}})
		done := make(chan error, 1)
		go func() { done <- s.Serve(l) }()
		g, ok := l.(*connLimiter)
		require.True(t, ok)

		conn, err := c.DialContext(t.Context())
		require.NoError(t, err)
		before := grpctest.InUse()
		_, err = io.WriteString(conn, preface)
		require.NoError(t, err)
		f := http2.NewFramer(conn, nil)
		require.NoError(t, f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}))
		require.NoError(t, f.WriteWindowUpdate(0, 1<<31-1-65535))
		for i := range uint32(8) {
			require.NoError(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: requestHeaders(orchestratorv1.Worker_Report_FullMethodName), EndHeaders: true}))
			require.NoError(t, f.WriteData(2*i+1, true, make([]byte, 5)))
		}
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { // keeps the connection alive
			for f.WritePing(true, [8]byte{}) == nil {
				time.Sleep(time.Second)
			}
		})
		synctest.Wait()
		_, admitted := g.counts()
		require.Equal(t, 1, admitted)
		grown := max(grpctest.InUse(), before) - before
		require.Less(t, grown, uint64(8*12*2*grpctest.Mebi), "at most twice each answer")
		wg.Wait()
		require.LessOrEqual(t, time.Since(began), writeTimeout+2*time.Second)
		_, admitted = g.counts()
		require.Zero(t, admitted)
		require.NoError(t, conn.Close())
		s.Stop()
		require.NoError(t, <-done)
	})
}
