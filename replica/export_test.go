package replica

import (
	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/worker"
)

// What the tests of this package replace: the network.
type (
	Network = network
	Caller  = caller
	Local   = local
)

var WithNetwork = withNetwork

func NewLocal(w *worker.Worker[string], id uint64, c grpc.RevisedContents) *Local {
	return &local{worker: w, id: id, contents: c}
}

// LeaseLost returns a channel that is closed when the present lease of r is lost.
func (r *Replica) LeaseLost() <-chan struct{} { return r.worker.LeaseLost() }

// LastResort returns the last resort of a replica with these options.
func LastResort(opts ...Option) (func(tasks []string), error) {
	s, err := newSettings(opts)
	return s.lastResort, err
}

// NewNetwork returns the network that a replica with these options has by default.
func NewNetwork(opts ...Option) (Network, error) {
	s, err := newSettings(opts)
	if err != nil {
		return nil, err
	}
	return newNetwork(s)
}
