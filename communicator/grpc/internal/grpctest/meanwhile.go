package grpctest

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"
)

// Mebi is one MiB in bytes.
const Mebi = 1 << 20

// Meanwhile runs an attack while a healthy client calls all the time, over an
// earlier connection and over new ones. Every call must succeed. The memory in use
// may grow by at most most bytes.
func Meanwhile(t *testing.T, most uint64, call func(context.Context) error, anew func(context.Context) error, attack func()) {
	t.Helper()
	if err := call(t.Context()); err != nil {
		t.Fatal("before the attack:", err)
	}
	before := InUse()
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
	t.Logf("memory: grown by %d MiB at most", grown/Mebi)
	if grown >= most {
		t.Errorf("memory has grown by %d bytes, want fewer than %d", grown, most)
	}
}

// InUse returns the memory of the heap and the stacks.
func InUse() uint64 {
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
