package recruit

// How often a job is complained of in the log.

import (
	"log/slog"
	"time"
)

// complaints lets one line through in each second: how fast a log grows is not for
// a job that is broken to say.
type complaints struct {
	next    time.Time
	omitted int // since the last one
}

// take says whether one may be logged now, and how many were not.
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
