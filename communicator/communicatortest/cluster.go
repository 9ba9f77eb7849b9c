package communicatortest

// The kit's view of the implementation under test: its workers and tasks, and the
// switches that disturb its network.

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// defaultTimeout is the value of Cluster.Timeout if that is zero.
const defaultTimeout = 5 * time.Second

// Cluster is the result of a factory: a Communicator with at least two workers that
// run nothing yet, and optional switches that disturb the network. A check that
// needs a missing switch is skipped with a message. Without Hold, the kit cannot
// check the most important promise: a write delayed past the next List never takes
// effect.
//
// The kit makes its calls as the orchestrator does: at the same time for different
// workers, and one after another for the same worker. As an exception, the second of
// two leaders that call the same worker does not wait for the first. The kit calls a
// switch from the goroutine of the test, and undoes it exactly once, before the
// test's earlier cleanup functions run.
type Cluster[W, T comparable] struct {
	// Communicator is the implementation under test. If it is an
	// [orchestrator.Applier] too, every check is repeated through Apply.
	Communicator orchestrator.Communicator[W, T]

	// Workers names at least two different workers, which are ready to be called and
	// run nothing.
	Workers []W

	// Tasks names at least three different tasks. Every worker can run all of them
	// at the same time, and stop each within Timeout.
	Tasks []T

	// Strangers names workers that do not exist. Optional.
	Strangers []W

	// Epoch is the lowest epoch that the kit uses; the highest is Epoch+10. Set it
	// if the workers have seen an epoch before. 0 means 1.
	Epoch uint64

	// Timeout is the longest reasonable duration of a call. It is also how long the
	// kit waits for a call to return after its context has ended. A call gets a
	// twentieth of it to reach the place where Hold or Cut stops it. 0 means 5 s;
	// negative is an error.
	Timeout time.Duration

	// Hold holds back, once it has returned, every Add, Remove and Apply on its way
	// to worker. List still arrives and is answered, even after the caller of a held
	// write has stopped waiting. The check proves more the closer to the worker Hold
	// works; best is the queue in which writes wait there.
	//
	// A held write should outlive the context of its caller if the transport allows
	// it. Release delivers the held writes, and returns once the worker has
	// processed them. Optional.
	Hold func(worker W) (release func())

	// Cut cuts worker off, once it has returned: no call reaches the worker until
	// heal is called. Calls may hang or fail, depending on the transport. Optional.
	Cut func(worker W) (heal func())

	// Linger makes task slow to stop, once it has returned: when worker, which runs
	// the task, is told to stop it, the task continues until end is called.
	// Optional.
	Linger func(worker W, task T) (end func())

	// Refuse makes worker refuse to add task, once it has returned, for a reason
	// that the implementation reports with [orchestrator.ErrRejected]: no room, no
	// such handler, no permission. Accept ends this. Optional.
	Refuse func(worker W, task T) (accept func())
}

// complete sets the defaults, and returns all errors.
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
			errs = append(errs, fmt.Errorf("Cluster.Strangers contains %v, which is in Cluster.Workers too", w))
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
