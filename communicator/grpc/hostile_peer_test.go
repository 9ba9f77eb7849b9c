package grpc

// Hostile peers that have a certificate, or need none.

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // registered for the whole process, as any package might
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

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

// reporting is a worker with a scripted report.
type reporting struct {
	orchestratorv1.UnimplementedWorkerServer
	names func(yield func(name string))
}

func (r reporting) Report(_ context.Context, request *orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
	response := &orchestratorv1.ReportResponse{Version: &orchestratorv1.Version{Incarnation: request.GetIncarnation(), Counter: 1}}
	r.names(func(name string) {
		response.Tasks = append(response.Tasks, &orchestratorv1.Task{Name: []byte(name), State: orchestratorv1.State_STATE_RUNNING})
	})
	return response, nil
}

// serveLiar serves a worker without limits, on loopback.
func serveLiar(t *testing.T, w orchestratorv1.WorkerServer) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	orchestratorv1.RegisterWorkerServer(s, w)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, <-done)
	})
	return l.Addr().String()
}

// A worker with a million names is listed if its message is short enough. Other
// workers are listed in the meantime.
func TestR3_AMillionNames(t *testing.T) {
	for name, c := range map[string]struct {
		n      int
		format string
		says   string // "": it is listed
	}{
		"in a message too long": {1_000_000, "a-name-of-thirty-two-bytes-%05x", "message exceeds WithMaxMessage"},
		"in one that is not":    {1_000_000, "%x", "report has 1000000 tasks: at most 524288"},
		"half as many":          {500_000, "%x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			address := serveLiar(t, reporting{names: func(yield func(string)) {
				for i := range c.n {
					yield(fmt.Sprintf(c.format, i))
				}
			}})
			good, liar := hire(t), Worker{"liar", 1}
			comm := communicator(t)
			introduce(t, comm, good.as("w1"), good.addr)
			introduce(t, comm, liar, address)
			list := func(ctx context.Context) error {
				_, err := comm.List(ctx, good.as("w1"))
				return err
			}
			meanwhile(t, 512*mebi, list, list, func() { // includes the memory of the hostile worker
				names, err := comm.List(t.Context(), liar)
				if c.says != "" {
					require.ErrorContains(t, err, c.says)
					return
				}
				require.NoError(t, err)
				require.Len(t, names, c.n)
			})
		})
	}
}

// A message above the limit is refused by the receiver, and by a sender with that
// limit. The error says so, and the connection survives.
func TestR3_MessagesAboveTheLimit(t *testing.T) {
	const most = 2 * mebi
	small := WithMaxMessage(most)
	large := strings.Repeat("x", most+1)
	address := serve(t, probed{}, small)
	for name, sender := range map[string][]Option{"received": nil, "sent": {small}} {
		t.Run(name, func(t *testing.T) {
			conn := connect(t, address, aManager, sender...)
			for range 20 {
				require.Equal(t, codes.ResourceExhausted, status.Code(heartbeat(t, conn, large)))
				require.NoError(t, heartbeat(t, conn, "w1"))
			}
		})
	}
	t.Run("answered", func(t *testing.T) {
		comm := communicator(t, small)
		liar := Worker{"liar", 1}
		introduce(t, comm, liar, serveLiar(t, reporting{names: func(yield func(string)) { yield(large) }}))
		_, err := comm.List(t.Context(), liar)
		require.ErrorContains(t, err, "larger")
		require.ErrorContains(t, err, "WithMaxMessage")
	})
}

// A compressed message is refused as soon as its decompressed length exceeds the
// limit.
func TestR3_CompressedBombs(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	zeros := make([]byte, mebi)
	for range 64 {
		_, err := z.Write(zeros)
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	message := append(binary.BigEndian.AppendUint32([]byte{1}, uint32(bomb.Len())), bomb.Bytes()...)

	address := serve(t, probed{}, WithMaxMessage(2*mebi))
	call, anew := healthy(t, address)
	meanwhile(t, 256*mebi, call, anew, func() {
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
		s, l, err := settingsOf(t).newServer(c, 0)
		require.NoError(t, err)
		orchestratorv1.RegisterWorkerServer(s, reporting{names: func(yield func(string)) {
			for range 12 {
				yield(strings.Repeat("x", mebi))
			}
		}})
		done := make(chan error, 1)
		go func() { done <- s.Serve(l) }()
		g, ok := l.(*connLimiter)
		require.True(t, ok)

		conn, err := c.DialContext(t.Context())
		require.NoError(t, err)
		before := inUse()
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
		grown := max(inUse(), before) - before
		require.Less(t, grown, uint64(8*12*2*mebi), "at most twice each answer")
		wg.Wait()
		require.LessOrEqual(t, time.Since(began), writeTimeout+2*time.Second)
		_, admitted = g.counts()
		require.Zero(t, admitted)
		require.NoError(t, conn.Close())
		s.Stop()
		require.NoError(t, <-done)
	})
}

// A worker that never reads delays only calls to itself, until their deadlines.
func TestR3_SlowReadingWorker(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	ended := make(chan struct{})
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				f := http2.NewFramer(conn, nil)
				_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
				_ = f.WriteWindowUpdate(0, 1<<31-1-65535)
				<-ended // without a Read
				_ = conn.Close()
			})
		}
	})
	defer func() {
		close(ended)
		_ = l.Close()
		wg.Wait()
	}()
	good, slow := hire(t), Worker{"slow", 1}
	comm := communicator(t)
	introduce(t, comm, good.as("w1"), good.addr)
	introduce(t, comm, slow, l.Addr().String())
	list := func(ctx context.Context) error {
		_, err := comm.List(ctx, good.as("w1"))
		return err
	}
	meanwhile(t, 256*mebi, list, list, func() {
		var calls sync.WaitGroup
		for i := range 200 {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				began := time.Now()
				if err := comm.Add(ctx, slow, strings.Repeat("x", maxName-10)+fmt.Sprint(i)); err == nil {
					t.Error("added to a worker that never answers")
				}
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("a call of 2s took %s", took)
				}
			})
		}
		calls.Wait()
	})
}
