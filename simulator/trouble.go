package simulator

// What can go wrong besides single calls, by name.

import "fmt"

// Trouble is something that happens in the world, or ceases to.
type Trouble int

// The troubles.
const (
	// Crash ends a worker's process.
	Crash Trouble = iota
	// RestartEmpty starts the process of a worker that has crashed.
	RestartEmpty
	// RestartWithTasks does so, and it runs again what it ran.
	RestartWithTasks
	// SelfFencing is a worker that stops everything since it could not renew
	// its lease. It follows from LeaseCut and LeaseDeaf.
	SelfFencing
	// LeaseCut cuts a worker off from the coordinator.
	LeaseCut
	// LeaseDeaf has it not hear the coordinator's answers.
	LeaseDeaf
	// Partition has nothing that leaders send get through to a worker.
	Partition
	// OneWayPartition has nothing that a worker answers get through to leaders.
	OneWayPartition
	// Isolation has nothing that the leader sends get through to anybody.
	Isolation
	// Slowness delays all calls to a worker.
	Slowness
	// Lies has a worker leave tasks out of its List, or put some in.
	Lies
	// BrokenWorker has a worker refuse every start.
	BrokenWorker
	// PoisonTask has every worker refuse a task.
	PoisonTask
	// Deposition elects a new leader, while the one before goes on for a while.
	Deposition
	// LeaderCrash ends a leader at once; a new one comes some time later.
	LeaderCrash
	// Deploy ends a leader's context; a new one comes some time later.
	Deploy
	// Join has a new worker come.
	Join
	// Leave takes a worker away, at once or once it has been drained.
	Leave
	// Drain drains a worker, or takes that back.
	Drain
	// NewTask has one more task be expected.
	NewTask
	// DropTask has one fewer be.
	DropTask
	// Redefinition changes how many instances of a task are wanted, or how it
	// is handed over.
	Redefinition

	troubles // how many there are
)

// String returns the name of the constant.
func (t Trouble) String() string {
	names := [troubles]string{
		"Crash", "RestartEmpty", "RestartWithTasks", "SelfFencing", "LeaseCut", "LeaseDeaf", "Partition",
		"OneWayPartition", "Isolation", "Slowness", "Lies", "BrokenWorker", "PoisonTask", "Deposition",
		"LeaderCrash", "Deploy", "Join", "Leave", "Drain", "NewTask", "DropTask", "Redefinition",
	}
	if t >= 0 && t < troubles {
		return names[t]
	}
	return fmt.Sprintf("Trouble(%d)", int(t))
}

// weight is how often a trouble is drawn, compared with others.
func (t Trouble) weight() float64 {
	switch t {
	case RestartEmpty, RestartWithTasks, SelfFencing:
		return 0 // they follow from others
	case Isolation, Lies, LeaderCrash, Deploy, PoisonTask:
		return 0.5
	case Crash, Deposition, Redefinition:
		return 1.5
	}
	return 1
}

// possible says whether a trouble can be in a setup.
func (t Trouble) possible(p *setup) bool {
	switch t {
	case LeaseCut, LeaseDeaf:
		return p.Membership != Grace
	case Lies:
		return !p.honest
	}
	return true
}
