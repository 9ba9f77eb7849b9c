package grpc

// Who may do what: decided before a message is read.

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

// authorize is called when the headers of a call are there, and nothing else yet. Of
// workers it can only see that they are some: the name is in the message.
func authorize(ctx context.Context, info *tap.Info) (context.Context, error) {
	switch info.FullMethodName {
	case orchestratorv1.Worker_Report_FullMethodName,
		orchestratorv1.Worker_Apply_FullMethodName:
		return ctx, mayCommand(ctx)
	case orchestratorv1.Manager_Register_FullMethodName,
		orchestratorv1.Manager_Heartbeat_FullMethodName,
		orchestratorv1.Manager_Complete_FullMethodName,
		orchestratorv1.Manager_Leave_FullMethodName:
		return ctx, allow(ctx, "a manager's books are written by workers", func(p party) bool { return p.role == roleWorker })
	}
	return ctx, allow(ctx, "", func(party) bool { return true })
}

// mayCommand returns a status error where who made a call is no manager.
func mayCommand(ctx context.Context) error {
	return allow(ctx, "only a manager commands workers", func(p party) bool { return p.role == roleManager })
}

// maySpeakFor returns a status error where who made a call is not the worker of
// that name.
func maySpeakFor(ctx context.Context, name string) error {
	want := party{role: roleWorker, name: name}
	return allow(ctx, "only "+want.String()+" may say this", func(p party) bool { return p == want })
}

// allow returns a status error where who made a call is nobody of whom ok is true.
// Without TLS everybody is.
func allow(ctx context.Context, rule string, ok func(party) bool) error {
	from, _ := peer.FromContext(ctx)
	if from == nil {
		return status.Error(codes.Unauthenticated, "a call from nowhere")
	}
	found, known := from.AuthInfo.(*security)
	switch {
	case !known:
		return status.Error(codes.Unauthenticated, "a call over a connection of another kind")
	case found.plaintext:
		return nil
	case found.refusal != nil:
		return status.Error(codes.Unauthenticated, found.refusal.Error())
	case !slices.ContainsFunc(found.parties, ok):
		err := status.Errorf(codes.PermissionDenied, "%v: %s, and it is that of %s", ErrCertificate, rule, describe(found.parties))
		found.complaints.logAddr(from.Addr, err)
		return err
	}
	return nil
}
