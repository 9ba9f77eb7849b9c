// Package backoff computes and waits for the pauses between the attempts of something
// that fails.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is a sequence of pauses. The first is First, and each further one is twice as
// long, up to Longest. Both must be positive. Each pause is shortened by a random part,
// so that processes that failed together do not retry together.
//
// Wait and Reset must not be called by several goroutines at the same time.
type Backoff struct {
	First, Longest time.Duration

	failures int // calls of Wait since the last Reset
}

// New returns the pauses between attempts to reach a server: from 50 ms up to a second.
func New() *Backoff { return &Backoff{First: 50 * time.Millisecond, Longest: time.Second} }

// After returns the pause after so many failures in a row, of which there is at least
// one. jitter, from [0, 1), is the random part: the pause is shortened by up to half.
func (b *Backoff) After(failures int, jitter float64) time.Duration {
	d := min(b.First, b.Longest)
	for range failures - 1 {
		if d > b.Longest/2 {
			d = b.Longest
			break
		}
		d *= 2
	}
	return d - time.Duration(jitter*float64(d/2))
}

// Wait waits for the next pause. It returns false at once when ctx is done.
func (b *Backoff) Wait(ctx context.Context) bool {
	b.failures++
	return Sleep(ctx, b.After(b.failures, rand.Float64()))
}

// Reset makes the next pause the first of the sequence, because an attempt succeeded.
func (b *Backoff) Reset() { b.failures = 0 }

// Sleep waits for d. It returns false at once when ctx is done.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
