package manager

// R2: registrations that are accepted, and those that are refused.

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/f8949c05/orchestrator"
	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/testca"
	"github.com/f8949c05/orchestrator/worker"
)

func TestR2_ARegisteredWorkerGetsItsShare(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		m.put("a", "b", "c", "d")
		one := n.newWorker("one")
		resp, err := one.manager.Register(t.Context(), one.asks())
		require.NoError(t, err)
		require.Equal(t, m.committer.epoch, resp.GetTerm().GetEpoch())
		n.pass(time.Second)
		require.Equal(t, map[string]int{"one": 4}, n.spread())

		two := n.registerWorker("two")
		n.pass(time.Second)
		require.Equal(t, map[string]int{"one": 2, "two": 2}, n.spread())
		require.Equal(t, 6, n.starts(), "nothing else moves")
		now := time.Now()
		require.Equal(t, []MemberState{
			{WorkerID: one.as(), Address: "one.test:7000", Lease: aLease, Heard: now.Add(-2 * time.Second), Until: now.Add(aLease - 2*time.Second)},
			{WorkerID: two.as(), Address: "two.test:7000", Lease: aLease, Heard: now.Add(-time.Second), Until: now.Add(aLease - time.Second)},
		}, m.Members())
		require.Len(t, m.Tasks(one.as()), 2)

		beat, err := one.manager.Heartbeat(t.Context(), &orchestratorv1.HeartbeatRequest{Worker: []byte("one"), Incarnation: one.Incarnation()})
		require.NoError(t, err)
		require.Equal(t, m.committer.epoch, beat.GetTerm().GetEpoch())
		require.Equal(t, m.LastPlan().Stats.Term.Number, beat.GetTerm().GetNumber())
	})
}

func TestR2_ANameThatIsTaken(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, _ *runningManager) {
		one := n.registerWorker("one")
		other := n.newWorker("one")
		err := other.register()
		require.Equal(t, codes.AlreadyExists, code(err))
		require.ErrorContains(t, err, `another process is worker "one", at one.test:7000`)
		require.Equal(t, codes.NotFound, code(other.beat()))
		require.NoError(t, one.beat())
		n.pass(aLease)
		require.NoError(t, other.register())
		require.Equal(t, codes.NotFound, code(one.beat()))
	})
}

func TestR2_ALeaseThatIsNotGranted(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, _ *runningManager) {
		h := n.newWorker("one")
		asks := h.asks()
		asks.Lease = durationpb.New(900 * time.Millisecond)
		_, err := h.manager.Register(t.Context(), asks)
		require.Equal(t, codes.InvalidArgument, code(err))
		require.Equal(t, `worker "one" wants a lease of 900ms (worker.WithLease): the manager grants 1s to 1m0s (WithLeases)`,
			status.Convert(err).Message(), "without the text of ErrInvalid")
	})
}

// A member changes its settings by registering again. Settings that no worker can have are
// refused.
func TestP10_SettingsOfMembers(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		one, two := n.registerWorker("one"), n.newWorker("two")
		asks := two.asks()
		asks.Settings = &orchestratorv1.WorkerSettings{Zone: "east", Labels: []string{"gpu"}, Share: 2, MaxTasks: 9}
		_, err := two.manager.Register(t.Context(), asks)
		require.NoError(t, err)
		n.pass(time.Second, one, two)
		require.Zero(t, m.Members()[0].Settings)
		require.Equal(t, orchestrator.WorkerSettings{Zone: "east", Labels: []string{"gpu"}, Share: 2, MaxTasks: 9}, m.Members()[1].Settings)

		asks.Settings = &orchestratorv1.WorkerSettings{Labels: []string{"ssd"}}
		_, err = two.manager.Register(t.Context(), asks)
		require.NoError(t, err)
		n.pass(time.Second, one, two)
		require.Equal(t, orchestrator.WorkerSettings{Labels: []string{"ssd"}}, m.Members()[1].Settings)
		require.Contains(t, n.logs.String(), "worker has other settings")

		for text, bad := range map[string]*orchestratorv1.WorkerSettings{
			`desc = Labels has the label ""`: {Labels: []string{""}},
			`begin with`:                     {Labels: []string{"!gpu"}},
			`65 labels`:                      {Labels: slices.Repeat([]string{"a"}, 100)},
			`Zone`:                           {Zone: strings.Repeat("x", 257)},
			`Share is -1`:                    {Share: -1},
			`MaxTasks is -2147483648`:        {MaxTasks: -1 << 31},
		} {
			asks.Settings = bad
			_, err = two.manager.Register(t.Context(), asks)
			require.Equal(t, codes.InvalidArgument, code(err))
			require.ErrorContains(t, err, text)
		}
		n.pass(time.Second, one, two)
		require.Equal(t, orchestrator.WorkerSettings{Labels: []string{"ssd"}}, m.Members()[1].Settings, "unchanged")

		// The next manager reads them.
		m.close()
		m = n.open(m.store)
		require.Equal(t, orchestrator.WorkerSettings{Labels: []string{"ssd"}}, m.Members()[1].Settings)
	})
}

// A wrong address, a firewall or another process is reported immediately, at both
// ends.
func TestR2_AnUnreachableWorkerDoesNotRegister(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		one := n.newWorker("one")
		asks := one.asks()
		asks.Address = "elsewhere.test:7000"
		_, err := one.manager.Register(t.Context(), asks)
		require.Equal(t, codes.Unavailable, code(err))
		require.Equal(t, unreachableAnswer, status.Convert(err).Message())
		require.Contains(t, n.logs.String(), "no listener at elsewhere.test:7000")

		two := n.newWorker("two")
		asks.Address = two.address
		_, err = one.manager.Register(t.Context(), asks)
		require.Equal(t, codes.Unavailable, code(err))
		require.Equal(t, unreachableAnswer, status.Convert(err).Message(), "the same for every server")
		require.Contains(t, n.logs.String(), "two.test:7000")
		require.Contains(t, n.logs.String(), worker.ErrIncarnation.Error())
		require.Empty(t, m.Members())
		values, err := m.store.Load()
		require.NoError(t, err)
		require.NotContains(t, values, "member/one")

		// A worker that does not answer delays no other.
		release := one.gate.Hold(&one.gate.All)
		registered := make(chan error, 1)
		begun := time.Now()
		go func() { registered <- one.register() }()
		synctest.Wait()
		require.NoError(t, two.register())
		require.NoError(t, two.beat())
		require.Equal(t, begun, time.Now())
		err = <-registered
		require.Equal(t, codes.Unavailable, code(err))
		require.Equal(t, probeTime, time.Since(begun))
		release()
		require.NoError(t, one.register())
		synctest.Wait()
		require.Contains(t, n.logs.String(), "no listener at elsewhere.test:7000")
	})
}

// The manager's call may take so long that its answer comes too late for a short
// lease. Without an immediate answer to the next Register, this would repeat
// forever.
func TestR2_ASecondRegisterIsAnsweredImmediately(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, _ *runningManager) {
		one := n.registerWorker("one")
		release := one.gate.Hold(&one.gate.All)
		defer release()
		begun := time.Now()
		require.NoError(t, one.register())
		require.Equal(t, begun, time.Now())

		moved := one.asks()
		moved.Address = "elsewhere.test:7000"
		_, err := one.manager.Register(t.Context(), moved)
		require.Equal(t, codes.Unavailable, code(err), "the new address was never called")
		n.pass(unreachable/2, one) // the calls of the terms have failed
		require.Equal(t, codes.Unavailable, code(one.register()))
	})
}

func TestR2_AnUnreachableMemberExpires(t *testing.T) {
	inTestNet(t, func(t *testing.T, n *testNet) {
		m := n.open(NewMemoryStore(), WithUnreachable(20*time.Second))
		m.put("a", "b")
		workers := n.registerWorkers("one", "two")
		n.pass(time.Second, workers...)
		workers[1].unserve()
		n.pass(20*time.Second, workers...)
		require.Equal(t, map[string]int{"one": 1, "two": 1}, n.spread())
		n.pass(2*time.Second, workers[0])
		err := workers[1].beat()
		require.Equal(t, codes.FailedPrecondition, code(err))
		require.ErrorContains(t, err, "cannot be called")
		require.NoError(t, workers[1].Close(t.Context())) // it stops before its lease expires
		n.pass(aLease, workers[0])
		require.Equal(t, map[string]int{"one": 2}, n.spread())
	})
}

func TestR2_AMemberThatIsReachableAgainContinues(t *testing.T) {
	inTestNet(t, func(t *testing.T, n *testNet) {
		m := n.open(NewMemoryStore(), WithUnreachable(20*time.Second))
		m.put("a", "b")
		workers := n.registerWorkers("one", "two")
		n.pass(time.Second, workers...)
		workers[1].unserve()
		n.pass(20*time.Second, workers...)
		n.pass(2*time.Second, workers[0])
		require.Equal(t, codes.FailedPrecondition, code(workers[1].beat()))
		workers[1].serve()
		n.pass(3*time.Second, workers[0])
		n.pass(2*aLease, workers...)
		require.Equal(t, 2, n.starts())
		require.Zero(t, m.Members()[1].Failing)
	})
}

func TestR1_AnswersTellTheLeaseAndWhenToBeat(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, _ *runningManager) {
		one := n.newWorker("one")
		shorter := one.asks()
		shorter.Lease = durationpb.New(aLease / 2)
		for _, asks := range []*orchestratorv1.RegisterRequest{one.asks(), shorter} {
			registered, err := one.manager.Register(t.Context(), asks)
			require.NoError(t, err)
			require.Equal(t, aLease, registered.GetLease().AsDuration(), "the longest requested lease")
			require.Equal(t, aLease/12, registered.GetHeartbeat().AsDuration())
		}
		beaten, err := one.manager.Heartbeat(t.Context(), &orchestratorv1.HeartbeatRequest{Worker: []byte("one"), Incarnation: one.Incarnation()})
		require.NoError(t, err)
		require.Equal(t, aLease, beaten.GetLease().AsDuration())
		require.Equal(t, aLease/12, beaten.GetHeartbeat().AsDuration())
		require.NoError(t, one.leave())
		require.Equal(t, "MEMBERSHIP_OVER", wire.ReasonOf(one.register()))
		require.Empty(t, wire.ReasonOf(one.beat()), "one code, one meaning")
	})
}

// A worker can act only under the name in its certificate.
func TestR4_AWorkerSpeaksForItself(t *testing.T) {
	ca := testca.New(t, "ours")
	m, address := manage(t, with(t, ca.Manager(t)), probedWithin(time.Second))

	dial := func(opts ...communicator.Option) orchestratorv1.ManagerClient {
		conn, err := settingsOf(t, opts...).Dial(address, identity.Principal{Role: identity.RoleManager})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, conn.Close()) })
		return orchestratorv1.NewManagerClient(conn)
	}
	all := func(c orchestratorv1.ManagerClient, name string, s *servedWorker) []error {
		worker, incarnation := []byte(name), s.Incarnation()
		_, err1 := c.Register(t.Context(), &orchestratorv1.RegisterRequest{
			Worker: worker, Incarnation: incarnation, Address: s.addr, Lease: durationpb.New(aLease),
		}, grpc.WaitForReady(true))
		_, err2 := c.Heartbeat(t.Context(), &orchestratorv1.HeartbeatRequest{Worker: worker, Incarnation: incarnation})
		_, err3 := c.Complete(t.Context(), &orchestratorv1.CompleteRequest{Worker: worker})
		_, err4 := c.Leave(t.Context(), &orchestratorv1.LeaveRequest{Worker: worker, Incarnation: incarnation})
		return []error{err1, err2, err3, err4}
	}
	files := ca.Worker(t, "w1")
	site := serveWorker(t, with(t, files))
	client := dial(with(t, files))
	for _, err := range all(client, "w1", site) {
		require.NoError(t, err)
	}
	for _, err := range all(client, "w2", site) {
		require.Equal(t, codes.PermissionDenied, code(err))
		require.ErrorContains(t, err, "w2")
	}
	for _, err := range all(dial(with(t, ca.Manager(t))), "w1", site) {
		require.Equal(t, codes.PermissionDenied, code(err))
	}

	// A worker with another certificate cannot answer at its address.
	impostor := serveWorker(t, with(t, ca.Worker(t, "w2")))
	err := all(client, "w1", impostor)[0]
	require.Equal(t, codes.Unavailable, code(err))
	require.Equal(t, unreachableAnswer, status.Convert(err).Message())
	require.Empty(t, m.Members())
}

// A registering worker must report as a worker does. A longer answer is not read.
func TestR3_AReportOfMillionsOfTasksToAManager(t *testing.T) {
	var logs grpctest.Journal
	_, manager := manage(t, probedWithin(time.Second), communicator.WithLogger(slog.New(slog.NewTextHandler(&logs, nil))))
	conn := connect(t, manager, aManager)
	register := func(ctx context.Context, w communicator.WorkerID, address string) error {
		_, err := orchestratorv1.NewManagerClient(conn).Register(ctx, &orchestratorv1.RegisterRequest{
			Worker: []byte(w.Name), Incarnation: w.Incarnation, Address: address, Lease: durationpb.New(time.Minute),
		}, grpc.WaitForReady(true))
		return err
	}
	good := serveWorker(t)
	serve := func(ctx context.Context) error {
		return register(ctx, communicator.WorkerID{Name: "w1", Incarnation: good.Incarnation()}, good.addr)
	}

	own, another := grpctest.ReportOf(1), grpctest.ReportOf(1)
	another.Version.Incarnation = 2
	for name, c := range map[string]struct {
		answer []byte
		says   string // "": accepted as a worker
	}{
		"millions":                {grpctest.Filled(2, grpctest.Marshaled(t, own)...), "received message larger than max"},
		"nothing":                 {nil, "report has version 0.0, want 1.1 or later"},
		"no message":              {[]byte("HTTP/1.1 200 OK"), wire.ErrMalformed.Error()},
		"that of another process": {grpctest.Marshaled(t, another), "report has version 2.1, want 1.1 or later"},
		"its own":                 {grpctest.Marshaled(t, own), ""},
	} {
		t.Run(name, func(t *testing.T) {
			address := grpctest.ServeAnswer(t, c.answer)
			grpctest.Meanwhile(t, grpctest.AnswerMemory, serve, serve, func() {
				err := register(t.Context(), communicator.WorkerID{Name: "liar", Incarnation: 1}, address)
				if c.says == "" {
					require.NoError(t, err)
					return
				}
				require.Equal(t, codes.Unavailable, status.Code(err))
				require.Equal(t, unreachableAnswer, status.Convert(err).Message(), "the same for every server")
				require.Contains(t, logs.String(), `worker \"liar\" at `+address+": manager cannot call worker: ")
				require.Contains(t, logs.String(), c.says)
			})
		})
	}
}
