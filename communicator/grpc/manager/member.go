package manager

// The Member: the membership of a worker, from Run to Close. A single session, from
// registering to leaving, is in session.go. Package membership runs one session after
// the other.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/f8949c05/orchestrator"
	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
	"github.com/f8949c05/orchestrator/communicator/grpc/manager/internal/membership"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
)

// Member makes a [worker.Worker] a member of a manager. It serves the manager's
// calls, registers under a name with a lease, renews the lease, and reports
// completed tasks.
//
// If the lease is not renewed, the worker stops all its tasks before the lease can
// have expired (W5). The member then leaves, and registers again as another
// incarnation, which no call meant for the previous one can reach. A restarted
// manager knows its members: they continue and stop nothing.
//
// [worker.WithLease] describes what is guaranteed, and what no clock can guarantee.
// Tasks have no tokens; package replica provides them.
type Member struct {
	manager  string
	name     string
	worker   *worker.Worker[string]
	settings option.Member
	log      *slog.Logger

	runner *membership.Runner

	// Set by Run:
	address         string // at which the manager calls the worker
	conn            *grpc.ClientConn
	client          orchestratorv1.ManagerClient
	leftIncarnation uint64 // a stopped incarnation that may still be a member; 0: none
}

// NewMember returns a Member for w, which must have a lease ([worker.WithLease])
// that the manager grants. From then on, only the Member may add tasks to w, remove
// tasks from w, and close w.
//
// managerAddress is the manager's host:port. name is the worker's name at the
// manager. No two workers may have the same name at the same time. With TLS, it must
// be the name in the certificate. Errors wrap [orchestrator.ErrInvalid].
func NewMember(managerAddress, name string, w *worker.Worker[string], opts ...MemberOption) (*Member, error) {
	if w == nil {
		return nil, fmt.Errorf("new member: %w: the worker is nil", orchestrator.ErrInvalid)
	}
	s, err := newMemberSettings(managerAddress, name, w.Lease(), opts)
	if err != nil {
		return nil, fmt.Errorf("new member: %w", err)
	}
	runner := membership.New(w, name, s.Logger)
	runner.Drain = s.Drain
	return &Member{manager: managerAddress, name: name, worker: w, settings: s, log: s.Logger, runner: runner}, nil
}

// Run registers and serves until ctx ends. Then it drains the member: its tasks move to other
// workers, for at most the time of [WithDrain], as with [Member.Close]. It stops those that are
// left, leaves, and closes the worker. It returns the cause of ctx, with the reason if tasks were
// stopped that had not moved, or nil after Close. It may be called once.
//
// It serves on l, which it closes. Whenever the membership is lost, it registers again. It keeps the
// lease until all tasks have stopped, also for those that ignore their context: the log names them when
// their time is over ([worker.WithLease]), and only the end of the process ends them: a second signal
// that the program does not catch, of which a shell tells as code 143 for SIGTERM. No code of its own
// follows, because Run waits.
//
// Run answers the manager's calls until the manager knows that the worker has left.
// Before leaving, it reports completed tasks, for at most a second, and then removes
// the record ([worker.WithRecord]). If the manager is away during that time, it
// never learns of them, and these tasks run again.
//
// If the manager is away or refuses the worker, Run tries again as long as ctx
// lives, with growing pauses of up to a second. It logs a new reason at once, and one that
// stays once a minute. A name in use is such a reason, because the lease of its holder may
// expire. Run fails if another attempt cannot help. The error wraps
// [orchestrator.ErrInvalid] if the manager rejects the request, such as the length of the
// lease, or if the worker's own address is unknown ([WithAdvertise]). Run also fails with an
// error of serving on l.
func (m *Member) Run(ctx context.Context, l net.Listener) error {
	if peer.Absent(l) {
		return fmt.Errorf("%w: Member.Run: the net.Listener is nil", orchestrator.ErrInvalid)
	}
	defer func() { _ = l.Close() }() // closed already if serving has begun
	return m.runner.Run(ctx, func(ctx context.Context) error { return m.serve(ctx, l) })
}

// serve connects to the manager and runs the sessions, beside what they share: the
// server and the reports of completed tasks.
func (m *Member) serve(ctx context.Context, l net.Listener) (err error) {
	if m.address, err = advertised(l.Addr(), m.settings.Advertise); err != nil {
		return err
	}
	m.conn, err = m.settings.Dial(m.manager, identity.Principal{Role: identity.RoleManager}, m.settings.Dialing...)
	if err != nil {
		return err
	}
	defer func() { _ = m.conn.Close() }() // fails only if it is closed already
	m.client = orchestratorv1.NewManagerClient(m.conn)
	var calls callCounter
	server, err := communicator.NewServer(m.worker, memberServer{m.settings.Settings, &calls})
	if err != nil {
		return err
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	beyond := context.WithoutCancel(ctx) // lives until everything has stopped
	serving, unserve := context.WithCancel(beyond)
	defer unserve()
	var served sync.WaitGroup
	served.Go(func() {
		if err := server.Serve(serving, l); serving.Err() == nil {
			cancel(err)
		}
	})
	reporter := newCompletionReporter(m.worker, m.name, m.log, m.client)
	reporting, unreport := context.WithCancel(beyond)
	var reported sync.WaitGroup
	reported.Go(func() { reporter.run(reporting) })
	err = m.runner.Sessions(ctx, membership.Config{
		Open: m.open,
		Final: func(err error) bool {
			return errors.Is(err, orchestrator.ErrInvalid) || errors.Is(err, worker.ErrClosed)
		},
		Stopped: func(ctx context.Context) {
			// The manager must get the answers under way before Leave, such as the one that
			// the last task that it moves has stopped.
			calls.awaitNone()
			unreport()
			reported.Wait()
			reporter.finish(ctx)
		},
	})
	// The manager knows that the worker has left and makes no more calls, so the
	// listener can close.
	unserve()
	served.Wait()
	return err
}

// Close drains the member: it asks the manager to move its tasks, and waits until
// none is left or ctx ends. It then stops the remaining tasks, leaves, and returns
// when Run has returned.
//
// The last worker does not wait. If there is no other member, or all others drain
// too, no worker can take the tasks, and the manager's answers say so. Close then
// stops them immediately, logs that at Info, and returns nil.
//
// An error means that tasks were stopped here before they had moved. It wraps the
// cause: that of ctx, that of Run's context, or [worker.ErrLeaseLost]. Tasks that
// were stopped because an earlier lease was lost do not count. Neither do completed
// tasks, although they may run again if the manager is away (see Run).
//
// Further calls wait for the same end and return the same result. If Run was not
// called yet, Close closes the member immediately, and Run fails.
func (m *Member) Close(ctx context.Context) error {
	return m.runner.Close(ctx)
}

// memberServer is the option of a member's server.
type memberServer struct {
	settings peer.Settings
	calls    *callCounter
}

// ApplyServer gives the server the member's settings, and makes it count its calls.
func (o memberServer) ApplyServer(s *option.Server) {
	s.Settings = o.settings
	s.Serving = append(s.Serving, grpc.ChainUnaryInterceptor(o.calls.count))
}

// callCounter counts the calls that a server has not answered yet. An Apply that was
// answered with pending stops still counts, until the next Apply asks for them.
type callCounter struct {
	mu      sync.Mutex
	n       int
	pending bool          // the last Apply was answered with pending stops, and still counts
	ended   chan struct{} // closed when n next becomes 0; nil: nothing waits
}

// count is an interceptor that counts a call.
func (c *callCounter) count(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	c.mu.Lock()
	c.n++
	if _, ok := req.(*orchestratorv1.ApplyRequest); ok && c.pending {
		c.pending = false
		c.n--
	}
	c.mu.Unlock()
	var resp any
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if r, ok := resp.(*orchestratorv1.ApplyResponse); ok && !c.pending && slices.ContainsFunc(r.GetResults(), (*orchestratorv1.Result).GetPending) {
			c.pending = true
			return
		}
		c.n--
		if c.n == 0 && c.ended != nil {
			close(c.ended)
			c.ended = nil
		}
	}()
	var err error
	resp, err = handle(ctx, req)
	return resp, err
}

// awaitNone waits until no call counts, for at most peer.Grace. The server continues
// to serve.
func (c *callCounter) awaitNone() {
	c.mu.Lock()
	ended := make(chan struct{})
	if c.n == 0 {
		close(ended)
	} else {
		c.ended = ended
	}
	c.mu.Unlock()
	select {
	case <-ended:
	case <-time.After(peer.Grace):
	}
}
