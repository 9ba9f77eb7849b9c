package simulator

// What a run tells about itself.

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Cause is why a task ran on more workers than it wanted, where that may be.
type Cause string

// The causes of overlaps.
const (
	// UnfencedLost: a worker counted as lost, or was removed, and went on.
	UnfencedLost Cause = "unfenced worker lost"
	// StartFirst: a move under orchestrator.StartThenStop.
	StartFirst Cause = "start then stop"
	// MovedSurplus: there were more than wanted already, such as after fewer
	// instances were wanted or a lost worker was back, and one of them moved.
	MovedSurplus Cause = "surplus moved"
	// SurplusAgain: a worker that has crashed runs again what it ran, and there
	// were too many already.
	SurplusAgain Cause = "surplus again"
	// Untold: a leader that was deposed, and that nobody had told, started it on a
	// worker that had not heard of its successor either, in the place of a copy whose
	// worker had left.
	Untold Cause = "deposed leader not told"
	// LiedTo: a worker left the task out of its List, or put it in.
	LiedTo Cause = "lie in List"
)

// Report counts what happened in a run, or, after Add, in several.
type Report struct {
	Runs, Leaders, Terms int
	// Calls counts List, Add and Remove, each write of an Apply on its own.
	Calls int
	// Plans counts the calls of Plan, and PlansKept those whose workers said the
	// same again in the term that followed.
	Plans, PlansKept int
	// Faults counts what went wrong, by its name: a communicatortest.FaultKind
	// for a single call, a [Trouble] for everything else.
	Faults map[string]int
	// Refused counts the writes that workers refused because of their fence.
	Refused int
	// Overlaps counts the starts of a task beyond what it wanted, by cause.
	Overlaps map[Cause]int
	// Virtual is the time that passed in the run.
	Virtual time.Duration
	// Longest is the longest term, in communicator timeouts.
	Longest float64
	// Settling is the largest number of terms that changed something after
	// everything was over. Not counted are the terms in which a worker that could
	// answer was still to be asked, one that was gone was not lost yet, something was
	// avoided still because it had failed before, or a worker was tried out again.
	Settling int
}

func newReport() *Report {
	return &Report{Faults: make(map[string]int), Overlaps: make(map[Cause]int)}
}

// Add adds what another report counts.
func (r *Report) Add(other *Report) {
	if r.Faults == nil {
		r.Faults, r.Overlaps = make(map[string]int), make(map[Cause]int)
	}
	r.Runs += other.Runs
	r.Leaders += other.Leaders
	r.Terms += other.Terms
	r.Calls += other.Calls
	r.Plans += other.Plans
	r.PlansKept += other.PlansKept
	r.Refused += other.Refused
	r.Virtual += other.Virtual
	r.Longest = max(r.Longest, other.Longest)
	r.Settling = max(r.Settling, other.Settling)
	for name, n := range other.Faults {
		r.Faults[name] += n
	}
	for cause, n := range other.Overlaps {
		r.Overlaps[cause] += n
	}
}

// String returns a table for people.
func (r *Report) String() string {
	var b strings.Builder
	line := func(name string, value any) { fmt.Fprintf(&b, "%-28s %v\n", name, value) }
	line("schedules", r.Runs)
	line("leaders", r.Leaders)
	line("terms", r.Terms)
	line("calls", r.Calls)
	line("plans, and kept to", fmt.Sprintf("%d, %d", r.Plans, r.PlansKept))
	line("virtual time", r.Virtual.Round(time.Second))
	line("longest term, in timeouts", fmt.Sprintf("%.3f", r.Longest))
	line("most terms to settle", r.Settling)
	line("writes refused by a fence", r.Refused)
	for _, cause := range slices.Sorted(maps.Keys(r.Overlaps)) {
		line("overlap: "+string(cause), r.Overlaps[cause])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Faults)) {
		line("fault: "+name, r.Faults[name])
	}
	return b.String()
}
