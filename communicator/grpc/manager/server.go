package manager

// The gRPC service of a manager: the calls of its workers.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/f8949c05/orchestrator"
	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/loglimit"
)

const (
	// maxRequest is the largest request of a worker in bytes, and maxCalls the
	// number of its calls at the same time on one connection.
	maxRequest = 256 << 10
	maxCalls   = 8
	// longestRefusal is the longest text of a refusal in bytes.
	longestRefusal = 4096
)

// managerServer implements the Manager gRPC service.
type managerServer struct {
	orchestratorv1.UnimplementedManagerServer
	*Manager
	dialback   *dialback
	refusals   loglimit.Limiter
	completing sync.Map // names of workers with a Complete under way
}

var _ orchestratorv1.ManagerServer = (*managerServer)(nil)

// Register makes a worker a member. The manager calls the worker, saves the
// membership, informs the orchestrator, and answers, in this order. A member that
// can be reached is not called again: if an answer came too late to count, the next
// one follows at once.
func (s *managerServer) Register(ctx context.Context, req *orchestratorv1.RegisterRequest) (*orchestratorv1.RegisterResponse, error) {
	asked := state.Membership{
		WorkerID: state.WorkerID{Name: string(req.GetWorker()), Incarnation: req.GetIncarnation()},
		Address:  req.GetAddress(), Lease: req.GetLease().AsDuration(), Draining: req.GetDraining(),
		Settings: workerSettings(req.GetSettings()),
	}
	if err := peer.MaySpeakFor(ctx, asked.Name); err != nil {
		return nil, err
	}
	if err := asked.Check(s.settings.Rules); err != nil {
		return nil, s.refuse(ctx, "register", asked.WorkerID, err)
	}
	// Do not call a worker that would be refused.
	var reached bool
	err := s.committer.apply(func(st *state.State, now time.Time) error {
		reached = st.Reached(asked)
		return st.MayRegister(now, asked.WorkerID)
	})
	if err == nil && !reached {
		err = s.dialback.probe(ctx, communicator.WorkerID(asked.WorkerID), asked.Address, s.term())
	}
	if err == nil {
		err = s.committer.commit(ctx, func(st *state.State, now time.Time) error {
			if err := st.Register(now, asked); err != nil {
				return err
			}
			asked.Lease = st.Members[asked.Name].Lease // as granted
			return nil
		})
		s.committer.nudge()
	}
	if err != nil {
		return nil, s.refuse(ctx, "register", asked.WorkerID, err)
	}
	return &orchestratorv1.RegisterResponse{
		Term: s.term(), Lease: durationpb.New(asked.Lease), Heartbeat: durationpb.New(heartbeatEvery(asked.Lease)),
	}, nil
}

// Heartbeat renews a lease.
func (s *managerServer) Heartbeat(ctx context.Context, req *orchestratorv1.HeartbeatRequest) (*orchestratorv1.HeartbeatResponse, error) {
	w := state.WorkerID{Name: string(req.GetWorker()), Incarnation: req.GetIncarnation()}
	if err := peer.MaySpeakFor(ctx, w.Name); err != nil {
		return nil, err
	}
	var lease time.Duration
	err := w.Check()
	if err == nil {
		lease, err = s.committer.heartbeat(ctx, w, req.GetDraining())
	}
	if err != nil {
		return nil, s.refuse(ctx, "heartbeat", w, err)
	}
	return &orchestratorv1.HeartbeatResponse{
		Term: s.term(), Lease: durationpb.New(lease), Heartbeat: durationpb.New(heartbeatEvery(lease)),
		Alone: req.GetDraining() && s.committer.alone(w),
	}, nil
}

// Leave ends a membership.
func (s *managerServer) Leave(ctx context.Context, req *orchestratorv1.LeaveRequest) (*orchestratorv1.LeaveResponse, error) {
	w := state.WorkerID{Name: string(req.GetWorker()), Incarnation: req.GetIncarnation()}
	if err := peer.MaySpeakFor(ctx, w.Name); err != nil {
		return nil, err
	}
	err := w.Check()
	if err == nil {
		err = s.committer.commit(ctx, func(st *state.State, _ time.Time) error {
			st.Leave(w)
			return nil
		})
	}
	if err != nil {
		return nil, s.refuse(ctx, "leave", w, err)
	}
	return &orchestratorv1.LeaveResponse{}, nil
}

// errCompleting refuses a call of Complete while another one of the worker is under way,
// so that the cost is bounded for each worker.
var errCompleting = errors.New("another call of Complete for this worker is under way")

// Complete removes completed and failed tasks from the expected ones.
func (s *managerServer) Complete(ctx context.Context, req *orchestratorv1.CompleteRequest) (*orchestratorv1.CompleteResponse, error) {
	w := state.WorkerID{Name: string(req.GetWorker())}
	if err := peer.MaySpeakFor(ctx, w.Name); err != nil {
		return nil, err
	}
	err := identity.CheckName("worker", w.Name)
	if err == nil && len(req.GetCompletions()) > wire.MaxCompletions { // wire.RequestCodec reads at most one more
		err = fmt.Errorf("%w: too many completions in one call: at most %d", orchestrator.ErrInvalid, wire.MaxCompletions)
	}
	if err == nil {
		if _, busy := s.completing.LoadOrStore(w.Name, true); busy {
			err = errCompleting
		} else {
			defer s.completing.Delete(w.Name)
		}
	}
	outcomes := make([]orchestratorv1.CompletionOutcome, len(req.GetCompletions()))
	if err == nil {
		// Check the receipts before taking the lock: all heartbeats need it.
		all := make([]state.Conclusion, len(req.GetCompletions()))
		for i, done := range req.GetCompletions() {
			all[i] = conclusionOfCompletion(s.committer.key, w.Name, done)
		}
		err = s.committer.commit(ctx, func(st *state.State, now time.Time) error {
			for i, e := range all {
				outcomes[i] = orchestratorv1.CompletionOutcome(st.Conclude(now, w.Name, e))
			}
			return nil
		})
	}
	if err != nil {
		return nil, s.refuse(ctx, "complete", w, err)
	}
	s.logRefused(w.Name, req.GetCompletions(), outcomes)
	return &orchestratorv1.CompleteResponse{Outcomes: outcomes}, nil
}

func conclusionOfCompletion(key state.ReceiptKey, worker string, c *orchestratorv1.Completion) state.Conclusion {
	e := state.Conclusion{Task: string(c.GetTask()), Version: c.GetContentVersion(), Failure: keptFailure(wire.FailureFrom(c.GetFailure()))}
	e.Proven = key.Issued(state.ReceiptOf(c.GetReceipt()), worker, e.Task, e.Version)
	return e
}

// logRefused logs the first of the refused completions, at Warn at most once a
// second.
func (s *managerServer) logRefused(worker string, all []*orchestratorv1.Completion, outcomes []orchestratorv1.CompletionOutcome) {
	first := slices.Index(outcomes, orchestratorv1.CompletionOutcome_COMPLETION_OUTCOME_REFUSED)
	if first < 0 {
		return
	}
	level := slog.LevelDebug
	omitted, ok := s.refusals.Take(time.Now(), "")
	if ok {
		level = slog.LevelWarn
	}
	s.log.Log(context.Background(), level, "completion refused, worker was not given this content",
		"worker", worker, "task", wire.Truncate(string(all[first].GetTask()), identity.MaxName), "version", all[first].GetContentVersion(),
		"in the call", len(all), loglimit.Omitted(omitted))
}

// term returns a term that has at least begun, so that the worker accepts nothing
// from earlier managers.
func (s *managerServer) term() *orchestratorv1.Term {
	last := s.orch.LastPlan().Stats.Term
	return &orchestratorv1.Term{Epoch: max(last.Epoch, s.committer.epoch), Number: last.Number}
}

// refuse logs why a worker's call is refused, at Warn at most once a second, and
// returns the error as a status.
func (s *managerServer) refuse(ctx context.Context, what string, w state.WorkerID, err error) error {
	code := codeOf(err)
	level, omitted := slog.LevelDebug, 0
	if !errors.Is(err, state.ErrLeft) && !errors.Is(err, errGivenUp) { // these are only late, so log them at Debug
		var ok bool
		if omitted, ok = s.refusals.Take(time.Now(), ""); ok {
			level = slog.LevelWarn
		}
	}
	s.log.Log(ctx, level, "worker's call refused", "call", what, "worker", w.Name, "incarnation", w.Incarnation,
		"code", code, "err", err, loglimit.Omitted(omitted))
	text := err.Error()
	if errors.Is(err, errProbe) && !errors.Is(err, errProbed) && !errors.Is(err, errTooMany) {
		text = unreachableAnswer
	}
	if code == codes.InvalidArgument { // the code says the same
		text = strings.TrimPrefix(text, orchestrator.ErrInvalid.Error()+": ")
	}
	return wire.Status(code, reasonFor(err), wire.Truncate(text, longestRefusal))
}

// reasonFor returns the reason of an error that shares its code with another.
func reasonFor(err error) string {
	switch {
	case errors.Is(err, state.ErrMembershipOver):
		return wire.ReasonMembershipOver
	case errors.Is(err, state.ErrUnreachable):
		return wire.ReasonUnreachable
	}
	return ""
}

// unreachableAnswer is the same for every address at which the worker that registers
// does not answer.
const unreachableAnswer = "manager cannot call the worker at this address; see the manager's log"

// codeOf returns the code of an error; the proto file defines what each code means.
func codeOf(err error) codes.Code {
	switch {
	case errors.Is(err, errProbe), errors.Is(err, errCompleting), errors.Is(err, ErrStopped):
		return codes.Unavailable
	case errors.Is(err, orchestrator.ErrInvalid):
		return codes.InvalidArgument
	case errors.Is(err, state.ErrNameTaken):
		return codes.AlreadyExists
	case errors.Is(err, state.ErrMembershipOver), errors.Is(err, state.ErrUnreachable):
		return codes.FailedPrecondition
	case errors.Is(err, state.ErrNotMember):
		return codes.NotFound
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Code()
	}
	return codes.Internal
}

// refusals counts refused calls by code.
type refusals [codes.Unauthenticated + 1]atomic.Uint64

// count is a server interceptor.
func (r *refusals) count(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	resp, err := handle(ctx, req)
	if code := status.Code(err); int(code) < len(r) {
		r[code].Add(1)
	}
	return resp, err
}

// RefusedCalls returns how many calls of workers were refused since New, by
// the name of the gRPC code, such as AlreadyExists for a name in use. The proto file
// defines what each code means. Every code is present from the start. Calls
// cancelled by the worker do not count, and neither do calls that were refused for
// the certificate before they were read. The caller owns the map.
func (m *Manager) RefusedCalls() map[string]uint64 {
	refused := make(map[string]uint64)
	for _, code := range []codes.Code{
		codes.AlreadyExists, codes.FailedPrecondition, codes.Internal, codes.InvalidArgument, codes.NotFound,
		codes.PermissionDenied, codes.ResourceExhausted, codes.Unauthenticated, codes.Unavailable,
	} {
		refused[code.String()] = m.refused[code].Load()
	}
	return refused
}
