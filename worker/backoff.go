package worker

// The pauses between restarts.

import "time"

// backoff is a sequence of pauses that double from first to longest.
type backoff struct {
	first, longest time.Duration
}

// pause returns the pause after failures in a row, of which there is at least one.
// jitter, in [0, 1), shortens the pause by up to half.
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
