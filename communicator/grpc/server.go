package grpc

// The Server, and the methods of a worker's service.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
)

// Server serves orchestrator.v1.Worker for a [worker.Worker]: it carries out the
// calls of a [Communicator]. It neither registers the worker nor keeps a lease
// alive; a manager.Member does, with a Server of its own.
type Server struct {
	worker   *worker.Worker[string]
	settings option.Server
}

// NewServer returns a Server for w. Errors wrap [orchestrator.ErrInvalid].
func NewServer(w *worker.Worker[string], opts ...ServerOption) (*Server, error) {
	s := newServerSettings(opts)
	if w == nil {
		s.Invalid("the worker is nil")
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("new server: %w", err)
	}
	return &Server{worker: w, settings: s}, nil
}

// Serve answers calls on l, which it closes, until ctx is done. Calls under way then
// may take two more seconds. Calls that are cut off get no answer, but have ended
// when Serve returns. It returns the cause of ctx, or the error of serving. It may
// be called for several listeners at the same time.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if peer.Absent(l) {
		return fmt.Errorf("%w: Server.Serve: the net.Listener is nil", orchestrator.ErrInvalid)
	}
	opts := append([]grpc.ServerOption{grpc.WaitForHandlers(true)}, s.settings.Serving...)
	server, accepting, err := s.settings.NewServer(l, identity.RoleManager, opts...)
	if err != nil {
		return errors.Join(fmt.Errorf("serve worker: %w", err), l.Close())
	}
	orchestratorv1.RegisterWorkerServer(server, &service{worker: s.worker, maxMessage: s.settings.MaxMessage})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(accepting) }()
	select {
	case err := <-ended:
		server.Stop()
		return fmt.Errorf("serve worker on %s: %w", l.Addr(), err)
	case <-ctx.Done():
		peer.Stop(server)
		if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("serve worker on %s: %w", l.Addr(), err)
		}
		return context.Cause(ctx)
	}
}

// service implements the Worker gRPC service.
type service struct {
	orchestratorv1.UnimplementedWorkerServer
	worker     *worker.Worker[string]
	maxMessage int
	size       atomic.Int64 // of a report of all tasks, and of some that were added and have stopped
	kept       keptReports
}

// callContext returns the context for a call of the worker's methods, with the term
// and the incarnation.
func callContext(ctx context.Context, term *orchestratorv1.Term, incarnation uint64) context.Context {
	ctx = worker.ContextWithIncarnation(ctx, incarnation)
	if term == nil {
		return ctx
	}
	return orchestrator.ContextWithTerm(ctx, orchestrator.Term{Epoch: term.GetEpoch(), Number: term.GetNumber()})
}

// refusal returns the status of a call that is refused as a whole.
func refusal(err error) error {
	if errors.Is(err, worker.ErrIncarnation) {
		return wire.Status(codes.FailedPrecondition, wire.ReasonIncarnation, err.Error())
	}
	if errors.Is(err, orchestrator.ErrRejected) { // the term is not credible
		return wire.Status(codes.InvalidArgument, "", err.Error())
	}
	return status.FromContextError(err).Err()
}

// laterThan returns the highest term that the worker has seen, if its epoch is
// higher than that of the call. Otherwise, and if the call has no term, it returns
// nil.
func (s *service) laterThan(called *orchestratorv1.Term) *orchestratorv1.Term {
	seen := s.worker.Seen()
	if called == nil || seen.Epoch <= called.GetEpoch() {
		return nil
	}
	return &orchestratorv1.Term{Epoch: seen.Epoch, Number: seen.Number}
}

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
	if s.worker.Incarnation() != r.GetIncarnation() {
		return nil, refusal(worker.ErrIncarnation)
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
	left := &room{s: s}
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
			if !left.take(task, string(c.GetReceipt())) {
				errs[i] = fmt.Errorf("%w: no room: the worker's report would exceed %d times WithMaxMessage", orchestrator.ErrRejected, wire.MaxPages-1)
				continue
			}
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

// errPending is the answer to a stop that was under way when its call was answered early.
var errPending = fmt.Errorf("%w, and other tasks do not wait for it", orchestrator.ErrStopping)

// errGoexit is the result of changes whose goroutine a function of the user ended.
var errGoexit = errors.New("a function of the worker ended its goroutine")

// applyPromptly applies changes. As soon as a change is done and only stops are left, it
// answers those stops with errPending. So a task that has stopped can start elsewhere
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
	longest := min(wire.MaxErrorText, s.maxMessage/2/max(len(errs), 1))
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
