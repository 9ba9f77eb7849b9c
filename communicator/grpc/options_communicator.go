package grpc

// The options of NewCommunicator.

import (
	"context"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
	"google.golang.org/grpc"
)

// CommunicatorOption is for [NewCommunicator]. Every [Option] is one.
type CommunicatorOption interface {
	applyCommunicator(*communicatorSettings)
}

type communicatorSettings struct {
	peer.Settings
	contents Contents // nil: tasks have none
	// observe is called after each call to a worker, unless the caller cancelled
	// that call. err is nil if the worker gave a usable answer. nil: observe is not
	// called.
	observe func(w Worker, err error)
	// believe reports whether this leader has a successor, because a worker says
	// that it has seen a later term. nil: every worker is believed.
	believe func(w Worker, later orchestrator.Term) bool
	// ended is called by List, before it returns, with the tasks that a worker
	// reports as completed or failed, if there are any. List returns its error. nil:
	// it is not called.
	ended func(ctx context.Context, w Worker, tasks []reportedTask) error
	// receipts makes the receipts of contents; nil: contents have no receipts.
	receipts state.ReceiptKey
	dialing  []grpc.DialOption // for tests that watch the traffic
}

// Contents provides the contents of tasks.
//
// # Concurrency
//
// Content is called from many goroutines at the same time.
//
// # Ownership
//
// Neither side changes the bytes.
//
// # Blocking
//
// Content is called for each task of each List, and must answer from memory.
type Contents interface {
	// Content returns the content of a task and its version. The version is higher
	// than that of every earlier content of the task, including those from before it
	// was deleted and put again. ok is false for a task that is no longer expected;
	// such a task is not started.
	Content(task string) (content []byte, version int64, ok bool)
}

// RevisedContents is a [Contents] that counts its changes. If the revision has not
// changed since a List that left no task without its newest content, the next List of an
// unchanged worker looks no task up.
type RevisedContents interface {
	Contents
	// Revision returns a number that begins at 1 and rises with each new content of any
	// task. It must answer from memory.
	Revision() int64
}

type communicatorOption func(*communicatorSettings)

func (f communicatorOption) applyCommunicator(s *communicatorSettings) { f(s) }

// WithContents makes every task start with its content. If a worker lists a task
// with an older content, the same List gives it the newer one. By default tasks have
// no content.
func WithContents(c Contents) CommunicatorOption {
	return communicatorOption(func(s *communicatorSettings) {
		if c == nil {
			s.Invalid("WithContents: nil")
		}
		s.contents = c
	})
}

func newCommunicatorSettings(opts []CommunicatorOption) (communicatorSettings, error) {
	s := communicatorSettings{Settings: peer.Defaults()}
	for _, opt := range opts {
		if opt == nil {
			s.Invalid("a CommunicatorOption is nil")
			continue
		}
		opt.applyCommunicator(&s)
	}
	return s, s.Err()
}
