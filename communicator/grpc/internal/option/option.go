// Package option defines the settings structs behind the options of packages grpc and
// manager. Both packages import it, so one option, such as grpc.WithCredentials, works
// for the constructors of both.
package option

import (
	"context"
	"reflect"
	"time"

	"google.golang.org/grpc"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
)

// Communicator is set by the options of grpc.NewCommunicator. A manager sets the last
// fields; without one, they are nil.
type Communicator struct {
	peer.Settings
	// Contents provides the contents of tasks; nil: tasks have none.
	Contents interface {
		Content(task string) (content []byte, version int64, ok bool)
	}
	Dialing []grpc.DialOption // for tests that watch the traffic

	// Observe is called after each call to a worker, unless the caller cancelled that
	// call. err is nil if the worker gave a usable answer.
	Observe func(w state.WorkerID, err error)
	// Believe reports whether this leader has a successor, because a worker says that it
	// has seen a later term. nil: every worker is believed.
	Believe func(w state.WorkerID, later orchestrator.Term) bool
	// Overtaken is called when a worker says that it has seen a later term of the caller's
	// epoch than that of the call. nil: it is not called.
	Overtaken func(ctx context.Context, w state.WorkerID, seen orchestrator.Term)
	// Ended is called by List, before it returns, with the tasks that a worker reports as
	// completed or failed, if there are any. List returns its error.
	Ended func(ctx context.Context, w state.WorkerID, tasks []wire.Task) error
	// Receipts makes the receipts of contents; nil: contents have no receipts.
	Receipts state.ReceiptKey
	// Restored reports whether a worker may run tasks of an earlier manager. The first
	// report of such a worker counts by its receipts alone. nil: no worker may.
	Restored func(w state.WorkerID) bool
}

// Server is set by the options of grpc.NewServer.
type Server struct {
	peer.Settings
	Serving []grpc.ServerOption // for a member, which counts the calls, and for tests
}

// Manager is set by the options of manager.New.
type Manager struct {
	peer.Settings
	state.Rules
	Interval     time.Duration
	Orchestrator []orchestrator.Option
	Probing      time.Duration     // which a registering worker has to answer; another one in tests
	Dialing      []grpc.DialOption // for tests with their own networks
}

// Member is set by the options of manager.NewMember.
type Member struct {
	peer.Settings
	Advertise string // empty: the listener's address
	Worker    orchestrator.WorkerSettings
	Drain     time.Duration
	Dialing   []grpc.DialOption // for tests with their own networks
}

// Apply calls apply with each option, in their order. It records a problem for each
// option that is nil.
func Apply[O any](s *peer.Settings, opts []O, apply func(O)) {
	for _, opt := range opts {
		if any(opt) == nil {
			s.Invalid("a %v is nil", reflect.TypeFor[O]())
			continue
		}
		apply(opt)
	}
}
