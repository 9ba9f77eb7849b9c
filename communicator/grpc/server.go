package grpc

// The Server: how a worker's service is served. Its methods are in server_report.go
// and server_apply.go.

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Server serves orchestrator.v1.Worker for a [worker.Worker]: it carries out the
// calls of a [Communicator]. It neither registers the worker nor keeps a lease
// alive; a [Member] does, with a Server of its own.
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
