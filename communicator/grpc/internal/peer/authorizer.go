package peer

// The authorization of calls, before a message is read, and the log of refusals.

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/loglimit"
)

// authorize is called when only the headers of a call have arrived. It checks the
// role of the caller. The name of a worker is in the message, and is checked later.
func authorize(ctx context.Context, info *tap.Info) (context.Context, error) {
	switch info.FullMethodName {
	case orchestratorv1.Worker_Report_FullMethodName,
		orchestratorv1.Worker_Apply_FullMethodName:
		return ctx, MayCommand(ctx)
	case orchestratorv1.Manager_Register_FullMethodName,
		orchestratorv1.Manager_Heartbeat_FullMethodName,
		orchestratorv1.Manager_Complete_FullMethodName,
		orchestratorv1.Manager_Leave_FullMethodName:
		return ctx, allow(ctx, "only workers may call this", func(p identity.Principal) bool { return p.Role == identity.RoleWorker })
	}
	return ctx, allow(ctx, "", func(identity.Principal) bool { return true })
}

// MayCommand returns a status error if the caller is not a manager.
func MayCommand(ctx context.Context) error {
	return allow(ctx, "only a manager may call this", func(p identity.Principal) bool { return p.Role == identity.RoleManager })
}

// MaySpeakFor returns a status error if the caller is not the worker of that name.
func MaySpeakFor(ctx context.Context, name string) error {
	want := identity.Principal{Role: identity.RoleWorker, Name: name}
	return allow(ctx, "only "+want.String()+" may call this", func(p identity.Principal) bool { return p == want })
}

// allow returns a status error unless ok is true for one of the caller's identities.
// Without TLS every call is allowed.
func allow(ctx context.Context, rule string, ok func(identity.Principal) bool) error {
	from, _ := peer.FromContext(ctx)
	if from == nil {
		return status.Error(codes.Unauthenticated, "call without a peer")
	}
	found, known := from.AuthInfo.(*Security)
	switch {
	case !known:
		return status.Error(codes.Unauthenticated, "connection has no known credentials")
	case found.Plaintext:
		return nil
	case found.refusal != nil:
		return status.Error(codes.Unauthenticated, found.refusal.Error())
	case !slices.ContainsFunc(found.principals, ok):
		err := status.Errorf(codes.PermissionDenied, "%v: %s, and it identifies %s", ErrCertificate, rule, identity.Describe(found.principals))
		found.refusals.log(from.Addr, err)
		return err
	}
	return nil
}

// refusalLog logs refused connections and calls, at most one a second, so that
// unauthenticated clients cannot make the log grow quickly.
type refusalLog struct {
	logger *slog.Logger
	limit  loglimit.Limiter
}

func newRefusalLog(l *slog.Logger) *refusalLog {
	return &refusalLog{logger: l, limit: loglimit.Limiter{Every: time.Second}}
}

// log logs that a connection or a call from an address was refused.
func (l *refusalLog) log(from net.Addr, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return // the peer closed the connection, as load balancers do
	}
	if omitted, ok := l.limit.Take(time.Now(), ""); ok {
		l.logger.Warn("connection refused", "peer", from.String(), "err", err, loglimit.Omitted(omitted))
	}
}
