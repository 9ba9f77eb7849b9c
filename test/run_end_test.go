package test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// T14: how Run ends.

func TestT14_ReturnsTheCause(t *testing.T) {
	for _, cause := range []error{errShutdown, orchestrator.ErrDeposed, context.Canceled} {
		for name, at := range map[string]time.Duration{"between terms": 30 * time.Second, "during a term": 61 * time.Second} {
			t.Run(fmt.Sprint(cause, " ", name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f, _, stop := running(t, 2, time.Minute)
					time.Sleep(time.Second)
					f.Slow(2*time.Second, f.workers...)
					time.Sleep(at - time.Second)
					var err error
					require.Zero(t, took(func() { err = stop(cause) }))
					require.Equal(t, cause, err)
				})
			})
		}
	}
}

func TestT14_EndsWhenAWorkerSaysDeposed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.expect(2)
		f.intercept(func(_ context.Context, c call) error {
			if c.Op == orchestrator.OpAdd {
				return fmt.Errorf("epoch 9: %w", orchestrator.ErrDeposed)
			}
			return nil
		})
		require.ErrorIs(t, f.Run(t.Context(), time.Minute), orchestrator.ErrDeposed)
	})
}

// A new leader deposes an old one by its first term, through the workers alone.
func TestT14_OldLeaderIsDeposedByTheNewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newFleet(t, 3)
		old.expect(6)
		old.term()
		f := old.successor()
		f.term()
		require.NoError(t, old.AddTask("written by the old leader"))
		require.ErrorIs(t, old.Run(t.Context(), time.Second), orchestrator.ErrDeposed)
		require.Empty(t, f.Running("written by the old leader"))
	})
}

func TestT14_ReturnsAfterEveryGoroutineThatCanEnd(t *testing.T) {
	for _, test := range []struct {
		name   string
		call   func(ctx context.Context, over chan struct{}) error
		within time.Duration // after the stop
		left   int           // goroutines that cannot end
	}{
		{"calls that end with their context", func(ctx context.Context, _ chan struct{}) error { return hang(ctx) }, 0, 0},
		{"calls that take a moment to end", func(ctx context.Context, _ chan struct{}) error { return dawdle(ctx) }, time.Second, 0},
		{"calls that never end", func(_ context.Context, over chan struct{}) error { <-over; return nil }, timeout, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, _, stop := running(t, 3, 15*time.Second)
				time.Sleep(time.Second)
				before := goroutines()
				over := make(chan struct{})
				f.intercept(func(ctx context.Context, c call) error {
					if c.Worker == "w3" {
						return test.call(ctx, over)
					}
					return nil
				})
				time.Sleep(15 * time.Second) // the term that begins at 15 s waits for w3
				d := took(func() { require.Equal(t, errShutdown, stop(errShutdown)) })
				require.LessOrEqual(t, d, test.within)
				require.Equal(t, before-1+test.left, goroutines(), "without Run's own")
				close(over)
			})
		})
	}
}

// The List that lingers, because no term waits for it, is ended too.
func TestT14_EndsWhatLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, stop := running(t, 3, 15*time.Second)
		time.Sleep(time.Second)
		before := goroutines()
		f.Hang("w3")
		time.Sleep(31 * time.Second) // the term at 30 s does not wait for it
		require.Equal(t, before+1, goroutines())
		require.Zero(t, took(func() { require.Equal(t, errShutdown, stop(errShutdown)) }))
		require.Equal(t, before-1, goroutines())
	})
}

// Run, as it ends, leaves the term or Plan of another goroutine alone, and does
// not wait for those that begin after it.
func TestT14_RunEndsBesideANextTerm(t *testing.T) {
	for name, neighbour := range map[string]func(*fleet) error{
		"a term": func(f *fleet) error { return f.NextTerm(f.t.Context()) },
		"a plan": func(f *fleet) error { _, err := f.Plan(orchestrator.Hypothesis[string, string]{}); return err },
		"terms without end": func(f *fleet) error {
			for range 20 {
				if err := f.NextTerm(f.t.Context()); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, _, stop := running(t, 2, time.Hour, orchestrator.WithGracePeriod(0))
				f.expect(10)
				time.Sleep(time.Second)
				f.forget()
				f.Slow(2*time.Second, f.workers...)
				result := make(chan error, 1)
				go func() { result <- neighbour(f) }()
				time.Sleep(time.Second)
				var err error
				require.LessOrEqual(t, took(func() { err = stop(errShutdown) }), time.Second)
				require.Equal(t, errShutdown, err)
				require.NoError(t, <-result, "nobody was silent")
				require.Empty(t, f.writes())
				f.requireNeverTwice()
			})
		})
	}
}

// So are the writes of a leader that learns in the middle of them that it is
// deposed.
func TestT14_EndsTheWritesOfADeposedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.expect(2)
		before := goroutines()
		f.intercept(func(ctx context.Context, c call) error {
			switch {
			case c.Op != orchestrator.OpAdd:
				return nil
			case c.Worker == "w2":
				time.Sleep(time.Second)
				return orchestrator.ErrDeposed
			}
			return dawdle(ctx)
		})
		require.Equal(t, 2*time.Second, took(func() {
			require.ErrorIs(t, f.Run(t.Context(), time.Minute), orchestrator.ErrDeposed)
		}))
		require.Equal(t, before, goroutines())
	})
}

func TestT14_BadInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		for _, every := range []time.Duration{0, -time.Second} {
			err := f.Run(t.Context(), every)
			require.ErrorIs(t, err, orchestrator.ErrInvalid)
			require.ErrorContains(t, err, every.String())
		}
		require.Empty(t, f.lists())
	})
}
