package trial

// The journal: what every process writes down, one line an event, in one file.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Event is one of the journal. Of a kind that concerns no task, Task is empty.
type Event struct {
	At    int64  `json:"at"` // as Now returns it
	Node  string `json:"node"`
	PID   int    `json:"pid"`
	Kind  string `json:"kind"`
	Task  string `json:"task,omitempty"`
	Token uint64 `json:"token,omitempty"`
	Text  string `json:"text,omitempty"`
}

// The kinds of event from which a [History] is made. Tests have others of their
// own.
const (
	Started = "start"   // a task's function began
	Stopped = "stop"    // it is about to return
	Died    = "died"    // the process is gone, as its parent saw it
	Paused  = "paused"  // SIGSTOP was sent, and the process has stopped
	Resumed = "resumed" // before SIGCONT is sent
)

// Now reads a clock, in nanoseconds, that all processes of the machine share, and
// that goes on while they are stopped.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) //nolint:forbidigo // there is none on this machine: nothing here can be tested
	}
	return ts.Nano()
}

// Journal appends events to the file that all processes share. A line is one
// write, so lines of several processes, or goroutines, never mix.
type Journal struct {
	file *os.File
	node string
}

// OpenJournal opens the journal at path, or makes it, for what node has to say.
// It is open for as long as the process lives.
func OpenJournal(path, node string) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return &Journal{f, node}, nil
}

// Write stamps an event, with this process and the present moment where it names
// no others, and appends it.
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
	rest []byte // of a line that was not whole yet
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

// Next returns what was written since the last call.
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
