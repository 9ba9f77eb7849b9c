package grpc

// The Communicator: whom it knows, and List. The writes are in
// communicator_write.go, updates of contents in communicator_update.go, what
// errors mean in communicator_errors.go.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
)

// Communicator reaches workers by calling them. It is an [orchestrator.Applier]
// too, and the contract is that of [orchestrator.Communicator], all of it, for
// workers that keep theirs, as [Server] does.
//
// It knows the workers that it was told of by Connect, and has a connection to
// each, made when it is used first. A worker that cannot be reached is not waited
// for, and is tried again with each call.
//
// A List of a worker of which nothing has changed costs some dozens of bytes,
// however much it runs, and returns the very same slice.
//
// A worker that has seen a higher epoch is believed: one such answer is
// [orchestrator.ErrDeposed]. A [Manager] asks for a second worker.
//
// An error of List, Add, Remove or Apply says where the worker was called, and what
// came of it. Which call of which worker that was, its caller says: an orchestrator
// does ([orchestrator.CallError]).
//
// Its methods may be called from any number of goroutines.
type Communicator struct {
	settings communicatorSettings
	// limit is how many bytes of changes go into a message, and most how many.
	limit, most int

	mu     sync.Mutex
	links  map[Worker]*link
	closed bool
	// ending are links that are being closed: gRPC takes seconds for that where the
	// worker does not read. It is added to under mu, and while closed is false.
	ending sync.WaitGroup
}

var (
	_ orchestrator.Communicator[Worker, string] = (*Communicator)(nil)
	_ orchestrator.Applier[Worker, string]      = (*Communicator)(nil)
)

// NewCommunicator returns a Communicator that knows nobody yet. Errors wrap
// [orchestrator.ErrInvalid].
func NewCommunicator(opts ...CommunicatorOption) (*Communicator, error) {
	s, err := newCommunicatorSettings(opts)
	if err != nil {
		return nil, fmt.Errorf("new communicator: %w", err)
	}
	return newCommunicator(s), nil
}

func newCommunicator(s communicatorSettings) *Communicator {
	return &Communicator{
		settings: s,
		limit:    min(s.maxMessage/2, 1<<20),
		most:     4096,
		links:    make(map[Worker]*link),
	}
}

// Connect says where a worker is: a host:port. It does not connect before there
// is something to say. A worker that has another address than it had is connected
// anew. Errors wrap [orchestrator.ErrInvalid], or say that the Communicator is
// closed.
func (c *Communicator) Connect(w Worker, address string) error {
	err := checkName("worker", w.Name)
	if w.Incarnation == 0 {
		err = errors.Join(err, fmt.Errorf("%w: an incarnation of 0", orchestrator.ErrInvalid))
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
		l.follow(before)
		c.ending.Go(before.close)
	}
	c.links[w] = l
	return nil
}

// believe makes the first report of a connected worker count by its receipts alone,
// because the worker may run tasks of a manager before.
func (c *Communicator) believe(w Worker) {
	if l, err := c.link(w); err == nil {
		l.assigned.known = false // it is not called yet
	}
}

// Disconnect forgets a worker. Calls to it that are under way end, and what they
// wanted may have been done or not; they are not waited for. To forget one that is
// not known does no harm.
func (c *Communicator) Disconnect(w Worker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.links[w]; l != nil {
		delete(c.links, w)
		c.ending.Go(l.close)
	}
}

// Close forgets all workers, and lets nobody be connected any more. It returns
// when nothing is left of the connections, those of workers that were disconnected
// included: within some five seconds where a worker does not read. It always
// returns nil.
func (c *Communicator) Close() error {
	c.mu.Lock()
	for _, l := range c.links {
		c.ending.Go(l.close)
	}
	clear(c.links)
	c.closed = true
	c.mu.Unlock()
	c.ending.Wait()
	return nil
}

// link returns what is known of a worker.
func (c *Communicator) link(w Worker) (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch l := c.links[w]; {
	case l != nil:
		return l, nil
	case c.closed:
		return nil, errClosed
	}
	return nil, errStranger
}

// List returns what worker was told to run and has not stopped, first what waits
// to run, as that costs least to move, and last, pinned, the jobs that the worker
// pins. While nothing changes it returns the very same slice. A worker that answers with what
// cannot be is an error, and so is one that has another incarnation by now.
//
// Tasks that have an older content than they should are given the newer, as much
// as one message takes. If that fails it is logged, and the next List tries again.
// A task of a [Manager] without a receipt of this manager is stopped instead, and not
// listed: the worker was not given it, or by a manager whose store is lost. While the
// worker has not stopped all of them, List fails, and the worker counts as one that
// cannot be called ([WithUnreachable]). Listed, they could have the copies stopped that
// other workers were given.
func (c *Communicator) List(ctx context.Context, w Worker) ([]string, error) {
	l, err := c.link(w)
	if err != nil {
		return nil, err
	}
	s, err := l.report(ctx)
	if err != nil {
		return nil, l.failed(err)
	}
	if c.settings.ended != nil && len(s.ended) > 0 {
		if err := c.settings.ended(ctx, w, s.ended); err != nil {
			return nil, l.failed(err)
		}
	}
	stopped, err := c.update(ctx, l, s)
	if defies := errors.Is(err, errNotGiven); termOf(ctx) != nil && l.defies.Swap(defies) != defies {
		l.observed(ctx, nil)
	}
	if err != nil {
		if isAny(err, orchestrator.ErrDeposed, errNotGiven) {
			return nil, l.failed(err)
		}
		c.settings.logger.Warn("tasks not given their new content, to be tried again", "worker", w, "err", err)
	}
	orchestrator.Pin(ctx, s.pinned)
	if len(stopped) == 0 {
		return s.names, nil
	}
	// By the worker's own word they are gone. Listed, they would have copies elsewhere
	// stopped. None of them is pinned, so those are still the last.
	return slices.DeleteFunc(slices.Clone(s.names), func(task string) bool { return stopped[task] }), nil
}

// TaskState is what a worker has reported of a task.
type TaskState struct {
	// Name is what it is called.
	Name string
	// State is where it is in its life; 0: the worker did not tell.
	State worker.State
	// Version is that of the newest content that the worker has for it; 0: none.
	Version int64
	// Pinned says that it is a job that must not be moved.
	Pinned bool
	// Failure is how its last run ended, if that failed; else nil. It is not changed.
	Failure *Failure
}

// Failure says how the last runs of a task ended.
type Failure struct {
	// Err is what the last one failed with: at most 512 bytes.
	Err string
	// Attempts is how many failed in a row with this content.
	Attempts int
	// Next is when the next one begins, by the worker's wall clock. It is zero if
	// one runs, or none is to come.
	Next time.Time
}

// Tasks returns what a worker has reported when it was listed last; nil if it
// never was, or is not known. The slice is the caller's.
func (c *Communicator) Tasks(w Worker) []TaskState {
	l, err := c.link(w)
	if err != nil {
		return nil
	}
	reported := l.last.Load().tasks
	if reported == nil {
		return nil
	}
	tasks := make([]TaskState, len(reported))
	for i := range reported {
		tasks[i] = reported[i].TaskState
	}
	return tasks
}
