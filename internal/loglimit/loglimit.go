// Package loglimit limits the log lines about an event or a condition that repeats. The
// lines that it omits are counted, and the next line carries their number.
package loglimit

import (
	"log/slog"
	"sync"
	"time"
)

// Limiter allows one log line per interval, and a line whenever the text to log changes.
// It keeps only the last text. The zero Limiter allows one line per minute. Its methods
// may be called from any number of goroutines.
type Limiter struct {
	// Every is the interval. 0 means a minute. It must not change after the first Take.
	Every time.Duration

	mu      sync.Mutex // guards the fields below
	what    string
	at      time.Time // of the last line; zero: there was none
	omitted int       // since then
}

// Take reports whether a line about what may be logged now, and how many were omitted
// since the last one. A line about anything else than the last one is always allowed.
// So what must be constant if a client or a broken task decides about the text.
func (l *Limiter) Take(now time.Time, what string) (omitted int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	every := l.Every
	if every == 0 {
		every = time.Minute
	}
	if !l.at.IsZero() && what == l.what && now.Sub(l.at) < every {
		l.omitted++
		return 0, false
	}
	omitted = l.omitted
	l.what, l.at, l.omitted = what, now, 0
	return omitted, true
}

// Reset allows the next line, because the condition has ended. It reports whether a line
// was logged since the last Reset.
func (l *Limiter) Reset() (logged bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	logged = !l.at.IsZero()
	l.what, l.at, l.omitted = "", time.Time{}, 0
	return logged
}

// Omitted returns the attribute for the first result of Take. For 0 it returns the empty
// attribute, which handlers of slog ignore.
func Omitted(n int) slog.Attr {
	if n == 0 {
		return slog.Attr{}
	}
	return slog.Int("omitted", n)
}
