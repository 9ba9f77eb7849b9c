package grpc

// The options of NewCommunicator.

import (
	"context"

	"github.com/f8949c05/orchestrator"
	"google.golang.org/grpc"
)

// CommunicatorOption is for [NewCommunicator]. Every [Option] is one.
type CommunicatorOption interface {
	applyCommunicator(*communicatorSettings)
}

type communicatorSettings struct {
	settings
	contents Contents // nil: tasks have none
	// observe is called after each call that was made to a worker, unless the
	// caller gave it up: with nil where the worker gave an answer that can be used,
	// whatever it was. nil: it is not called.
	observe func(w Worker, err error)
	// believe reports whether this leader has a successor, as a worker says that has
	// seen a later term. nil: every worker is believed.
	believe func(w Worker, later orchestrator.Term) bool
	// ended is called by List with the tasks that a worker reports as completed or
	// failed, if there are any, before List returns. An error is one of List. nil:
	// it is not called.
	ended func(ctx context.Context, w Worker, tasks []reportedTask) error
	// receipts is what contents are given with; nil: none are.
	receipts receiptKey
	dialing  []grpc.DialOption // for tests, which watch what is sent
}

// Contents tells what tasks are to work on.
//
// # Concurrency
//
// It is called from many goroutines at once.
//
// # Ownership
//
// Nobody changes the bytes.
//
// # Blocking
//
// It is called for each task of each List, and answers from memory.
type Contents interface {
	// Content returns the content of a task, and its version, which is higher than
	// that of any content the task had before, also before it was deleted and put
	// again. ok is false for a task that nobody expects any more: it is not started.
	Content(task string) (content []byte, version int64, ok bool)
}

type communicatorOption func(*communicatorSettings)

func (f communicatorOption) applyCommunicator(s *communicatorSettings) { f(s) }

// WithContents has every task be started with its content; and where a worker
// lists a task with an older one, it is given the newer, within the same List. The
// default is that tasks have none.
func WithContents(c Contents) CommunicatorOption {
	return communicatorOption(func(s *communicatorSettings) {
		if c == nil {
			s.invalid("WithContents: nil")
		}
		s.contents = c
	})
}

func newCommunicatorSettings(opts []CommunicatorOption) (communicatorSettings, error) {
	s := communicatorSettings{settings: defaults()}
	for _, opt := range opts {
		if opt == nil {
			s.invalid("a CommunicatorOption is nil")
			continue
		}
		opt.applyCommunicator(&s)
	}
	return s, s.finish()
}
