package grpc

// Who a worker is.

import (
	"fmt"

	"github.com/f8949c05/orchestrator"
)

// Worker is a worker as an orchestrator knows it: a name, and which process of
// those that had it. A worker that was restarted, or has lost its lease, is
// another Worker, so that no call meant for the one before can reach it.
type Worker struct {
	Name string
	// Incarnation is the process's own number; see worker.Worker.Incarnation.
	Incarnation uint64
}

// String returns the name.
func (w Worker) String() string { return w.Name }

// MarshalText returns the name, which is also how a Worker is shown in JSON.
func (w Worker) MarshalText() ([]byte, error) { return []byte(w.Name), nil }

// maxName is how long the name of a worker or a task may be.
const maxName = 1024

func checkName(what, name string) error {
	if name == "" {
		return fmt.Errorf("%w: a %s without a name", orchestrator.ErrInvalid, what)
	}
	if len(name) > maxName {
		return fmt.Errorf("%w: a %s name of %d bytes: at most %d", orchestrator.ErrInvalid, what, len(name), maxName)
	}
	return nil
}
