package grpc

// Shared by the tests of hostile peers: a healthy client that is served during an
// attack, and the peak of memory.

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

const mebi = 1 << 20

// meanwhile runs an attack while a healthy client calls all the time, over an
// earlier connection and over new ones. Every call must succeed. The memory in use
// may grow by at most most bytes.
func meanwhile(t *testing.T, most uint64, call func(context.Context) error, anew func(context.Context) error, attack func()) {
	t.Helper()
	require.NoError(t, call(t.Context()), "before")
	before := inUse()
	peak, stop := watchMemory()
	done := make(chan struct{})
	var wg sync.WaitGroup
	served := func(what string, call func(context.Context) error) {
		var n int
		var slowest time.Duration
		every := time.NewTicker(10 * time.Millisecond)
		defer every.Stop()
		for ended := false; !ended; n++ {
			select {
			case <-done:
				ended = true // call once more after the attack
			case <-every.C:
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			began := time.Now()
			if err := call(ctx); err != nil {
				t.Errorf("%s, after %d calls: %v", what, n, err)
				ended = true
			}
			slowest = max(slowest, time.Since(began))
			cancel()
		}
		t.Logf("%s: %d calls, the slowest in %s", what, n, slowest.Round(time.Millisecond))
	}
	wg.Go(func() { served("a connection from before", call) })
	wg.Go(func() { served("new connections", anew) })
	func() {
		defer stop()
		defer wg.Wait()
		defer close(done) // even if the attack fails the test
		attack()
	}()
	grown := max(*peak, before) - before
	t.Logf("memory: grown by %d MiB at most", grown/mebi)
	require.Less(t, grown, most)
}

// inUse returns the memory of the heap and the stacks.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// watchMemory samples the memory in use and keeps the peak, until stop is called.
func watchMemory() (peak *uint64, stop func()) {
	peak, done := new(uint64), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		every := time.NewTicker(10 * time.Millisecond)
		defer every.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			*peak = max(*peak, m.HeapInuse+m.StackInuse)
			select {
			case <-every.C:
			case <-done:
				return
			}
		}
	})
	return peak, func() {
		close(done)
		wg.Wait()
	}
}

// healthy returns the calls of a well-behaved worker w1.
func healthy(t *testing.T, address string, opts ...Option) (call, anew func(context.Context) error) {
	t.Helper()
	beat := func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := orchestratorv1.NewManagerClient(conn).Heartbeat(ctx, &orchestratorv1.HeartbeatRequest{Worker: []byte("w1")}, grpc.WaitForReady(true))
		return err
	}
	s := settingsOf(t, opts...)
	conn := connect(t, address, aManager, opts...)
	return func(ctx context.Context) error { return beat(ctx, conn) },
		func(ctx context.Context) error {
			conn, err := s.dial(address, aManager)
			if err != nil {
				return err
			}
			err = beat(ctx, conn)
			_ = conn.Close() // fails only if closed already
			return err
		}
}

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
