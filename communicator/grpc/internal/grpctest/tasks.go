package grpctest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

// Tasks are the functions of a worker. They configure which of its tasks are refused, and
// which take long to stop.
type Tasks struct {
	mu      sync.Mutex
	refused []string
	linger  map[string]chan struct{}
}

// Run runs a task until it is stopped.
func (p *Tasks) Run(ctx context.Context, task string) error {
	<-ctx.Done()
	p.mu.Lock()
	end := p.linger[task]
	p.mu.Unlock()
	if end != nil {
		<-end
	}
	return nil
}

// Lingers makes a task take until end to stop.
func (p *Tasks) Lingers(task string) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.linger == nil {
		p.linger = map[string]chan struct{}{}
	}
	ended := make(chan struct{})
	p.linger[task] = ended
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.linger, task)
		close(ended)
	}
}

// Refuse makes the worker refuse a task until accept.
func (p *Tasks) Refuse(task string) (accept func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = append(p.refused, task)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.refused = slices.DeleteFunc(p.refused, func(other string) bool { return other == task })
	}
}

// Accept returns an error for a refused task.
func (p *Tasks) Accept(_ context.Context, task string, _ []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.refused, task) {
		return errors.New("not that one")
	}
	return nil
}

// Gate delays calls that have arrived at a worker. A delayed call outlives its
// caller, as it would in a queue.
type Gate struct {
	mu   sync.Mutex
	All  chan struct{} // of every call; closed on release; nil: open
	Some chan struct{} // of writes
	held sync.WaitGroup
}

// Pass is an interceptor. It delays a call while its gate is closed.
func (g *Gate) Pass(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	g.mu.Lock()
	until := g.All
	if until == nil && info.FullMethod == orchestratorv1.Worker_Apply_FullMethodName {
		until = g.Some
	}
	if until != nil {
		g.held.Add(1)
		defer g.held.Done()
	}
	g.mu.Unlock()
	if until != nil {
		<-until
		ctx = context.WithoutCancel(ctx)
	}
	return handle(ctx, req)
}

// Hold closes a gate. release opens it, and returns when the delayed calls have been
// processed.
func (g *Gate) Hold(gate *chan struct{}) (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	closed := make(chan struct{})
	*gate = closed
	return func() {
		g.mu.Lock()
		*gate = nil
		close(closed)
		g.mu.Unlock()
		g.held.Wait()
	}
}
