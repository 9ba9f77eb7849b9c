package manager

import (
	"cmp"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/worker"
)

// conclusionFrom returns what the worker of a name says of a task that has ended. It is not
// called under a lock: the receipt takes microseconds.
func conclusionFrom(t *wire.Task, key state.ReceiptKey, from string) state.Conclusion {
	e := state.Conclusion{Task: t.Name, Version: t.Version, Proven: key.Issued(t.Receipt, from, t.Name, t.Version)}
	if t.State == worker.Failed {
		e.Failure = failureFor(cmp.Or(t.Failure, &wire.Failure{Err: "no reason reported"}))
	}
	return e
}

// failureFor returns what the state keeps of a failure; nil without one.
func failureFor(f *wire.Failure) *state.Failure {
	if f == nil {
		return nil
	}
	return &state.Failure{Err: f.Err, Attempts: f.Attempts}
}
