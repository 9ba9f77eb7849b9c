//go:build !race

package manager

// R7: a manager in a separate process, three members with their tasks in this one, and an
// attacker that speaks HTTP/2 by itself: with the certificate of one worker, or with none.

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/testca"
	"github.com/f8949c05/orchestrator/worker"
)

var (
	floodKinds = flag.String("flood.kinds", "known resets,unknown resets", "comma-separated `floods` of TestR7_Floods: one of the table, or of attackAs, after known or unknown")
	floodPins  = flag.Bool("flood.pin", false, "give the manager of TestR7_Floods one processor and the attacker another, with taskset")
)

// flood is what an attacker sends on a connection: first a prologue, then frames.
type flood struct {
	prologue func(*http2.Framer) error                  // nil: nothing
	frames   func(f *http2.Framer, stream uint32) error // nil: it ends the connection
	stays    bool                                       // it waits until the manager ends the connection
}

func headers(f *http2.Framer, stream uint32, ends bool, method string, more ...string) error {
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: callHeaders(method, more...), EndHeaders: true, EndStream: ends})
}

// callHeaders returns the HTTP/2 headers of a call.
func callHeaders(method string, more ...string) []byte {
	var block strings.Builder
	e := hpack.NewEncoder(&block)
	fields := append([]string{":method", "POST", ":scheme", "https", ":path", method, ":authority", "x", "content-type", "application/grpc", "te", "trailers"}, more...)
	for i := 0; i < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // into memory
	}
	return []byte(block.String())
}

// message sends one message in as many frames as it takes.
func message(f *http2.Framer, stream uint32, content []byte) error {
	content = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(content))), content...)
	for chunk := range slices.Chunk(content, 16<<10) {
		if err := f.WriteData(stream, false, chunk); err != nil {
			return err
		}
	}
	return f.WriteData(stream, true, nil)
}

const aCall = orchestratorv1.Manager_Heartbeat_FullMethodName

// floods are what an attacker may send on each of its connections.
var floods = map[string]flood{
	"calls": {frames: func(f *http2.Framer, s uint32) error {
		return errors.Join(headers(f, s, false, aCall), message(f, s, []byte("\x0a\x07mallory")))
	}},
	"large calls": {frames: func(f *http2.Framer, s uint32) error {
		return errors.Join(headers(f, s, false, orchestratorv1.Manager_Complete_FullMethodName), message(f, s, grpctest.EmptyCompletions("mallory", maxRequest-100)))
	}},
	"resets": {frames: func(f *http2.Framer, s uint32) error {
		return errors.Join(headers(f, s, false, aCall), f.WriteRSTStream(s, http2.ErrCodeCancel))
	}},
	"resets of nothing": {frames: func(f *http2.Framer, s uint32) error { return f.WriteRSTStream(s, http2.ErrCodeCancel) }},
	"streams without end": {frames: func(f *http2.Framer, s uint32) error {
		return headers(f, s, false, aCall)
	}},
	"large headers": {frames: func(f *http2.Framer, s uint32) error {
		return headers(f, s, true, aCall, "x", strings.Repeat("\xff", 12_000))
	}},
	"continuation": {
		prologue: func(f *http2.Framer) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: callHeaders(aCall)})
		},
		frames: func(f *http2.Framer, _ uint32) error { return f.WriteContinuation(1, false, nil) },
	},
	"pings":      {frames: func(f *http2.Framer, _ uint32) error { return f.WritePing(false, [8]byte{}) }},
	"pong":       {frames: func(f *http2.Framer, _ uint32) error { return f.WritePing(true, [8]byte{}) }},
	"settings":   {frames: func(f *http2.Framer, _ uint32) error { return f.WriteSettings() }},
	"windows":    {frames: func(f *http2.Framer, _ uint32) error { return f.WriteWindowUpdate(0, 1) }},
	"priorities": {frames: func(f *http2.Framer, s uint32) error { return f.WritePriority(s, http2.PriorityParam{}) }},
	"unknown":    {frames: func(f *http2.Framer, s uint32) error { return f.WriteRawFrame(0x77, 0, s, make([]byte, 16<<10)) }},
	"empty data": {
		prologue: func(f *http2.Framer) error { return headers(f, 1, false, aCall) },
		frames:   func(f *http2.Framer, _ uint32) error { return f.WriteData(1, false, nil) },
	},
	"handshakes":         {},
	"silence once known": {stays: true},
}

// strike floods the address from n connections until ctx ends. A connection that is
// closed is made again.
func strike(ctx context.Context, address string, n int, config *tls.Config, what flood) {
	var attackers sync.WaitGroup
	for range n {
		attackers.Go(func() {
			for ctx.Err() == nil {
				strikeOnce(ctx, address, config, what)
			}
		})
	}
	attackers.Wait()
}

// strikeOnce floods through one connection until it fails or ctx ends.
func strikeOnce(ctx context.Context, address string, config *tls.Config, what flood) {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	raw, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	conn := tls.Client(raw, config)
	if conn.HandshakeContext(ctx) != nil {
		return
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return
	}
	read := make(chan struct{})
	go func() { // it reads, or the manager would wait for it
		defer close(read)
		_, _ = io.Copy(io.Discard, conn)
	}()
	defer func() {
		_ = raw.Close()
		<-read
	}()
	f := http2.NewFramer(conn, nil)
	err = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
	if err == nil && what.prologue != nil {
		err = what.prologue(f)
	}
	if what.stays {
		<-read
	}
	for i := uint32(1); err == nil && what.frames != nil && i < 1<<31-2; i += 2 {
		err = what.frames(f, i)
	}
}

// halfOpen makes connections that say little and stay, until ctx ends.
func halfOpen(ctx context.Context, address string, n int, says string) {
	var attackers sync.WaitGroup
	for range n {
		attackers.Go(func() {
			dialer := net.Dialer{Timeout: 10 * time.Second}
			for ctx.Err() == nil {
				conn, err := dialer.DialContext(ctx, "tcp", address)
				if err != nil {
					continue
				}
				stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
				_, _ = io.WriteString(conn, says) // may be closed already
				_, _ = io.Copy(io.Discard, conn)  // until the manager closes it
				stop()
				_ = conn.Close()
			}
		})
	}
	attackers.Wait()
}

// hello returns the first bytes of a TLS client.
func hello() string {
	here, there := net.Pipe()
	go func() {
		_ = tls.Client(here, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}).Handshake() // fails
	}()
	defer here.Close()
	first := make([]byte, 4096)
	n, _ := there.Read(first)
	return string(first[:n])
}

// attackAs is the main function of an attacker: "known CALLS" has the certificate of a
// worker, "unknown CALLS" has none.
func attackAs(t *testing.T, kind, address string, files testca.Files) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), *floodLasts)
	defer stop()
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
	who, what, _ := strings.Cut(kind, " ")
	n := 256
	if who == "known" {
		n = 64
		own, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		require.NoError(t, err)
		config.Certificates = []tls.Certificate{own}
	}
	switch what {
	case "silence":
		halfOpen(ctx, address, n, "")
	case "hello":
		halfOpen(ctx, address, n, hello())
	case "half a hello":
		halfOpen(ctx, address, n, hello()[:40])
	default:
		strike(ctx, address, n, config, floods[what])
	}
}

// site is a manager in another process with three members here, which run its tasks.
type site struct {
	ca      *testca.CA
	manager *exec.Cmd
	address string
	members []*worker.Worker[string]
}

const siteTasks = 60

func pinned(cmd *exec.Cmd, core int) *exec.Cmd {
	if !*floodPins {
		return cmd
	}
	by := exec.Command("taskset", append([]string{"-c", strconv.Itoa(core), cmd.Path}, cmd.Args[1:]...)...)
	by.Env = cmd.Env
	return by
}

func newSite(t *testing.T, lease time.Duration) *site {
	t.Helper()
	s := &site{ca: testca.New(t, "ours")}
	s.manager, s.address = startManager(t, s.ca, siteTasks)
	for i := range 3 {
		name := fmt.Sprint("member", i)
		own := with(t, s.ca.Worker(t, name))
		w, err := worker.New(func(ctx context.Context, _ string) error { <-ctx.Done(); return nil }, worker.WithLease(lease, time.Second))
		require.NoError(t, err)
		m, err := NewMember(s.address, name, w, own)
		require.NoError(t, err)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx, l) }()
		t.Cleanup(func() {
			cancel(errClosing)
			require.ErrorIs(t, <-done, errClosing)
		})
		s.members = append(s.members, w)
	}
	require.Eventually(t, func() bool { return s.running() == siteTasks }, 20*time.Second, 20*time.Millisecond, "the tasks run")
	return s
}

// running returns how many tasks run.
func (s *site) running() (n int) {
	for _, w := range s.members {
		for _, task := range w.Status() {
			if task.State == worker.Running {
				n++
			}
		}
	}
	return n
}

// under measures heartbeats of another worker while the attacker floods.
func (s *site) under(t *testing.T, kind string) (beats []time.Duration, peak uint64) {
	t.Helper()
	good := with(t, s.ca.Worker(t, "beating"))
	here := serveWorker(t, good)
	client := orchestratorv1.NewManagerClient(connect(t, s.address, aManager, good))
	joining := registering("beating", here.Incarnation(), here.addr)
	joining.Draining = true // it gets no tasks
	_, err := client.Register(t.Context(), joining, grpc.WaitForReady(true))
	require.NoError(t, err)
	attacker := partOf(t, s.ca.Worker(t, "mallory"), s.address, kind)
	attacker = pinned(attacker, 1)
	require.NoError(t, attacker.Start())
	over := make(chan error, 1)
	go func() { over <- attacker.Wait() }()
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, err := client.Heartbeat(ctx, &orchestratorv1.HeartbeatRequest{Worker: []byte("beating"), Incarnation: here.Incarnation(), Draining: true}, grpc.WaitForReady(true))
		cancel()
		require.NoError(t, err)
		beats = append(beats, time.Since(began))
		peak = max(peak, residentMemory(t, s.manager.Process.Pid))
		select {
		case err := <-over:
			require.NoError(t, err)
			slices.Sort(beats)
			return beats, peak
		case <-every.C:
		}
	}
}

// lost returns how many leases the members have lost.
func (s *site) lost() (n uint64) {
	for _, w := range s.members {
		n += w.LeaseStats().Rejoins
	}
	return n
}

// TestR7_Floods measures the floods of -flood.kinds. With -flood.pin, no heartbeat may
// take a second. Without it the machine may be busy otherwise, and one in twenty may.
func TestR7_Floods(t *testing.T) {
	for kind := range strings.SplitSeq(*floodKinds, ",") {
		t.Run(kind, func(t *testing.T) {
			s := newSite(t, aLease)
			beats, peak := s.under(t, kind)
			percentile := func(p int) time.Duration { return beats[(len(beats)-1)*p/100].Round(100 * time.Microsecond) }
			t.Logf("%d heartbeats, median %v, 95%% %v, longest %v; memory %d MiB; %d leases lost, %d of %d tasks run",
				len(beats), percentile(50), percentile(95), percentile(100), peak>>20, s.lost(), s.running(), siteTasks)
			if *floodPins {
				require.Less(t, percentile(100), time.Second)
			}
			require.Less(t, percentile(95), time.Second)
			require.Less(t, peak, uint64(300<<20))
			require.Zero(t, s.lost())
			require.Equal(t, siteTasks, s.running())
		})
	}
}
