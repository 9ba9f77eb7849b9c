package scenario

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// transport is the Communicator of one leader. It passes calls on to the cluster, and
// applies the faults of the transcript.
type transport struct {
	p *player
	// busy holds the workers to which a call is under way. Guarded by p.mu.
	busy map[string]bool
}

func newTransport(p *player) *transport { return &transport{p: p, busy: make(map[string]bool)} }

// List implements orchestrator.Communicator. The first worker's answer takes 1 ms,
// the second one's 2 ms, and so on. So a term that continues without the silent
// workers always has the same answers.
func (c *transport) List(ctx context.Context, worker string) (tasks []string, err error) {
	err = c.call(ctx, orchestrator.OpList, worker, "", func() error {
		tasks, err = c.p.cluster.List(ctx, worker)
		if err != nil {
			return err
		}
		return sleep(ctx, c.p.latencyOf(worker))
	})
	if err != nil {
		return nil, err
	}
	for _, f := range c.p.faultsOf(orchestrator.OpList, worker, "") {
		tasks = append(tasks, f.more...)
	}
	return tasks, nil
}

// Add implements orchestrator.Communicator.
func (c *transport) Add(ctx context.Context, worker, task string) error {
	return c.call(ctx, orchestrator.OpAdd, worker, task, func() error { return c.p.cluster.Add(ctx, worker, task) })
}

// Remove implements orchestrator.Communicator.
func (c *transport) Remove(ctx context.Context, worker, task string) error {
	return c.call(ctx, orchestrator.OpRemove, worker, task, func() error { return c.p.cluster.Remove(ctx, worker, task) })
}

// call makes one call, and applies the faults before and after it.
func (c *transport) call(ctx context.Context, op orchestrator.Op, worker, task string, do func() error) error {
	c.begin(worker)
	defer c.end(worker)
	for _, f := range c.p.faultsOf(op, worker, task) {
		if f.before == nil {
			continue
		}
		if err := f.before(ctx); err != nil {
			return err
		}
	}
	err := do()
	if op != orchestrator.OpList {
		for _, f := range c.p.faultsOf(op, worker, task) {
			err = errors.Join(err, f.after)
		}
	}
	return err
}

func (c *transport) begin(worker string) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if c.busy[worker] {
		c.p.t.Errorf("two calls at once to worker %s", worker)
	}
	c.busy[worker] = true
}

func (c *transport) end(worker string) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	delete(c.busy, worker)
}

// open returns the workers to which a call is under way.
func (c *transport) open() (workers []string) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	for worker := range c.busy {
		workers = append(workers, worker)
	}
	return workers
}

// fault is what happens to the calls that match. In op, worker and task, * means
// any.
type fault struct {
	op, worker, task string
	before           func(ctx context.Context) error // an error takes the place of the call
	after            error                           // returned although the call succeeded
	more             []string                        // returned by List in addition
}

func (f fault) matches(op orchestrator.Op, worker, task string) bool {
	return (f.op == "*" || f.op == op.String()) && (f.worker == "*" || f.worker == worker) &&
		(f.task == "*" || f.task == task)
}

func (p *player) repeat(args []string) {
	p.addFault(fault{op: "list", worker: args[0], task: "*", more: expand(args[1:])})
}

func (p *player) refuse(args []string) {
	p.addFault(fault{op: args[0], worker: args[1], task: args[2], before: func(context.Context) error {
		return orchestrator.ErrRejected
	}})
}

func (p *player) fail(args []string) {
	p.addFault(fault{op: args[0], worker: args[1], task: args[2], before: func(context.Context) error {
		return errors.New("connection reset")
	}})
}

func (p *player) garble(args []string) {
	p.addFault(fault{op: args[0], worker: args[1], task: args[2], after: errors.New("connection reset")})
}

func (p *player) delay(args []string) {
	d := p.duration(args[0])
	p.addFault(fault{op: args[1], worker: args[2], task: args[3], before: func(ctx context.Context) error {
		return sleep(ctx, d)
	}})
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *player) addFault(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
}

func (p *player) setFaults(faults []fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = faults
}

// faultsOf returns the faults that apply to a call.
func (p *player) faultsOf(op orchestrator.Op, worker, task string) []fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.faults), func(f fault) bool { return !f.matches(op, worker, task) })
}

// setLatency gives a new worker the next latency.
func (p *player) setLatency(worker string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.latency[worker]; !ok {
		p.latency[worker] = time.Duration(len(p.latency)+1) * time.Millisecond
	}
}

func (p *player) latencyOf(worker string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latency[worker]
}

// startTasks starts tasks on a worker without a leader.
func (p *player) startTasks(args []string) {
	ctx := p.t.Context()
	if p.current != nil {
		ctx = orchestrator.ContextWithTerm(ctx, p.current.LastPlan().Stats.Term)
	}
	for _, task := range expand(args[1:]) {
		p.must(p.cluster.Worker(args[0]).Add(ctx, task))
	}
}
