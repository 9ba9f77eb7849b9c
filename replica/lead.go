package replica

// One period of leadership: an orchestrator over the members, and how it calls them: itself
// in process, the others over the network.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/worker"
)

// leadership runs an orchestrator for one epoch, and the Source.
type leadership struct {
	epoch uint64
	tasks *contents
	calls *calls
	o     *orchestrator.Orchestrator[grpc.WorkerID, string]
	known map[grpc.WorkerID]bool // the workers that o knows
	log   *slog.Logger
	// invalid has the IDs of the members whose settings are invalid.
	invalid map[uint64]bool
	// retired has the IDs of the members that were retired.
	retired map[uint64]bool

	cancel context.CancelCauseFunc
	done   chan struct{} // closed when err is valid
	err    error         // why the orchestrator has ended
}

// newLeadership returns a leadership that knows the members and has not begun. Its first
// term waits for the members of the View that elected it (T4).
func (r *Replica) newLeadership(epoch uint64, members []sighting) (*leadership, error) {
	tasks := &contents{}
	others, err := r.network.Caller(tasks)
	if err != nil {
		return nil, fmt.Errorf("lead: %w", err)
	}
	l := &leadership{
		epoch: epoch,
		tasks: tasks,
		calls: &calls{
			self: r.p.self.ID, others: others, answered: make(map[uint64]answer), failed: make(map[uint64]error),
			local: &local{worker: r.worker, id: r.p.self.ID, contents: tasks},
		},
		known:   make(map[grpc.WorkerID]bool),
		log:     r.log,
		invalid: make(map[uint64]bool),
		retired: make(map[uint64]bool),
		done:    make(chan struct{}),
	}
	l.o, err = orchestrator.New(l.calls, slices.Concat(r.s.orchestrator, []orchestrator.Option{
		orchestrator.WithEpoch(epoch), orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved),
	})...)
	if err == nil {
		err = l.update(members)
	}
	if err != nil {
		_ = others.Close()
		return nil, fmt.Errorf("lead: %w", err)
	}
	return l, nil
}

// begin starts the orchestrator and the Source.
func (l *leadership) begin(serving context.Context, r *Replica) {
	ctx, cancel := context.WithCancelCause(serving)
	l.cancel = cancel
	told := make(chan struct{})
	first := sync.OnceFunc(func() {
		l.calls.sourceTold()
		close(told)
		r.wake()
	})
	lost := r.worker.LeaseLost()
	go func() { // A9: not by the loop, which may be waiting for the backend
		select {
		case <-lost:
			l.cancel(orchestrator.ErrDeposed)
		case <-ctx.Done():
		}
	}()
	// The Source is not waited for: it may ignore its context.
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		feed(ctx, r.source, l.tasks, l.o, r.log, r.s.lease, first)
	}()
	go func() {
		<-ctx.Done()
		select {
		case <-fed:
		case <-serving.Done():
		case <-time.After(r.s.lease):
			r.log.Error("source of the tasks has not returned though its context ended: it must watch it")
		}
	}()
	r.parts.Go(func() {
		stop := r.announce(l.o)
		defer stop()
		select {
		case <-told: // A7: until then no term
			l.err = l.o.Run(ctx, r.s.interval)
		case <-ctx.Done():
			l.err = context.Cause(ctx)
		}
		l.cancel(l.err)
		close(l.done)
		r.wake()
	})
}

// announce calls the function of WithLeading, after an earlier leadership has called its
// stop. It returns what to call at the end of this one.
func (r *Replica) announce(o *orchestrator.Orchestrator[grpc.WorkerID, string]) (stop func()) {
	if r.s.leading == nil {
		return func() {}
	}
	r.announcing <- struct{}{}
	ended := r.s.leading(o)
	return func() {
		defer func() { <-r.announcing }()
		if ended != nil {
			ended()
		}
	}
}

// update passes the members on. A member that is no longer among them has certainly
// stopped.
func (l *leadership) update(members []sighting) error {
	known := make(map[grpc.WorkerID]bool, len(members))
	var workers []orchestrator.Worker[grpc.WorkerID]
	for _, s := range members {
		m := s.member
		if !m.Role.Works() {
			continue
		}
		w := workerOf(m)
		if m.ID != l.calls.self {
			// Calls to a member whose name or address is invalid fail, and it is retired.
			if err := l.calls.others.Connect(w, m.Address); err != nil {
				l.calls.fail(m.ID, err)
			}
		}
		workers = append(workers, orchestrator.NewWorker(w, m.Draining, l.settings(m)))
		known[w] = true
	}
	if err := l.o.UpdateWorkers(workers); err != nil {
		return err
	}
	for w := range l.known {
		if !known[w] {
			l.calls.others.Disconnect(w)
			l.calls.forget(w.Incarnation)
			delete(l.invalid, w.Incarnation)
		}
	}
	l.known = known
	return nil
}

// settings returns the settings of a member, or none if a program of another version has
// published some that are invalid here: such a member must not fail the others.
func (l *leadership) settings(m Member) orchestrator.WorkerSettings {
	if err := m.Settings.Check(); err != nil {
		if !l.invalid[m.ID] {
			l.log.Error("member's settings invalid, it counts as one without labels", "member", m.Name, "id", m.ID, "err", err)
		}
		l.invalid[m.ID] = true
		return orchestrator.WorkerSettings{}
	}
	return m.Settings
}

// workerOf returns the name under which a leader knows a member. A member's name need
// not be unique, and its ID is.
func workerOf(m Member) grpc.WorkerID {
	return grpc.WorkerID{Name: m.Name, Incarnation: m.ID}
}

// ended reports whether the orchestrator has ended.
func (l *leadership) ended() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// caller calls members. grpc.Communicator is one.
type caller interface {
	orchestrator.Communicator[grpc.WorkerID, string]
	orchestrator.Applier[grpc.WorkerID, string]
	Connect(w grpc.WorkerID, address string) error
	Disconnect(w grpc.WorkerID)
	Close() error
}

// calls is the communicator of a leader. It calls the leader's own worker in process, so
// that a replica alone can run everything, and records which members answer.
type calls struct {
	self   uint64 // ID
	local  *local
	others caller

	mu       sync.Mutex
	answered map[uint64]answer
	failed   map[uint64]error // why the last List of a member failed
	told     time.Time
}

var _ orchestrator.Applier[grpc.WorkerID, string] = (*calls)(nil)

func (c *calls) List(ctx context.Context, w grpc.WorkerID) ([]string, error) {
	began := time.Now()
	var tasks []string
	var err error
	if w.Incarnation == c.self {
		tasks, err = c.local.List(ctx)
	} else {
		tasks, err = c.others.List(ctx, w)
	}
	if err != nil {
		c.fail(w.Incarnation, err)
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered[w.Incarnation] = answer{began: began}
	delete(c.failed, w.Incarnation)
	return tasks, nil
}

// fail records why a member does not answer.
func (c *calls) fail(id uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed[id] = err
}

// failure returns why a member does not answer.
func (c *calls) failure(id uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed[id]
}

func (c *calls) Add(ctx context.Context, w grpc.WorkerID, task string) error {
	return c.one(ctx, w, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: task})
}

func (c *calls) Remove(ctx context.Context, w grpc.WorkerID, task string) error {
	return c.one(ctx, w, orchestrator.Write[string]{Op: orchestrator.OpRemove, Task: task})
}

func (c *calls) one(ctx context.Context, w grpc.WorkerID, write orchestrator.Write[string]) error {
	if errs := c.Apply(ctx, w, []orchestrator.Write[string]{write}); errs != nil {
		return errs[0]
	}
	return nil
}

func (c *calls) Apply(ctx context.Context, w grpc.WorkerID, writes []orchestrator.Write[string]) []error {
	if w.Incarnation == c.self {
		return c.local.Apply(ctx, writes)
	}
	errs := c.others.Apply(ctx, w, writes)
	for _, err := range errs {
		if err != nil && !errors.Is(err, orchestrator.ErrRejected) {
			c.mu.Lock()
			a := c.answered[w.Incarnation]
			a.unsure = true
			c.answered[w.Incarnation] = a
			c.mu.Unlock()
			break
		}
	}
	return errs
}

// sourceTold records that the Source has answered.
func (c *calls) sourceTold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told.IsZero() {
		c.told = time.Now()
	}
}

// health returns what the calls have shown so far. The caller owns the map.
func (c *calls) health(members []sighting) health {
	h := health{answered: make(map[uint64]answer, len(members))}
	c.mu.Lock()
	defer c.mu.Unlock()
	h.told = c.told
	for _, s := range members {
		if a, ok := c.answered[s.member.ID]; ok {
			h.answered[s.member.ID] = a
		}
	}
	return h
}

// forget forgets a member that has left.
func (c *calls) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.answered, id)
	delete(c.failed, id)
}

// local calls a worker of this process.
type local struct {
	worker   *worker.Worker[string]
	id       uint64
	contents grpc.RevisedContents
}

// List returns the worker's tasks, and gives those with an outdated content the newer
// one.
func (l *local) List(ctx context.Context) ([]string, error) {
	ctx = worker.ContextWithIncarnation(ctx, l.id)
	tasks, err := l.worker.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range l.worker.Status() {
		if content, version, ok := l.contents.Content(t.Task); ok && version > t.Version {
			// An error leaves the content to the next List.
			_ = l.worker.Update(ctx, t.Task, worker.Grant{Content: content, Version: version})
		}
	}
	return tasks, nil
}

// Apply carries out writes.
func (l *local) Apply(ctx context.Context, writes []orchestrator.Write[string]) []error {
	changes := make([]worker.Change[string], len(writes))
	for i, w := range writes {
		changes[i].Write = w
		if w.Op == orchestrator.OpAdd {
			content, version, _ := l.contents.Content(w.Task)
			changes[i].Grant = worker.Grant{Content: content, Version: version, Token: tokenOf(ctx)}
		}
	}
	return l.worker.ApplyWith(worker.ContextWithIncarnation(ctx, l.id), changes)
}

// tokenOf returns the token of a task that a call starts: the sum of epoch and term
// number, which rises with each new owner of a task, because epochs leave room for
// 2³² terms (B3).
func tokenOf(ctx context.Context) uint64 {
	t, _ := orchestrator.TermFromContext(ctx)
	return t.Epoch + t.Number
}
