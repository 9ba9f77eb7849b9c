package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/membership"
	"github.com/f8949c05/orchestrator/worker"
)

// Member makes a [worker.Worker] a member of the cluster. It joins under a name and
// a lease. It claims the tasks that the leader assigns, and runs them on the worker
// with the content from the registry. It passes changes of the content on to the
// worker (W7).
//
// A claim is one transaction that compares the assignment and the membership. A task
// starts only after its claim was made, and the claim is deleted only after the task
// has stopped. If keepalives fail, the worker stops all tasks on its own before the
// lease can expire (W5). The member then revokes the lease, and joins again as
// another incarnation.
//
// [worker.WithLease] documents what is guaranteed, and what only tokens guarantee. A
// task's token is the revision of its claim, and its scope is the id of the etcd
// cluster.
type Member struct {
	preflight
	memberOptions
	name   string
	worker *worker.Worker[string]
	runner *membership.Runner

	// Used by Run only:
	unrevoked unrevokedLease
	ever      bool // has been a member
}

// NewMember returns a Member for w, which must have a lease ([worker.WithLease]) of
// whole seconds. From then on only the Member may add tasks to w, remove them or
// close w.
//
// The name identifies the worker in the cluster, and only one member may have it at
// a time. Errors wrap [orchestrator.ErrInvalid].
func NewMember(client *clientv3.Client, name string, w *worker.Worker[string], opts ...MemberOption) (*Member, error) {
	if w == nil {
		return nil, fmt.Errorf("new member: %w: the worker is nil", orchestrator.ErrInvalid)
	}
	s, err := newMemberSettings(name, w.Lease(), opts)
	if err != nil {
		return nil, fmt.Errorf("new member: %w", err)
	}
	runner := membership.New(w, name, s.logger)
	runner.Drain = s.drain
	return &Member{
		preflight: preflight{settings: s.settings, client: client}, memberOptions: s.memberOptions,
		name: name, worker: w, runner: runner,
	}, nil
}

// Run joins the cluster and serves until ctx ends. Then it drains the member: its tasks move to
// other workers, for at most the time of [WithDrain], as with [Member.Close]. It stops those that
// are left, closes the worker, and revokes the lease. It returns the cause of ctx, with the reason if
// tasks were stopped that had not moved, or nil after Close. It may be called once.
//
// Whenever the membership is lost, Run joins again. It keeps the lease until all tasks have stopped,
// also for those that ignore their context: the log names them when their time is over
// ([worker.WithLease]), and only the end of the process ends them: a second signal that the program
// does not catch, of which a shell tells as code 143 for SIGTERM. No code of its own follows, because
// Run waits.
//
// If the name is taken, Run waits for as long as the lease of the other member can
// last, because that may be a dead predecessor. Then it fails with [ErrNameTaken].
// It also fails with [ErrForeignPrefix], with [ErrLeaseTooShort], and if etcd
// rejects the client's user before the worker was a member. Run logs every other
// error of etcd and retries until ctx ends. So etcd may start after its workers.
func (m *Member) Run(ctx context.Context) error {
	return m.runner.Run(ctx, func(ctx context.Context) error {
		return m.runner.Sessions(ctx, membership.Config{
			Open: m.open, Final: m.final, Lost: "membership lost, joining again",
		})
	})
}

// final reports whether Run cannot join again after err.
func (m *Member) final(err error) bool {
	return !m.ever && permanent(err) || isAny(err, ErrNameTaken, ErrLeaseTooShort, ErrForeignPrefix, worker.ErrClosed)
}

// Close drains the member: it claims no more tasks, asks the leader to move its
// tasks, and waits until none is left, or ctx ends. Then it stops the remaining
// tasks, leaves, and returns when Run has.
//
// The last worker does not wait: if it is the only member, or every other member
// drains too, no worker can take its tasks. Close then finishes the pinned tasks
// that run, stops the others, logs so at Info, and returns nil.
//
// An error means that tasks were stopped here before they had moved. It wraps the
// reason: the cause of ctx, the cause of Run's context, or [worker.ErrLeaseLost].
// Tasks that an earlier lost lease stopped do not count.
//
// Further calls wait for the same end and return the same result. If Run was not
// called yet, Close closes the worker immediately, and Run fails.
func (m *Member) Close(ctx context.Context) error {
	return m.runner.Close(ctx)
}
