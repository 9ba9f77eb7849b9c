// Package replicas has what is measured about package replica on a real PostgreSQL. The
// measurement is a test, because the kits that it uses are for tests.
package replicas

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Results is what the test measures.
type Results struct {
	Version string // of PostgreSQL
	Few     Few
	Update  []Update
	Many    []Many
	Calls   Calls
	// Late is how late timers fired during the measurement, because the processors were
	// busy.
	Late []time.Duration
}

// Few has the events of a few replicas, each a process.
type Few struct {
	Replicas, Tasks, Rounds int
	Lease, Paused, Away     time.Duration
	Listening, Heartbeats   Starts // with and without LISTEN
	KillWorker, KillLeader  Event
	Server                  Outages
}

// Starts has the events of replicas that start and end.
type Starts struct {
	Cold      Event // until all tasks run
	ColdEven  Event // until they are evenly spread
	Join      Event // until they are evenly spread
	EndWorker Event // SIGTERM, until its tasks run elsewhere
	EndLeader Event
}

// Outages has the events of a server that does not answer.
type Outages struct {
	PauseMoves int   // starts while it was paused
	Stopped    Event // from its crash until all tasks have stopped
	Back       Event // from when it is back until all tasks run
}

// Event is one kind of event.
type Event struct {
	// Took has the time of each round.
	Took []time.Duration
	// Gaps has, for each task that moved, the time from its end on one replica until its
	// start on another.
	Gaps []time.Duration
}

// Update has rolling updates: one replica after the other is ended and started again.
type Update struct {
	Name            string
	Replicas, Tasks int
	Took            []time.Duration
	Gaps            []time.Duration
	Moves           []int // of each task in each update
}

// Many has a big fleet.
type Many struct {
	Name            string
	Replicas, Tasks int
	Lease           time.Duration
	ColdStart       []time.Duration // until all tasks run
	Even            []time.Duration // until they are evenly spread
	Starts          []int           // until then
	// Of the steady load: the share of one core, and Syncs a second.
	Leader, Other, Server float64
	Syncs                 float64
}

// Calls has single calls of the backend.
type Calls struct {
	// Alone has Syncs of one caller by the number of members.
	Alone []Call
	// Together has Syncs of all members at the same time.
	Together []Throughput
}

// Call compares a Sync with an update of one row, in turn on the same server.
type Call struct {
	Members     int
	Sync, Plain []time.Duration
}

// Throughput is how many calls a second the server answers to all members, in each round.
type Throughput struct {
	Name        string
	Members     int
	Sync, Plain []float64
}

// Read reads the results that the test has written.
func Read(path string) (Results, error) {
	var r Results
	text, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Write writes the results for [Read].
func (r Results) Write(path string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
