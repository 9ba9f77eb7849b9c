//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/examples/internal/stage"
)

// fleet is the processes of the replicas. All of them report through one pipe, so that
// the reports are read in the order in which they were written.
type fleet struct {
	url       string // of the table
	lease     time.Duration
	stderr    io.Writer
	pipe      *os.File // the standard output of all processes
	reports   chan timedReport
	processes map[string]*stage.Process
}

// timedReport is a line, and when it was read.
type timedReport struct {
	line string
	at   time.Time
}

func newFleet(url string, lease time.Duration, stderr io.Writer) (*fleet, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	f := &fleet{url: url, lease: lease, stderr: stderr, pipe: write, reports: make(chan timedReport, 1024), processes: make(map[string]*stage.Process)}
	go func() {
		defer close(f.reports)
		for in := bufio.NewScanner(read); in.Scan(); {
			f.reports <- timedReport{in.Text(), time.Now()}
		}
		_ = read.Close() // all processes have ended
	}()
	return f, nil
}

// start starts a replica. Its end becomes a report after its last one.
func (f *fleet) start(ctx context.Context, name string) (*stage.Process, error) {
	// The processes end with close, also after an interrupt.
	p, err := stage.Start(context.WithoutCancel(ctx), fmt.Sprint(name, " ", f.lease, " ", f.url), f.lease, f.pipe, f.stderr)
	if err != nil {
		return nil, err
	}
	f.processes[name] = p
	go func() {
		<-p.Ended()
		_, _ = fmt.Fprintln(f.pipe, name, ends, "-", 0) // fails after close
	}()
	return p, nil
}

// names returns the names of the processes, sorted.
func (f *fleet) names() []string { return slices.Sorted(maps.Keys(f.processes)) }

// close ends the remaining processes.
func (f *fleet) close() {
	go func() {
		for _, p := range f.processes {
			p.End()
		}
		for _, p := range f.processes {
			p.Stop()
		}
		_ = f.pipe.Close()
	}()
	for range f.reports { // until the pipe is closed, so that no process waits to write
	}
}
