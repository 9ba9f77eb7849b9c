//go:build unix

package grpc

// The cost of a steady term on the wire: a List of every worker, without changes.

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"
	"github.com/f8949c05/orchestrator/internal/testca"
	"github.com/f8949c05/orchestrator/worker"
)

// meter counts the bytes that are sent and received.
type meter struct {
	payload, wire atomic.Int64
}

func (m *meter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (m *meter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (m *meter) HandleConn(context.Context, stats.ConnStats)                       {}

func (m *meter) HandleRPC(_ context.Context, s stats.RPCStats) {
	switch s := s.(type) {
	case *stats.OutPayload:
		m.payload.Add(int64(s.Length))
		m.wire.Add(int64(s.WireLength))
	case *stats.InPayload:
		m.payload.Add(int64(s.Length))
		m.wire.Add(int64(s.WireLength))
	case *stats.InHeader:
		m.wire.Add(int64(s.WireLength))
	case *stats.InTrailer:
		m.wire.Add(int64(s.WireLength))
	}
}

// sweep lists every worker, atOnce of them at the same time.
func sweep(b *testing.B, c *Communicator, workers []WorkerID, atOnce int) {
	var wg sync.WaitGroup
	var next atomic.Int64
	var failed atomic.Pointer[error]
	for range atOnce {
		wg.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(workers); i = next.Add(1) - 1 {
				if _, err := c.List(inTerm(b, 3), workers[i]); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		require.NoError(b, *err)
	}
}

func BenchmarkSteadyList(b *testing.B) {
	for name, mode := range map[string]struct{ counted, secure bool }{
		"plaintext": {}, "counted": {counted: true}, "TLS": {secure: true},
	} {
		b.Run("1000workers/"+name, func(b *testing.B) {
			const n, tasks = 1000, 100
			ca := testca.New(b, "ours")
			speaking := WithPlaintext
			if mode.secure {
				speaking = func() Option { return speakingTLS(b, ca.Manager(b)) }
			}
			before := memory()
			var m meter
			opts := []CommunicatorOption{speaking()}
			if mode.counted {
				opts = append(opts, communicatorOptionFunc(func(s *option.Communicator) {
					s.Dialing = []grpc.DialOption{grpc.WithStatsHandler(&m)}
				}))
			}
			c, err := NewCommunicator(opts...)
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, c.Close()) })
			ctx, cancel := context.WithCancel(b.Context())
			var serving sync.WaitGroup
			b.Cleanup(func() { cancel(); serving.Wait() })
			workers := make([]WorkerID, n)
			for i := range workers {
				w, err := worker.New(func(ctx context.Context, _ string) error { <-ctx.Done(); return nil })
				require.NoError(b, err)
				b.Cleanup(func() { require.NoError(b, w.Close(context.WithoutCancel(b.Context()))) })
				for j := range tasks {
					require.NoError(b, w.Add(ctx, fmt.Sprintf("a task with a long name %d/%d", i, j)))
				}
				l, err := net.Listen("tcp", "127.0.0.1:0")
				require.NoError(b, err)
				if mode.secure {
					speaking = func() Option { return speakingTLS(b, ca.Worker(b, fmt.Sprint("w", i))) }
				}
				server, err := NewServer(w, speaking())
				require.NoError(b, err)
				serving.Go(func() { _ = server.Serve(ctx, l) })
				workers[i] = WorkerID{fmt.Sprint("w", i), w.Incarnation()}
				require.NoError(b, c.Connect(workers[i], l.Addr().String()))
			}
			idle := memory()
			start := time.Now()
			sweep(b, c, workers, 128)
			first := time.Since(start)
			used := memory()
			goroutines := runtime.NumGoroutine()
			m.payload.Store(0)
			m.wire.Store(0)
			spent := cpu(b)
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				sweep(b, c, workers, 128)
			}
			b.ReportMetric((cpu(b)-spent).Seconds()*1000/float64(b.N), "cpu-ms/op")
			b.ReportMetric(first.Seconds()*1000, "first-ms")
			b.ReportMetric(float64(idle-before)/n/1024, "worker-KiB/w")
			b.ReportMetric(float64(used-idle)/n/1024, "conn-KiB/w")
			b.ReportMetric(float64(goroutines)/n, "goroutines/w")
			if mode.counted {
				b.ReportMetric(float64(m.payload.Load())/float64(b.N)/n, "payload-B/w")
				b.ReportMetric(float64(m.wire.Load())/float64(b.N)/n, "wire-B/w")
			}
		})
	}
}

// speakingTLS returns the option to use TLS with these files.
func speakingTLS(b *testing.B, files testca.Files) Option {
	c, err := LoadCredentials(files.Cert, files.Key, files.CA)
	require.NoError(b, err)
	return WithCredentials(c)
}

// cpu returns the processor time that this process has used.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
