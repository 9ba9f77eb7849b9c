package grpc

// The Communicator: its workers, and List. The connection to a worker and the meaning of
// errors are in link.go, reports and updates of contents in report.go, writes in write.go.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
	"github.com/f8949c05/orchestrator/worker"
)

// Communicator calls workers. It is also an [orchestrator.Applier]. It meets the
// whole contract of [orchestrator.Communicator], with workers that meet theirs, as
// [Server] does.
//
// It knows the workers for which Connect was called. The connection to a worker is
// made when it is first used. If a worker cannot be reached, a call fails without
// waiting, and the next call tries again.
//
// A List of a worker without changes costs some dozens of bytes, whatever the number
// of its tasks, and returns the very same slice.
//
// A worker that names a higher epoch is believed: one such answer is
// [orchestrator.ErrDeposed]. A manager.Manager requires a second worker.
//
// An error of List, Add, Remove or Apply states the worker's address and the cause.
// The caller adds the call and the worker's name, as an orchestrator does
// ([orchestrator.CallError]).
//
// The methods may be called from any number of goroutines.
type Communicator struct {
	settings option.Communicator
	// limit is the number of bytes of changes in a message, most the number of changes.
	limit, most int

	mu     sync.Mutex
	links  map[WorkerID]*link
	closed bool
	// ending counts the links that are being closed. gRPC takes seconds to close a
	// connection if the worker does not read. Add is called only while mu is held
	// and closed is false.
	ending sync.WaitGroup
}

var (
	_ orchestrator.Communicator[WorkerID, string] = (*Communicator)(nil)
	_ orchestrator.Applier[WorkerID, string]      = (*Communicator)(nil)
)

// NewCommunicator returns a Communicator without workers. Errors wrap
// [orchestrator.ErrInvalid].
func NewCommunicator(opts ...CommunicatorOption) (*Communicator, error) {
	s, err := newCommunicatorSettings(opts)
	if err != nil {
		return nil, fmt.Errorf("new communicator: %w", err)
	}
	return &Communicator{
		settings: s,
		limit:    min(s.MaxMessage/2, 1<<20),
		most:     4096,
		links:    make(map[WorkerID]*link),
	}, nil
}

// Connect sets the address of a worker, as host:port. The connection is made by the
// first call. A new address replaces the old one and its connection. Errors wrap
// [orchestrator.ErrInvalid], or report that the Communicator is closed.
func (c *Communicator) Connect(w WorkerID, address string) error {
	err := identity.CheckName("worker", w.Name)
	if w.Incarnation == 0 {
		err = errors.Join(err, fmt.Errorf("%w: incarnation is 0", orchestrator.ErrInvalid))
	}
	if address == "" {
		err = errors.Join(err, fmt.Errorf("%w: no address", orchestrator.ErrInvalid))
	}
	if err != nil {
		return fmt.Errorf("connect %.100q: %w", w.Name, err)
	}
	l := c.newLink(w, address)
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.links[w]
	switch {
	case c.closed:
		return fmt.Errorf("connect %q: %w", w.Name, errClosed)
	case before != nil && before.address == address:
		return nil
	case before != nil:
		l.adopt(before)
		c.ending.Go(func() { before.close(0) })
	}
	c.links[w] = l
	return nil
}

// Disconnect forgets a worker, and returns immediately. Calls under way end within a
// second; the changes of those that are cut off may or may not have been made. An
// unknown worker is ignored.
func (c *Communicator) Disconnect(w WorkerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.links[w]; l != nil {
		delete(c.links, w)
		c.ending.Go(func() { l.close(lastAnswers) })
	}
}

// Close forgets all workers, and makes later calls of Connect fail. It returns when
// all connections are closed, including those of disconnected workers. That takes
// about five seconds if a worker does not read. It always returns nil.
func (c *Communicator) Close() error {
	c.mu.Lock()
	for _, l := range c.links {
		c.ending.Go(func() { l.close(0) })
	}
	clear(c.links)
	c.closed = true
	c.mu.Unlock()
	c.ending.Wait()
	return nil
}

// link returns the link to a worker.
func (c *Communicator) link(w WorkerID) (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch l := c.links[w]; {
	case l != nil:
		return l, nil
	case c.closed:
		return nil, errClosed
	}
	return nil, errNotConnected
}

// List returns the tasks that a worker was told to run and has not stopped. Waiting
// tasks come first, because they cost least to move, and the jobs that the worker
// pins come last. While nothing changes, List returns the very same slice. An
// impossible answer is an error, and so is an answer of another incarnation. If nothing
// collects the pins of a leader's List, writes that would stop a job that runs are
// rejected until the next List.
//
// List gives tasks with outdated content the newer one, as far as one message
// allows. If that fails, List logs it, and the next List tries again.
//
// If the worker lists a task of a manager.Manager without a receipt of that manager, List
// stops the task and does not return it. The worker was not given the task, or was
// given it by a manager whose store is lost. While the worker has not stopped all
// such tasks, List fails, and the worker counts as one that cannot be called
// (manager.WithUnreachable). Otherwise these tasks could make the orchestrator stop the
// copies on other workers, which were given them.
func (c *Communicator) List(ctx context.Context, w WorkerID) ([]string, error) {
	l, err := c.link(w)
	if err != nil {
		return nil, err
	}
	s, err := l.report(ctx)
	if err != nil {
		return nil, l.failed(err)
	}
	if c.settings.Ended != nil && len(s.ended) > 0 {
		if err := c.settings.Ended(ctx, state.WorkerID(w), s.ended); err != nil {
			return nil, l.failed(err)
		}
	}
	stopped, err := c.update(ctx, l, s)
	if runsUngiven := errors.Is(err, errNotGiven); termOf(ctx) != nil && l.runsUngiven.Swap(runsUngiven) != runsUngiven {
		l.reportReachability(ctx, nil)
	}
	if err != nil {
		if errors.Is(err, orchestrator.ErrDeposed) || errors.Is(err, errNotGiven) {
			return nil, l.failed(err)
		}
		c.settings.Logger.Warn("new content not delivered, will retry", "worker", w, "err", err)
	}
	if carried := orchestrator.Pin(ctx, s.pinned); termOf(ctx) != nil {
		l.pinsLost.Store(!carried)
	}
	if len(stopped) == 0 {
		return s.names, nil
	}
	// The worker confirms that these tasks have stopped. Listed, they would stop the
	// copies elsewhere. None of them is pinned, so the pinned tasks are still the last.
	return slices.DeleteFunc(slices.Clone(s.names), func(task string) bool { return stopped[task] }), nil
}

// TaskState is the state of a task as its worker reported it.
type TaskState struct {
	// Name is the name of the task.
	Name string
	// State is the state of the task; 0: the worker did not report it.
	State worker.State
	// Since is when the task entered State, by the worker's wall clock; zero: the worker
	// did not report it.
	Since time.Time
	// Version is the version of the newest content that the worker has for the task;
	// 0: none.
	Version int64
	// Pinned reports whether the task is a job that must not be moved.
	Pinned bool
	// Failure describes the failure of the last run; nil if it did not fail. It must
	// not be changed.
	Failure *Failure
}

// Failure describes the last failed runs of a task.
type Failure struct {
	// Err is the error of the last run, at most 512 bytes.
	Err string
	// Attempts is the number of failures in a row with this content.
	Attempts int
	// First is when the first of them failed, by the worker's wall clock; zero: the worker
	// did not report it.
	First time.Time
	// Next is when the next run begins, by the worker's wall clock. It is zero if a
	// run is under way or none follows.
	Next time.Time
}

// Tasks returns the tasks of the last List of a worker; nil if there was none or the
// worker is unknown. The caller owns the slice.
func (c *Communicator) Tasks(w WorkerID) []TaskState {
	l, err := c.link(w)
	if err != nil {
		return nil
	}
	reported := l.last.Load().Tasks
	if reported == nil {
		return nil
	}
	tasks := make([]TaskState, len(reported))
	for i := range reported {
		t := &reported[i]
		tasks[i] = TaskState{Name: t.Name, State: t.State, Since: t.Since, Version: t.Version, Pinned: t.Pinned, Failure: (*Failure)(t.Failure)}
	}
	return tasks
}

// WorkerID identifies one incarnation of a named worker. A worker that was restarted,
// or has lost its lease, is another WorkerID, so no call meant for the previous
// incarnation reaches it.
type WorkerID struct {
	Name string
	// Incarnation is unique to the process and its lease; see
	// worker.Worker.Incarnation.
	Incarnation uint64
}

// String returns the name.
func (w WorkerID) String() string { return w.Name }

// MarshalText returns the name, which also represents a WorkerID in JSON.
func (w WorkerID) MarshalText() ([]byte, error) { return []byte(w.Name), nil }

// UnmarshalText sets the name, and nothing else: the text has no more.
func (w *WorkerID) UnmarshalText(text []byte) error {
	*w = WorkerID{Name: string(text)}
	return nil
}
