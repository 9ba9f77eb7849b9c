//go:build unix

package main

// The journal: what the replicas report, and whether a task ever ran twice.

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// deed is what a replica reports that it does.
type deed string

const (
	starts deed = "starts" // a task
	works  deed = "works"  // a step of a task
	stops  deed = "stops"  // a task
	leads  deed = "leads"
	ends   deed = "ends" // the process has ended; the fleet reports this
)

// journal records which replica runs each task.
type journal struct {
	tasks map[string]*entry
	// frozen is the replica that cannot run, because its process was stopped.
	frozen string
	leader string
	gone   map[string]bool // replicas whose process has ended

	moves int
	late  int // steps of former owners, of which the tokens tell that they came too late

	act // since the last begin
}

// entry is what the journal knows of a task.
type entry struct {
	on     string // the replica that runs the task; empty: none
	last   string // the replica that ran it last
	token  uint64
	active time.Time // of the last report of an owner
	late   bool      // a former owner has done a step too late
}

// act is what happened in one part of the story.
type act struct {
	moved   map[string]bool // tasks that started on another replica
	stopped map[string]bool // tasks that stopped
	paused  time.Duration   // the longest time from the last sign of a task to its next start
}

func newJournal(tasks []string) *journal {
	j := &journal{tasks: make(map[string]*entry), gone: make(map[string]bool)}
	for _, task := range tasks {
		j.tasks[task] = &entry{}
	}
	j.begin()
	return j
}

// begin begins a part of the story.
func (j *journal) begin() {
	j.act = act{moved: make(map[string]bool), stopped: make(map[string]bool)}
}

// observe records a report that was received at a time. It returns an error if a task
// runs twice.
func (j *journal) observe(line string, at time.Time) error {
	var (
		name, task string
		does       deed
		token      uint64
	)
	_, err := fmt.Sscan(line, &name, &does, &task, &token)
	e := j.tasks[task]
	switch {
	case err != nil || e == nil && does != leads && does != ends:
		return fmt.Errorf("unknown report %q", line)
	case does == leads:
		j.leader = name
	case does == ends:
		j.ended(name)
	case does == starts:
		return j.started(task, e, name, token, at)
	case token == e.token && name == e.last:
		e.active = at
		if does == stops {
			e.on = ""
			j.stopped[task] = true
		}
	case does == works && e.late:
		return fmt.Errorf("%s runs twice: on %s, and again on %s", task, e.last, name)
	case does == works:
		// A process that is frozen just before a step does it when it continues. No lease
		// prevents that. A store that compares tokens refuses it, as this one does.
		e.late = true
		j.late++
	}
	return nil
}

// started records that a replica has started a task.
func (j *journal) started(task string, e *entry, name string, token uint64, at time.Time) error {
	if e.on != "" && e.on != j.frozen {
		return fmt.Errorf("%s runs twice: on %s, and now on %s", task, e.on, name)
	}
	if token <= e.token {
		return fmt.Errorf("%s starts on %s with token %d, which is not above %d", task, name, token, e.token)
	}
	if e.last != "" {
		j.stopped[task] = true
		j.paused = max(j.paused, at.Sub(e.active))
		if e.last != name {
			j.moved[task] = true
			j.moves++
		}
	}
	*e = entry{on: name, last: name, token: token, active: at}
	return nil
}

// ended records that a process has ended, and runs nothing any more.
func (j *journal) ended(name string) {
	for _, task := range j.runs(name) {
		j.tasks[task].on = ""
		j.stopped[task] = true
	}
	if j.leader == name {
		j.leader = ""
	}
	if j.frozen == name {
		j.frozen = ""
	}
	j.gone[name] = true
}

// runs returns the tasks that a replica runs, sorted; with "" those that no replica runs.
func (j *journal) runs(name string) []string {
	var all []string
	for _, task := range slices.Sorted(maps.Keys(j.tasks)) {
		if j.tasks[task].on == name {
			all = append(all, task)
		}
	}
	return all
}

// idle reports whether no task runs.
func (j *journal) idle() bool { return len(j.runs("")) == len(j.tasks) }

// even reports whether all tasks run, evenly spread over the replicas.
func (j *journal) even(replicas []string) bool {
	total, least, most := 0, len(j.tasks), 0
	for _, name := range replicas {
		n := len(j.runs(name))
		total, least, most = total+n, min(least, n), max(most, n)
	}
	return total == len(j.tasks) && most-least <= 1
}

// summary says what happened to the tasks since begin.
func (j *journal) summary() string {
	return fmt.Sprintf("%d tasks moved, none paused for longer than %v, and %d never stopped",
		len(j.moved), rounded(j.paused), len(j.tasks)-len(j.stopped))
}
