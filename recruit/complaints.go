package recruit

// The limit on log lines per job.

import (
	"log/slog"
	"time"
)

// complaints allows one log line per second, so that a broken job does not flood the
// log.
type complaints struct {
	next    time.Time
	omitted int // since the last line
}

// take reports whether a line may be logged now, and how many were omitted before
// it.
func (c *complaints) take(now time.Time) (omitted int, tell bool) {
	if now.Before(c.next) {
		c.omitted++
		return 0, false
	}
	omitted, c.omitted, c.next = c.omitted, 0, now.Add(time.Second)
	return omitted, true
}

func appendOmitted(attrs []slog.Attr, omitted int) []slog.Attr {
	if omitted == 0 {
		return attrs
	}
	return append(attrs, slog.Int("omitted", omitted))
}
