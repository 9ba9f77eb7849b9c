package proctest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"
	"time"
)

// Event is one line of the journal.
type Event struct {
	At    int64  `json:"at"` // as returned by Now
	Node  string `json:"node"`
	PID   int    `json:"pid"`
	Kind  string `json:"kind"`
	Task  string `json:"task,omitempty"` // empty if the kind concerns no task
	Token uint64 `json:"token,omitempty"`
	Text  string `json:"text,omitempty"`
}

// The kinds of event that a [History] uses. Tests may write other kinds.
const (
	Started = "start"   // a task's function began
	Stopped = "stop"    // a task's function is about to return
	Died    = "died"    // the process has ended; written by its parent
	Paused  = "paused"  // SIGSTOP was sent, and the process has stopped
	Resumed = "resumed" // SIGCONT is about to be sent
)

// Journal appends events to a file that all processes share. Each line is one write,
// so lines of different processes or goroutines never mix.
type Journal struct {
	file *os.File
	node string
}

// OpenJournal opens or creates the journal at path, for events of node. It stays
// open until the process ends.
func OpenJournal(path, node string) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return &Journal{f, node}, nil
}

// Write appends an event with the journal's node. PID and At default to this process
// and the current time.
func (j *Journal) Write(e Event) error {
	e.Node = j.node
	if e.PID == 0 {
		e.PID = os.Getpid()
	}
	if e.At == 0 {
		e.At = Now()
	}
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write %s to journal: %w", e.Kind, err)
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write %s to journal: %w", e.Kind, err)
	}
	return nil
}

// Reader reads a journal while it is written.
type Reader struct {
	t    testing.TB
	file *os.File
	rest []byte // an incomplete line
}

// OpenReader opens the journal at path until the test ends.
func OpenReader(t testing.TB, path string) *Reader {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatalf("open journal: %v", err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return &Reader{t: t, file: f}
}

// Next returns the events written since the last call.
func (r *Reader) Next() []Event {
	r.t.Helper()
	text, err := io.ReadAll(r.file)
	if err != nil {
		r.t.Fatalf("read journal: %v", err)
	}
	text = append(r.rest, text...)
	var events []Event
	for {
		line, rest, whole := bytes.Cut(text, []byte{'\n'})
		if !whole {
			r.rest = bytes.Clone(text)
			return events
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			r.t.Fatalf("read journal: %q: %v", line, err)
		}
		events = append(events, e)
		text = rest
	}
}

func ms(ns int64) time.Duration { return time.Duration(ns).Round(100 * time.Microsecond) }
