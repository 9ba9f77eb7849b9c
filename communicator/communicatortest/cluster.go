package communicatortest

// This file holds what the kit needs to know of the implementation under test:
// who is there, and by which switches its network can be disturbed.

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// defaultTimeout is Cluster.Timeout where that is zero.
const defaultTimeout = 5 * time.Second

// Cluster is what a factory hands to the kit: a Communicator with at least two
// workers behind it that run nothing yet, and, where the factory can, switches
// that disturb the way to a worker. A check that needs a switch that is nil is
// skipped, and says so. Without Hold nothing can be said about the most
// important promise of all, that a write delayed past the next List never
// lands.
//
// The kit makes its calls as the orchestrator does: for different workers at
// once, for the same worker only one after the other; but where two leaders call
// the same worker, the second does not wait for the first. It calls a switch from
// the goroutine of the test, and undoes it exactly once, before the test's
// earlier cleanup functions run.
type Cluster[W, T comparable] struct {
	// Communicator is what is checked. If it is an [orchestrator.Applier] too,
	// every check is made a second time through Apply.
	Communicator orchestrator.Communicator[W, T]

	// Workers names at least two different workers. They are ready to be
	// called, and run nothing.
	Workers []W

	// Tasks names at least three different tasks, each of which every worker
	// can run, all at once, and stop within Timeout.
	Tasks []T

	// Strangers names workers that do not exist. Optional.
	Strangers []W

	// Epoch is the lowest epoch that the kit uses; it goes up to Epoch+10. Set
	// it where the workers have seen an epoch before the kit begins. 0 means 1.
	Epoch uint64

	// Timeout is how long any call may reasonably take, and how long the kit
	// waits, once the context of a call has ended, before it says that the call
	// does not end. A twentieth of it is what a call is given to get as far as
	// the place where Hold or Cut stops it. 0 means 5 s; negative is an error.
	Timeout time.Duration

	// Hold holds back, from its return on, every Add, Remove and Apply on its
	// way to worker; List still arrives and is answered, also after the caller
	// of a held write has given up. The closer to the worker this happens, the
	// more it proves; best is the very queue in which writes wait there.
	//
	// A held write outlives the context of its caller wherever the transport
	// lets it. Release lets go of what is held, and returns once the worker has
	// dealt with it. Optional.
	Hold func(worker W) (release func())

	// Cut cuts worker off, from its return on: nothing gets through to it until
	// heal is called. Whether calls then hang or fail is up to the transport.
	// Optional.
	Cut func(worker W) (heal func())

	// Linger makes task, which worker runs, take its time, from its return on: once
	// it is told to stop it does not before end is called. Optional.
	Linger func(worker W, task T) (end func())

	// Refuse makes worker refuse, from its return on, to add task, in the way
	// that the implementation reports with [orchestrator.ErrRejected]: no room,
	// no such handler, no permission. Accept ends that. Optional.
	Refuse func(worker W, task T) (accept func())
}

// complete fills in the defaults, and reports everything that is wrong.
func (c *Cluster[W, T]) complete() error {
	var errs []error
	if c.Communicator == nil {
		errs = append(errs, errors.New("Cluster.Communicator is nil"))
	}
	if n := distinct(c.Workers); n < 2 || n < len(c.Workers) {
		errs = append(errs, fmt.Errorf("Cluster.Workers is %v, want at least two, all different", c.Workers))
	}
	if n := distinct(c.Tasks); n < 3 || n < len(c.Tasks) {
		errs = append(errs, fmt.Errorf("Cluster.Tasks is %v, want at least three, all different", c.Tasks))
	}
	for _, w := range c.Strangers {
		if slices.Contains(c.Workers, w) {
			errs = append(errs, fmt.Errorf("Cluster.Strangers holds %v, which Cluster.Workers holds too", w))
		}
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("Cluster.Timeout is %v, want 0 or more", c.Timeout))
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	c.Epoch = max(c.Epoch, 1)
	return errors.Join(errs...)
}

// distinct counts the different elements of s.
func distinct[E comparable](s []E) int {
	set := make(map[E]bool, len(s))
	for _, e := range s {
		set[e] = true
	}
	return len(set)
}
