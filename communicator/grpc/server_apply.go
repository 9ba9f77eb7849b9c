package grpc

// How a worker carries out changes.

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
)

const (
	// longestLead is how long before its deadline a call is answered: a tenth of its
	// time, but at most this. So each change has a result, and no answer is lost.
	longestLead = 100 * time.Millisecond
	// longestApply is the timeout of a call without a deadline.
	longestApply = time.Minute
)

// Apply carries out changes, and returns a result for each.
func (s *service) Apply(ctx context.Context, r *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error) {
	if err := peer.MayCommand(ctx); err != nil {
		return nil, err
	}
	if own := s.worker.Incarnation(); own != r.GetIncarnation() {
		return nil, refusal(fmt.Errorf("%w: %d, the worker's is %d", worker.ErrIncarnation, r.GetIncarnation(), own))
	}
	ctx, cancel := early(ctx)
	defer cancel()
	errs := s.apply(callContext(ctx, r.GetTerm(), r.GetIncarnation()), r.GetChanges())
	return &orchestratorv1.ApplyResponse{Results: s.results(errs), Term: s.laterThan(r.GetTerm())}, nil
}

// early returns a context that ends early enough to answer the call in time.
func early(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithTimeout(ctx, longestApply)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/10, longestLead)))
}

// apply carries out the changes, begun in their order. Updates come first, because
// they do not wait.
func (s *service) apply(ctx context.Context, all []*orchestratorv1.Change) []error {
	errs := make([]error, len(all))
	changes := make([]worker.Change[string], 0, len(all))
	places := make([]int, 0, len(all)) // indexes of changes in all
	for i, c := range all {
		task := string(c.GetTask())
		if err := identity.CheckName("task", task); err != nil {
			errs[i] = fmt.Errorf("%w: %w", orchestrator.ErrRejected, err)
			continue
		}
		change := worker.Change[string]{Write: orchestrator.Write[string]{Task: task}}
		switch c.GetOp() {
		case orchestratorv1.Op_OP_UPDATE:
			errs[i] = s.worker.Update(ctx, task, grantOf(c))
			continue
		case orchestratorv1.Op_OP_ADD:
			change.Op = orchestrator.OpAdd
			change.Grant = grantOf(c)
		case orchestratorv1.Op_OP_REMOVE:
			change.Op = orchestrator.OpRemove
		default:
			errs[i] = fmt.Errorf("%w: worker does not support %v", orchestrator.ErrRejected, c.GetOp())
			continue
		}
		changes, places = append(changes, change), append(places, i)
	}
	for i, err := range s.applyPromptly(ctx, changes) {
		errs[places[i]] = err
	}
	return errs
}

// errPending is the answer to a stop for which the call did not wait to the end of its
// time.
var errPending = fmt.Errorf("%w, and other tasks do not wait for it", orchestrator.ErrStopping)

// errGoexit is the result of changes whose goroutine a function of the user ended.
var errGoexit = errors.New("a function of the worker ended its goroutine")

// applyPromptly applies changes. As soon as some are done, and those that are not are
// stops, it answers these with errPending: tasks that have stopped may start elsewhere
// while others still stop.
func (s *service) applyPromptly(ctx context.Context, changes []worker.Change[string]) []error {
	starts := 0
	for _, c := range changes {
		if c.Op == orchestrator.OpAdd {
			starts++
		}
	}
	var open atomic.Int64 // starts that are not known to be done
	open.Store(int64(starts))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{}, 1)
	reporting := orchestrator.ContextWithApplied(ctx, func(write orchestrator.Write[string]) {
		if write.Op == orchestrator.OpAdd {
			open.Add(-1)
		}
		select {
		case done <- struct{}{}:
		default:
		}
	})
	answers := make(chan []error, 1)
	go func() {
		errs := make([]error, len(changes)) // if a function of the user ends the goroutine
		for i := range errs {
			errs[i] = errGoexit
		}
		defer func() { answers <- errs }()
		errs = s.worker.ApplyWith(reporting, changes)
	}()
	for {
		select {
		case errs := <-answers:
			return errs
		case <-done:
		}
		if open.Load() > 0 {
			continue
		}
		cancel()
		errs := <-answers
		for i, err := range errs {
			if errors.Is(err, orchestrator.ErrStopping) {
				errs[i] = errPending
			}
		}
		return errs
	}
}

func grantOf(c *orchestratorv1.Change) worker.Grant {
	return worker.Grant{Content: c.GetContent(), Version: c.GetContentVersion(), Receipt: string(c.GetReceipt())}
}

// results converts errors to results, which must fit into one message.
func (s *service) results(errs []error) []*orchestratorv1.Result {
	longest := min(wire.MaxMessage, s.maxMessage/2/max(len(errs), 1))
	messages := make([]orchestratorv1.Result, len(errs))
	list := make([]*orchestratorv1.Result, len(errs))
	for i, err := range errs {
		m := &messages[i]
		m.Outcome, m.Pending = wire.OutcomeOf(err), errors.Is(err, errPending)
		if err != nil {
			m.Message = wire.Truncate(err.Error(), longest)
		}
		list[i] = m
	}
	return list
}
