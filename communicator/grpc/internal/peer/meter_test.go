package peer

// R7: what one connection, one name and one address may send.

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/testca"
)

// frames returns the bytes of a connection with n frames that count, and some that do
// not.
func frames(n int) []byte {
	var b bytes.Buffer
	b.WriteString(preface)
	f := http2.NewFramer(&b, nil)
	for i := range n {
		switch i % 4 { // into memory
		case 0:
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
		case 1:
			_ = f.WriteRawFrame(0x77, 0, 1, make([]byte, i))
		case 2:
			_ = f.WriteData(1, false, make([]byte, smallData-1))
			_ = f.WriteData(1, false, make([]byte, smallData+i))
		case 3:
			_ = f.WriteRSTStream(1, http2.ErrCodeCancel)
		}
	}
	return b.Bytes()
}

// A frame is counted once, however the bytes arrive.
func TestR7_FramesAreCountedAcrossReads(t *testing.T) {
	const n = 200
	for _, longest := range []int{1, 2, 10, 100, 1 << 20} {
		m := &meteredConn{skip: len(preface)}
		counted := 0
		for rest := frames(n); len(rest) > 0; {
			size := min(1+rand.IntN(longest), len(rest))
			counted += m.frames(rest[:size])
			rest = rest[size:]
		}
		require.Equal(t, n, counted, "in pieces of at most %d bytes", longest)
	}
}

// stream is a connection from which a fixed number of bytes comes at once.
type stream struct {
	net.Conn
	left   int
	closed bool
}

func (s *stream) Read(b []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n := min(len(b), s.left)
	s.left -= n
	clear(b[:n])
	return n, nil
}

func (s *stream) RemoteAddr() net.Addr { return elsewhere{} }
func (s *stream) Close() error         { s.closed = true; return nil }

// The bytes of a worker are read no faster than its share, over all of its connections.
func TestR7_BytesArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seconds = 10
		w := workersShare()
		began := time.Now()
		ended := make(chan error, 2)
		for range 2 {
			m := &meteredConn{Conn: &stream{left: (burst + seconds) * workerBytes / 2}, share: w, skip: 1 << 40}
			go func() {
				_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{m}, make([]byte, 64<<10))
				ended <- err
			}()
		}
		require.NoError(t, errors.Join(<-ended, <-ended))
		require.InDelta(t, seconds, time.Since(began).Seconds(), 0.1)
	})
}

// A worker that calls as fast as its share allows is never disconnected; one that
// exceeds it is, and may come back when the share has grown again.
func TestR7_WhatExceedsTheShareIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPipes(10)
		w1 := []identity.Principal{{Role: identity.RoleWorker, Name: "w1"}}
		enter := func() (*stream, *meteredConn, error) {
			client := p.connect()
			t.Cleanup(func() { _ = client.Close() })
			raw, err := g.Accept()
			require.NoError(t, err)
			t.Cleanup(func() { _ = raw.Close() })
			if err := admit(raw, w1, time.Time{}); err != nil {
				return nil, nil, err
			}
			s := &stream{left: 1 << 30}
			m, ok := metered(s, raw, newRefusalLog(slog.New(slog.DiscardHandler))).(*meteredConn)
			require.True(t, ok)
			m.skip = 1 << 40
			return s, m, nil
		}
		read := func(m *meteredConn) error {
			_, err := m.Read(make([]byte, 1))
			return err
		}
		s, m, err := enter()
		require.NoError(t, err)
		for range 60 {
			for range workerFrames {
				require.NoError(t, read(m))
			}
			time.Sleep(time.Second)
		}
		for range burst * workerFrames {
			require.NoError(t, read(m))
		}
		require.ErrorIs(t, read(m), errFlood)
		require.True(t, s.closed)
		_, _, err = enter()
		require.ErrorContains(t, err, `too many calls or frames of worker "w1"`)
		require.Error(t, admitAnyPipe(t, p, g, w1), "another connection does not help")
		require.NoError(t, admitAnyPipe(t, p, g, []identity.Principal{{Role: identity.RoleWorker, Name: "w2"}}))
		time.Sleep(1001 * time.Millisecond)
		_, m, err = enter()
		require.NoError(t, err)
		require.NoError(t, read(m))
	})
}

// admitAnyPipe connects and is admitted as somebody.
func admitAnyPipe(t *testing.T, p *pipes, g *connLimiter, whose []identity.Principal) error {
	t.Helper()
	client := p.connect()
	raw, err := g.Accept()
	require.NoError(t, err)
	err = admit(raw, whose, time.Time{})
	require.NoError(t, errors.Join(raw.Close(), client.Close()))
	return err
}

// Names that are gone take no memory for long.
func TestR7_FormerNamesAreForgotten(t *testing.T) {
	p, g := newPipes(1)
	for i := range 10 * maxPending {
		whose := []identity.Principal{{Role: identity.RoleWorker, Name: fmt.Sprint("w", i)}}
		require.NoError(t, admitAnyPipe(t, p, g, whose))
	}
	require.LessOrEqual(t, len(g.perName), 2)
}

// at is a pipe from an address.
type at struct {
	net.Conn
	address string
}

func (a at) RemoteAddr() net.Addr {
	addr, err := net.ResolveTCPAddr("tcp", a.address)
	if err != nil {
		panic(err)
	}
	return addr
}

// One address has few pending connections. The one that is silent for longest makes
// room, and another address is not concerned.
func TestR7_OneAddressHasFewPendingConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPipes(10)
		var all []net.Conn
		connect := func(address string) net.Conn {
			here, there := net.Pipe()
			p.conns <- at{there, address}
			all = append(all, here)
			conn, err := g.Accept()
			require.NoError(t, err)
			all = append(all, conn)
			return conn
		}
		read := func(conn net.Conn) <-chan error {
			over := make(chan error, 1)
			go func() {
				_, err := conn.Read(make([]byte, 1))
				over <- err
			}()
			time.Sleep(time.Millisecond)
			return over
		}
		other := read(connect("[2001:db8:0:1::1]:80"))
		first := read(connect("[2001:db8::1]:80"))
		second := read(connect("[2001:db8::2]:80"))
		for i := range maxPerAddress - 2 {
			read(connect(fmt.Sprintf("[2001:db8::%x]:80", i+3)))
		}
		connect("[2001:db8::ffff]:80")
		require.ErrorIs(t, <-first, io.ErrClosedPipe)
		connect("[2001:db8::ffff]:80")
		require.ErrorIs(t, <-second, io.ErrClosedPipe)
		select {
		case err := <-other:
			t.Error("another network is concerned:", err)
		default:
		}
		for _, conn := range all {
			_ = conn.Close()
		}
	})
}

// When nothing can make room, the newcomer is closed, and the next is accepted.
func TestR7_AnAddressThatIsFullKeepsNobodyElseOut(t *testing.T) {
	p, g := newPipes(maxPerAddress + 2)
	for range maxPerAddress + 1 {
		_, there := net.Pipe()
		p.conns <- at{there, "192.0.2.1:80"}
	}
	_, there := net.Pipe()
	p.conns <- at{there, "192.0.2.2:80"}
	for range maxPerAddress {
		conn, err := g.Accept()
		require.NoError(t, err)
		require.Equal(t, "192.0.2.1:80", conn.RemoteAddr().String())
	}
	conn, err := g.Accept()
	require.NoError(t, err)
	require.Equal(t, "192.0.2.2:80", conn.RemoteAddr().String())
}

// Few handshakes compute at a time. One that ends or waits for its peer lets others go
// on.
func TestR7_HandshakesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g := newPipes(100)
		all := cap(g.turns) + 3
		computes := make(chan net.Conn, all)
		var clients []net.Conn
		for range all {
			client := p.connect()
			clients = append(clients, client)
			conn, err := g.Accept()
			require.NoError(t, err)
			go func() {
				_, err := conn.Read(make([]byte, 1))
				if err == nil {
					computes <- conn
				}
			}()
			_, err = client.Write([]byte{1})
			require.NoError(t, err)
		}
		synctest.Wait()
		require.Len(t, computes, cap(g.turns))
		require.NoError(t, admit(<-computes, nil, time.Time{}))
		synctest.Wait()
		require.Len(t, computes, cap(g.turns))
		require.NoError(t, (<-computes).Close())
		synctest.Wait()
		require.Len(t, computes, cap(g.turns))
		shaken(<-computes)
		synctest.Wait()
		require.Len(t, computes, cap(g.turns))
		require.NoError(t, g.Close())
		for _, client := range clients {
			require.NoError(t, client.Close())
		}
		synctest.Wait()
	})
}

// serveLittle serves on loopback until the test ends. The worker w1 may send 500 frames,
// however slow this machine is.
func serveLittle(t *testing.T, opts ...option) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, accepting, err := settingsOf(t, opts...).NewServer(l, 0)
	require.NoError(t, err)
	orchestratorv1.RegisterManagerServer(server, probed{})
	g, ok := accepting.(*connLimiter)
	require.True(t, ok)
	s := &share{frames: budget{most: 500}}
	g.perName[fmt.Sprintf("%q", []identity.Principal{{Role: identity.RoleWorker, Name: "w1"}})] = s
	done := make(chan error, 1)
	go func() { done <- server.Serve(accepting) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-done)
	})
	return l.Addr().String()
}

// A manager closes a connection with each kind of flood.
func TestR7_FloodsAreClosed(t *testing.T) {
	ca := testca.New(t, "ours")
	files := ca.Worker(t, "w1")
	own, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	require.NoError(t, err)
	heartbeat := requestHeaders(orchestratorv1.Manager_Heartbeat_FullMethodName)
	for name, flood := range map[string]func(f *http2.Framer, stream uint32) error{
		"calls": func(f *http2.Framer, stream uint32) error {
			return errors.Join(f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: heartbeat, EndHeaders: true}), f.WriteData(stream, true, make([]byte, 5)))
		},
		"resets": func(f *http2.Framer, stream uint32) error {
			return errors.Join(f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: heartbeat, EndHeaders: true}), f.WriteRSTStream(stream, http2.ErrCodeCancel))
		},
		"continuation": func(f *http2.Framer, stream uint32) error {
			if stream == 1 {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: heartbeat})
			}
			return f.WriteContinuation(1, false, nil)
		},
		"empty data": func(f *http2.Framer, stream uint32) error {
			if stream == 1 {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: heartbeat, EndHeaders: true})
			}
			return f.WriteData(1, false, nil)
		},
		"pongs":      func(f *http2.Framer, _ uint32) error { return f.WritePing(true, [8]byte{}) },
		"settings":   func(f *http2.Framer, _ uint32) error { return f.WriteSettings() },
		"windows":    func(f *http2.Framer, _ uint32) error { return f.WriteWindowUpdate(0, 1) },
		"priorities": func(f *http2.Framer, stream uint32) error { return f.WritePriority(stream, http2.PriorityParam{}) },
		"unknown":    func(f *http2.Framer, stream uint32) error { return f.WriteRawFrame(0x77, 0, stream, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			for who, config := range map[string]*tls.Config{
				"unknown": {InsecureSkipVerify: true, NextProtos: []string{"h2"}},
				"w1":      {InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{own}},
			} {
				conn, err := tls.Dial("tcp", serveLittle(t, with(t, ca.Manager(t))), config)
				require.NoError(t, err)
				require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
				over := make(chan struct{})
				go func() {
					defer close(over)
					_, _ = io.Copy(io.Discard, conn) // until the manager closes it
				}()
				_, err = io.WriteString(conn, preface)
				require.NoError(t, err)
				f := http2.NewFramer(conn, nil)
				err = f.WriteSettings()
				sent := 0
				for ; err == nil && sent < 100_000; sent++ {
					err = flood(f, uint32(2*sent+1))
				}
				var timeout net.Error
				require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "%s: %v", who, err)
				require.Error(t, err, "%s may send %d", who, sent)
				<-over
				_ = conn.Close() // the manager has closed it
			}
		})
	}
}
