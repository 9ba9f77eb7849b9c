package proof_test

// The journal: what every process writes down, one line an event, in one file.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// An event of the journal. Of a kind that concerns no task, Task is empty.
type event struct {
	At    int64  `json:"at"` // ns of a clock that all processes of the machine share
	Node  string `json:"node"`
	PID   int    `json:"pid"`
	Kind  string `json:"kind"`
	Task  string `json:"task,omitempty"`
	Token uint64 `json:"token,omitempty"`
	Text  string `json:"text,omitempty"`
}

// The kinds of event.
const (
	started    = "start" // a task's function began
	stopped    = "stop"  // it is about to return
	leads      = "leads" // this process leads
	checked    = "check" // what worker.Check said, where it changed
	lastResort = "last resort"
	died       = "died"    // the process is gone, as its parent saw it
	paused     = "paused"  // SIGSTOP was sent, and the process has stopped
	resumed    = "resumed" // before SIGCONT is sent
)

// now reads the clock that goes on while processes are stopped.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // there is none on this machine: nothing here can be tested
	}
	return ts.Nano()
}

// journal appends events to the file that all processes share. A line is one
// write, so lines of several processes never mix.
type journal struct {
	file *os.File
	node string
}

func openJournal(path, node string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return &journal{f, node}, nil
}

// write stamps an event and appends it.
func (j *journal) write(e event) error {
	e.Node = j.node
	if e.PID == 0 {
		e.PID = os.Getpid()
	}
	if e.At == 0 {
		e.At = now()
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

// reader reads a journal while it is written.
type reader struct {
	file *os.File
	rest []byte // of a line that was not whole yet
}

func openReader(t *testing.T, path string) *reader {
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return &reader{file: f}
}

// next returns what was written since the last call.
func (r *reader) next(t *testing.T) []event {
	t.Helper()
	text, err := io.ReadAll(r.file)
	require.NoError(t, err)
	text = append(r.rest, text...)
	var events []event
	for {
		line, rest, whole := bytes.Cut(text, []byte{'\n'})
		if !whole {
			r.rest = bytes.Clone(text)
			return events
		}
		var e event
		require.NoError(t, json.Unmarshal(line, &e), "%s", line)
		events = append(events, e)
		text = rest
	}
}

func ms(ns int64) time.Duration { return time.Duration(ns).Round(100 * time.Microsecond) }
