package loglimit_test

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/loglimit"
)

// A condition that lasts is logged once a minute, and its end once.
func Example() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	var silent loglimit.Limiter
	now := time.Now()
	for second := range 150 {
		at := now.Add(time.Duration(second) * time.Second)
		if omitted, ok := silent.Take(at, "server is silent"); ok {
			logger.Warn("server is silent", "second", second, loglimit.Omitted(omitted))
		}
	}
	fmt.Println("ended:", silent.Reset())
	fmt.Println("ended:", silent.Reset())
	// Output:
	// level=WARN msg="server is silent" second=0
	// level=WARN msg="server is silent" second=60 omitted=59
	// level=WARN msg="server is silent" second=120 omitted=59
	// ended: true
	// ended: false
}

func TestTake_LogsAChangeAtOnce(t *testing.T) {
	var l loglimit.Limiter
	now := time.Now()
	take := func(what string, wantOmitted int, want bool) {
		t.Helper()
		omitted, ok := l.Take(now, what)
		require.Equal(t, want, ok)
		require.Equal(t, wantOmitted, omitted)
	}
	take("a", 0, true)
	take("a", 0, false)
	take("a", 0, false)
	take("b", 2, true) // counts what was omitted about a
	take("b", 0, false)
	take("a", 1, true)
	l.Reset()
	take("a", 0, true)
}

func TestTake_AllowsALineAtTheEndOfTheInterval(t *testing.T) {
	l := loglimit.Limiter{Every: time.Second}
	now := time.Now()
	_, ok := l.Take(now, "")
	require.True(t, ok, "the empty text is a text")
	_, ok = l.Take(now.Add(time.Second-1), "")
	require.False(t, ok)
	omitted, ok := l.Take(now.Add(time.Second), "")
	require.True(t, ok)
	require.Equal(t, 1, omitted)
}

func TestTake_FromManyGoroutines(t *testing.T) {
	var l loglimit.Limiter
	var logged atomic.Int64
	now := time.Now()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				if _, ok := l.Take(now, "same"); ok {
					logged.Add(1)
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, logged.Load())
	omitted, ok := l.Take(now.Add(time.Minute), "same")
	require.True(t, ok)
	require.Equal(t, 7999, omitted)
}
