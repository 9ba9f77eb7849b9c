package backoff_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/backoff"
)

// An operation is repeated until it succeeds or its context ends.
func Example() {
	attempts := 0
	connect := func(context.Context) error {
		if attempts++; attempts < 3 {
			return errors.New("no answer")
		}
		return nil
	}
	run := func(ctx context.Context) error {
		retry := backoff.Backoff{First: time.Millisecond, Longest: time.Second}
		for {
			err := connect(ctx)
			if err == nil || !retry.Wait(ctx) {
				return err
			}
		}
	}
	fmt.Println(run(context.Background()), "after", attempts, "attempts")
	// Output: <nil> after 3 attempts
}

func TestR2_After(t *testing.T) {
	b := *backoff.New()
	var whole, least []time.Duration
	for failures := 1; failures <= 8; failures++ {
		whole = append(whole, b.After(failures, 0)/time.Millisecond)
		least = append(least, b.After(failures, 0.999999)/time.Millisecond)
	}
	require.Equal(t, []time.Duration{50, 100, 200, 400, 800, 1000, 1000, 1000}, whole)
	require.Equal(t, []time.Duration{25, 50, 100, 200, 400, 500, 500, 500}, least)
	require.Equal(t, time.Second, b.After(math.MaxInt, 0))

	b = backoff.Backoff{First: time.Second, Longest: time.Millisecond}
	require.Equal(t, time.Millisecond, b.After(1, 0))
	b = backoff.Backoff{First: 1, Longest: math.MaxInt64}
	require.EqualValues(t, math.MaxInt64, b.After(100, 0), "no overflow")
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		b := backoff.Backoff{First: time.Second, Longest: 4 * time.Second}
		waits := func(longest time.Duration) {
			t.Helper()
			began := time.Now()
			require.True(t, b.Wait(ctx))
			require.LessOrEqual(t, time.Since(began), longest)
			require.Greater(t, time.Since(began), longest/2)
		}
		waits(time.Second)
		waits(2 * time.Second)
		waits(4 * time.Second)
		waits(4 * time.Second)
		b.Reset()
		waits(time.Second)

		began := time.Now()
		time.AfterFunc(time.Millisecond, cancel)
		require.False(t, b.Wait(ctx))
		require.Equal(t, time.Millisecond, time.Since(began))
		require.False(t, backoff.Sleep(ctx, 0), "ctx takes precedence")
	})
}
