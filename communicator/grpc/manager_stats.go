package grpc

// What a manager counts for monitoring; package stats shows it to Prometheus.

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// refusals counts the calls that were refused, by code.
type refusals [codes.Unauthenticated + 1]atomic.Uint64

// count is an interceptor of a server.
func (r *refusals) count(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	resp, err := handle(ctx, req)
	if code := status.Code(err); int(code) < len(r) {
		r[code].Add(1)
	}
	return resp, err
}

// MemberCount returns how many workers are members. It costs less than
// [Manager.Members].
func (m *Manager) MemberCount() int { return m.ledger.catalog.memberCount() }

// RefusedCalls returns how many calls of workers were refused since the manager was
// made, by cause: the name of a gRPC code, such as AlreadyExists for a name that is
// taken. The proto says what each means. Every cause is there from the start. A call
// that its worker gave up does not count, and neither does one that was turned away
// for its certificate before it was read. The map is the caller's.
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
