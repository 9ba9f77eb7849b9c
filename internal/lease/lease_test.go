package lease_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator/internal/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// over reports whether Done of d is closed.
func over(d *lease.Deadline) bool {
	select {
	case <-d.Done():
		return true
	default:
		return false
	}
}

func TestW5_ADeadlineCountsFromTheSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := lease.NewDeadline(10 * time.Second)
		require.Equal(t, 10*time.Second, d.Left(), "the deadline does not run yet")
		<-time.After(time.Hour)
		require.False(t, over(d))

		sent := lease.Now()
		<-time.After(4 * time.Second)
		d.Extend(sent)
		require.Equal(t, 6*time.Second, d.Left())
		later := lease.Now()
		<-time.After(2 * time.Second)
		d.Extend(later)
		require.Equal(t, 8*time.Second, d.Left())
		d.Extend(sent)
		require.Equal(t, 8*time.Second, d.Left(), "an older acknowledgement arrives late")

		began := time.Now()
		<-d.Done()
		require.Equal(t, 8*time.Second, time.Since(began))
		require.Zero(t, d.Left())
		d.Extend(lease.Now())
		require.Zero(t, d.Left(), "a deadline that has passed is not extended")
		require.True(t, over(d))
	})
}

func TestW5_ADeadlineThatHasPassedWhenItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := lease.Now()
		<-time.After(2 * time.Second)
		d := lease.NewDeadline(time.Second)
		d.Extend(sent)
		require.True(t, over(d))

		d = lease.NewDeadline(0)
		require.Zero(t, d.Left())
		d.Extend(lease.Now())
		require.True(t, over(d))
	})
}

func TestW5_EndIsForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, begun := range []bool{false, true} {
			d := lease.NewDeadline(time.Second)
			if begun {
				d.Extend(lease.Now())
			}
			d.End()
			d.End()
			require.True(t, over(d))
			d.Extend(lease.Now())
			require.Zero(t, d.Left())
		}
	})
}

// If the timer is late, as after a pause, the first call that reads the clock closes
// Done.
func TestW5_TheClockCountsAndNotTheTimer(t *testing.T) {
	d := lease.NewDeadline(20 * time.Millisecond)
	sent := lease.Now()
	for sent.Elapsed() < 20*time.Millisecond { //nolint:revive // a sleep would let the timer run
	}
	d.Extend(sent)
	require.Zero(t, d.Left())
	require.True(t, over(d))
}

func TestW5_ADeadlineOnARealClock(t *testing.T) {
	d := lease.NewDeadline(50 * time.Millisecond)
	sent := lease.Now()
	d.Extend(sent)
	<-d.Done()
	require.GreaterOrEqual(t, sent.Elapsed(), 50*time.Millisecond)
}

func TestW5_ElapsedNeverFalls(t *testing.T) {
	i := lease.Now()
	last := i.Elapsed()
	require.GreaterOrEqual(t, last, time.Duration(0))
	for range 1000 {
		now := i.Elapsed()
		require.GreaterOrEqual(t, now, last)
		last = now
	}
	require.Less(t, last, time.Minute, "both clocks count from i")
}
