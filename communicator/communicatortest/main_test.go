package communicatortest

// Common code of the tests: a T that records failures.

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a tb that records how a check ended.
type recorder struct {
	ctx              context.Context
	cleanups         []func()
	failure, skipped string
}

// record makes a check in a separate goroutine, because a failing check ends its
// goroutine.
func record(ctx context.Context, check func(t tb)) *recorder {
	ctx, cancel := context.WithCancel(ctx)
	r := &recorder{ctx: ctx}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			cancel()
			for _, f := range slices.Backward(r.cleanups) {
				f()
			}
		}()
		check(r)
	}()
	<-done
	return r
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Cleanup(f func())         { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
