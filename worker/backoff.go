package worker

// How long to wait before a task is started again.

import "time"

// backoff is a sequence of pauses that double from first to longest.
type backoff struct {
	first, longest time.Duration
}

// pause returns how long to wait after so many failures in a row, at least
// one. jitter, in [0, 1), is how much of the half that is left to chance is
// taken off.
func (b backoff) pause(failures int, jitter float64) time.Duration {
	d := b.first
	for range failures - 1 {
		if d > b.longest/2 {
			d = b.longest
			break
		}
		d *= 2
	}
	return d - time.Duration(jitter*float64(d/2))
}
