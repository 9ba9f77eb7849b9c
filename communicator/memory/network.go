package memory

// Calls through the simulated network, and its switches.

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
)

// mode is a switch setting.
type mode uint8

const (
	healthy mode = iota
	cut
	hanging
	sticking
	slow
	late
	holding
	answerless
)

// link is the state of the network between the caller and one worker. The zero link is
// healthy.
type link struct {
	mode    mode
	delay   time.Duration   // slow, late
	changed chan struct{}   // closed by the next switch; nil if healthy
	held    *sync.WaitGroup // holding: done when the held writes have been answered
}

// Cut cuts off the workers named. Calls fail immediately with [ErrCut] and do not
// reach the workers. Their tasks keep running.
func (c *Cluster[W, T]) Cut(names ...W) { c.set(link{mode: cut}, names) }

// Hang makes calls to the workers named wait until their contexts end. The calls do
// not reach the worker, unless it is healed first.
func (c *Cluster[W, T]) Hang(names ...W) { c.set(link{mode: hanging}, names) }

// Stick makes calls to the workers named wait and ignore their contexts, which no
// Communicator should do. The calls reach the worker without a deadline when it is
// healed, and fail if it is killed.
func (c *Cluster[W, T]) Stick(names ...W) { c.set(link{mode: sticking}, names) }

// Slow makes calls reach the workers named after d, if their callers still wait.
func (c *Cluster[W, T]) Slow(d time.Duration, names ...W) { c.set(link{mode: slow, delay: d}, names) }

// Late is like Slow, but a call reaches the worker even if its caller no longer
// waits. It then has no deadline.
func (c *Cluster[W, T]) Late(d time.Duration, names ...W) { c.set(link{mode: late, delay: d}, names) }

// LoseAnswers makes calls reach the workers named and take effect, but their callers
// wait until their contexts end.
func (c *Cluster[W, T]) LoseAnswers(names ...W) { c.set(link{mode: answerless}, names) }

// HoldWrites holds back every Add, Remove and Apply on its way to one worker; List
// still reaches it. release, or any other switch, delivers the held calls, including
// those whose callers no longer wait. release returns when the worker has answered
// them or was killed. It heals the worker only if no other switch was set since.
func (c *Cluster[W, T]) HoldWrites(name W) (release func()) {
	held := new(sync.WaitGroup)
	c.set(link{mode: holding, held: held}, []W{name})
	return func() {
		c.mu.Lock()
		if l := c.links[name]; l.held == held {
			close(l.changed)
			delete(c.links, name)
		}
		c.mu.Unlock()
		held.Wait()
	}
}

// Heal restores the network for the workers named, or for all if none are named.
func (c *Cluster[W, T]) Heal(names ...W) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(names) == 0 {
		for _, l := range c.links {
			close(l.changed)
		}
		clear(c.links)
	}
	for _, name := range names {
		if l, ok := c.links[name]; ok {
			close(l.changed)
			delete(c.links, name)
		}
	}
}

// set applies a switch setting.
func (c *Cluster[W, T]) set(l link, names []W) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		if old, ok := c.links[name]; ok {
			close(old.changed)
		}
		l.changed = make(chan struct{})
		c.links[name] = l
	}
}

// Refuse sets a function f to call before any List, Add or Remove that has reached a
// worker, including those within an Apply. If f returns an error, it is the worker's
// answer and nothing is done. The task is the zero value for OpList. f is called
// from many goroutines at the same time. A nil f, the default, refuses nothing.
func (c *Cluster[W, T]) Refuse(f func(op orchestrator.Op, name W, task T) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = f
}

var (
	_ orchestrator.Communicator[int, int] = (*Cluster[int, int])(nil)
	_ orchestrator.Applier[int, int]      = (*Cluster[int, int])(nil)
)

// List calls the worker's List, if the network delivers the call.
func (c *Cluster[W, T]) List(ctx context.Context, name W) ([]T, error) {
	return send(ctx, c, name, false, func(ctx context.Context, p *process[W, T]) ([]T, error) {
		var none T
		if err := c.refused(orchestrator.OpList, name, none); err != nil {
			return nil, err
		}
		return p.worker.List(ctx)
	})
}

// Add calls the worker's Add, if the network delivers the call.
func (c *Cluster[W, T]) Add(ctx context.Context, name W, task T) error {
	return c.write(ctx, name, orchestrator.Write[T]{Op: orchestrator.OpAdd, Task: task})
}

// Remove calls the worker's Remove, if the network delivers the call.
func (c *Cluster[W, T]) Remove(ctx context.Context, name W, task T) error {
	return c.write(ctx, name, orchestrator.Write[T]{Op: orchestrator.OpRemove, Task: task})
}

func (c *Cluster[W, T]) write(ctx context.Context, name W, write orchestrator.Write[T]) error {
	_, err := send(ctx, c, name, true, func(ctx context.Context, p *process[W, T]) (struct{}, error) {
		if err := c.refused(write.Op, name, write.Task); err != nil {
			return struct{}{}, err
		}
		if write.Op == orchestrator.OpAdd {
			return struct{}{}, p.worker.Add(ctx, write.Task)
		}
		return struct{}{}, p.worker.Remove(ctx, write.Task)
	})
	return err
}

// Apply calls the worker's Apply, if the network delivers the call. Otherwise the
// error is the same for every write.
func (c *Cluster[W, T]) Apply(ctx context.Context, name W, writes []orchestrator.Write[T]) []error {
	errs, err := send(ctx, c, name, true, func(ctx context.Context, p *process[W, T]) ([]error, error) {
		return c.applyUnrefused(ctx, p, writes), nil
	})
	if err == nil {
		return errs
	}
	errs = make([]error, len(writes))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// applyUnrefused applies the writes that the Refuse function does not refuse.
func (c *Cluster[W, T]) applyUnrefused(ctx context.Context, p *process[W, T], writes []orchestrator.Write[T]) []error {
	errs := make([]error, len(writes))
	var let []orchestrator.Write[T]
	var at []int
	for i, write := range writes {
		if errs[i] = c.refused(write.Op, p.name, write.Task); errs[i] == nil {
			let, at = append(let, write), append(at, i)
		}
	}
	answers := p.worker.Apply(ctx, let)
	if answers == nil && len(let) == len(writes) {
		return nil
	}
	for i, err := range answers {
		errs[at[i]] = err
	}
	return errs
}

func (c *Cluster[W, T]) refused(op orchestrator.Op, name W, task T) error {
	c.mu.Lock()
	f := c.refuse
	c.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(op, name, task)
}

// Plain returns the Cluster as a Communicator that is not an Applier, so that each
// write is a separate call.
func (c *Cluster[W, T]) Plain() orchestrator.Communicator[W, T] {
	return struct {
		orchestrator.Communicator[W, T]
	}{c}
}

// send makes one call and runs deliver at the worker. It and its callees are not
// methods because of the type parameter R.
func send[W, T comparable, R any](
	ctx context.Context, c *Cluster[W, T], name W, writes bool, deliver delivery[W, T, R],
) (R, error) {
	p, l, err := c.route(name, writes)
	if err != nil {
		var none R
		return none, err
	}
	switch l.mode {
	case sticking:
		return transmit(context.WithoutCancel(ctx), c, p, l, deliver)
	case late, holding:
		return transmitDetached(ctx, c, p, l, deliver)
	}
	return transmit(ctx, c, p, l, deliver)
}

// delivery is the effect of a call at its process.
type delivery[W, T comparable, R any] func(ctx context.Context, p *process[W, T]) (R, error)

// route returns the process that has the name now, and the link to it.
func (c *Cluster[W, T]) route(name W, writes bool) (*process[W, T], link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, l := c.alive[name], c.links[name]
	switch {
	case l.mode == cut:
		return nil, l, fmt.Errorf("%w: %v", ErrCut, name)
	case p == nil:
		return nil, l, fmt.Errorf("%w: %v", ErrDown, name)
	case l.mode == holding && !writes:
		l = link{}
	case l.mode == holding:
		l.held.Add(1) // before release can wait
	}
	return p, l, nil
}

// transmitDetached makes a call that is delivered even if its caller has stopped waiting.
func transmitDetached[W, T comparable, R any](
	ctx context.Context, c *Cluster[W, T], p *process[W, T], l link, deliver delivery[W, T, R],
) (result R, err error) {
	type answer struct {
		result R
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		if l.held != nil {
			defer l.held.Done()
		}
		result, err := transmit(context.WithoutCancel(ctx), c, p, l, deliver)
		answers <- answer{result, err}
	}()
	select {
	case a := <-answers:
		return a.result, a.err
	case <-ctx.Done():
		return result, context.Cause(ctx)
	}
}

// transmit delivers a call and returns its answer. It ends when the process is killed or
// ctx ends, unless deliver takes longer.
func transmit[W, T comparable, R any](
	ctx context.Context, c *Cluster[W, T], p *process[W, T], l link, deliver delivery[W, T, R],
) (result R, err error) {
	if l.mode == answerless {
		ctx = orchestrator.ContextWithApplied(ctx, func(orchestrator.Write[T]) {})
	}
	ctx, end := c.begin(ctx, p)
	defer end()
	if err = l.delayCall(ctx); err == nil {
		result, err = deliver(ctx, p)
	}
	if l.mode == answerless {
		var none R
		<-ctx.Done()
		result, err = none, context.Cause(ctx)
	}
	if c.isGone(p) {
		var none R
		return none, fmt.Errorf("%w: %v", ErrDown, p.name)
	}
	return result, err
}

// delayCall waits until the call may reach the worker.
func (l link) delayCall(ctx context.Context) error {
	var arrival <-chan time.Time
	var changed <-chan struct{}
	switch l.mode {
	case hanging, sticking, holding:
		changed = l.changed
	case slow, late:
		timer := time.NewTimer(l.delay)
		defer timer.Stop()
		arrival = timer.C
	default:
		return nil
	}
	select {
	case <-arrival:
		return nil
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin returns a context for a call to p, which also ends when p is killed, and a
// function to call when the call has ended.
func (c *Cluster[W, T]) begin(ctx context.Context, p *process[W, T]) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	gone := p.gone
	if !gone {
		p.calls[&cancel] = struct{}{}
	}
	c.mu.Unlock()
	if gone {
		cancel(ErrDown)
	}
	return ctx, func() {
		c.mu.Lock()
		delete(p.calls, &cancel) // nil if p was killed: nothing to delete
		c.mu.Unlock()
		cancel(nil)
	}
}

func (c *Cluster[W, T]) isGone(p *process[W, T]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return p.gone
}
