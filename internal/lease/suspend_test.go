package lease

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// suspend returns i as if the machine had been suspended for d since: only one clock
// has run.
func suspend(i Instant, d time.Duration) Instant {
	i.boot -= d
	return i
}

func TestW5_ASuspendedMachineCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := suspend(Now(), time.Hour)
		require.GreaterOrEqual(t, i.Elapsed(), time.Hour)
		require.Less(t, i.Elapsed(), time.Hour+time.Minute)

		d := NewDeadline(20 * time.Second)
		d.Extend(i)
		require.Zero(t, d.Left())
	})
}

func TestW5_AResumeIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDeadline(20 * time.Second)
		d.Extend(Now())
		<-time.After(1500 * time.Millisecond)
		d.mu.Lock()
		d.from = suspend(d.from, time.Hour)
		d.mu.Unlock()
		resumed := time.Now()
		<-d.Done()
		require.LessOrEqual(t, time.Since(resumed), time.Second, "a twentieth of the length")
		d.Extend(Now())
		require.Zero(t, d.Left())
	})
}

// An acknowledgement that arrives after a suspension must not extend a deadline that
// passed during it.
func TestW5_AnExtensionAfterAResumeComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDeadline(20 * time.Second)
		d.Extend(Now())
		<-time.After(time.Second / 2)
		d.mu.Lock()
		d.from = suspend(d.from, time.Hour)
		d.mu.Unlock()
		d.Extend(Now())
		require.Zero(t, d.Left())
	})
}

func TestW5_LaterByEitherClock(t *testing.T) {
	i := Now()
	require.False(t, i.after(i))
	require.True(t, Instant{mono: i.mono, boot: i.boot + 1}.after(i))
	require.True(t, Instant{mono: i.mono.Add(1), boot: i.boot}.after(i))
	require.False(t, i.after(Instant{mono: i.mono.Add(1), boot: i.boot}))
}
