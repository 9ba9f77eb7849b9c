package grpctest

import (
	"log/slog"
	"strings"
	"sync"
)

// Journal is a log that may be read while it is written. The zero value is empty.
type Journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *Journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

// String returns everything that was logged.
func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// Count returns how often a text was logged.
func (j *Journal) Count(what string) int { return strings.Count(j.String(), what) }

// Logger returns a logger that writes lines of text, of every level, to the journal.
func (j *Journal) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
