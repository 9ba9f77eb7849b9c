package manager

// R3: the calls that registering workers can cause a manager to make.

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
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
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/testca"
	"github.com/f8949c05/orchestrator/worker"
)

// deaf is a worker that accepts calls and answers none. It counts the calls under
// way.
type deaf struct {
	orchestratorv1.UnimplementedWorkerServer
	came chan struct{} // receives a value for each call

	mu        sync.Mutex
	now, most int
}

func newDeaf() *deaf { return &deaf{came: make(chan struct{}, 10_000)} }

func (d *deaf) Report(ctx context.Context, _ *orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
	d.count(1)
	defer d.count(-1)
	d.came <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

// count waits for calls to arrive, and returns how many are under way now, and the
// maximum so far.
func (d *deaf) count(come int) (now, most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now += come
	d.most = max(d.most, d.now)
	return d.now, d.most
}

// serveDeaf serves a deaf worker on a listener until the test ends.
func serveDeaf(t *testing.T, d *deaf, l net.Listener, opts ...communicator.Option) {
	t.Helper()
	server, accepting, err := settingsOf(t, opts...).NewServer(l, 0, grpc.WaitForHandlers(true))
	require.NoError(t, err)
	orchestratorv1.RegisterWorkerServer(server, d)
	done := make(chan error, 1)
	go func() { done <- server.Serve(accepting) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-done)
	})
}

func registering(name string, incarnation uint64, address string) *orchestratorv1.RegisterRequest {
	return &orchestratorv1.RegisterRequest{
		Worker: []byte(name), Incarnation: incarnation, Address: address, Lease: durationpb.New(aLease),
	}
}

// One worker, over any number of connections and incarnations, causes one call of
// the manager at a time. Other workers are called in the meantime.
func TestR3_AWorkerHasTheManagerMakeOneCallAtATime(t *testing.T) {
	for name, secure := range map[string]bool{"plaintext": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			var manager []Option
			var liar, good []communicator.Option
			if secure {
				ca := testca.New(t, "ours")
				manager = []Option{with(t, ca.Manager(t))}
				liar, good = []communicator.Option{with(t, ca.Worker(t, "liar"))}, []communicator.Option{with(t, ca.Worker(t, "w1"))}
			}
			_, at := manage(t, manager...)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			d := newDeaf()
			serveDeaf(t, d, l, liar...)

			const connections, calls = 4, maxCalls
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			errs := make(chan error, connections*calls)
			for i := range connections {
				conn := connect(t, at, aManager, liar...)
				for j := range calls {
					go func() {
						_, err := orchestratorv1.NewManagerClient(conn).Register(ctx,
							registering("liar", uint64(1+i*calls+j), l.Addr().String()), grpc.WaitForReady(true))
						errs <- err
					}()
				}
			}
			for range connections*calls - 1 {
				err := <-errs
				require.Equal(t, codes.Unavailable, code(err))
				require.ErrorContains(t, err, errProbed.Error())
			}
			<-d.came
			site := serveWorker(t, good...)
			_, err = orchestratorv1.NewManagerClient(connect(t, at, aManager, good...)).Register(t.Context(),
				registering("w1", site.Incarnation(), site.addr))
			require.NoError(t, err)
			giveUp()
			require.Error(t, <-errs)
			_, most := d.count(0)
			require.Equal(t, 1, most)
		})
	}
}

// If many names register that never answer, the manager makes at most maxProbes
// calls at the same time. The others wait for their turn.
func TestR3_CallsToRegisteringWorkersAreBounded(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		d := newDeaf()
		serveDeaf(t, d, n.listen("liar.test:7000"))
		const more = 20
		ctx, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		errs := make(chan error, maxProbes+more)
		var client orchestratorv1.ManagerClient
		for i := range maxProbes + more {
			if i%maxCalls == 0 {
				conn, err := settingsOf(t).Dial(managerAt, aManager, n.dialing())
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, conn.Close()) })
				client = orchestratorv1.NewManagerClient(conn)
			}
			go func(client orchestratorv1.ManagerClient) {
				_, err := client.Register(ctx, registering(fmt.Sprint("liar", i), 1, "liar.test:7000"))
				errs <- err
			}(client)
		}
		synctest.Wait()
		now, _ := d.count(0)
		require.Equal(t, maxProbes, now)
		begun := time.Now()
		for range maxProbes {
			require.Equal(t, codes.Unavailable, code(<-errs))
		}
		require.Equal(t, probeTime, time.Since(begun))
		synctest.Wait()
		now, _ = d.count(0)
		require.Equal(t, more, now)
		giveUp()
		for range more {
			require.Error(t, <-errs)
		}
		_, most := d.count(0)
		require.Equal(t, maxProbes, most)
		require.Empty(t, m.Members())
		n.registerWorker("good")
	})
}

// A worker that cancels while it waits for its call leaves nothing behind.
func TestR3_ACancelledRegisterLeavesNothingBehind(t *testing.T) {
	p := newDialback(&option.Manager{})
	for range maxProbes {
		p.slots <- struct{}{}
	}
	ctx, giveUp := context.WithCancel(t.Context())
	giveUp()
	for range 2 {
		err := p.probe(ctx, communicator.WorkerID{Name: "w1", Incarnation: 1}, "127.0.0.1:1", nil)
		require.ErrorIs(t, err, errProbe)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, errProbed)
	}
	require.Len(t, p.slots, maxProbes)
	for range maxTries - 2 {
		require.ErrorIs(t, p.probe(ctx, communicator.WorkerID{Name: "w1", Incarnation: 1}, "127.0.0.1:1", nil), context.Canceled)
	}
	require.ErrorIs(t, p.probe(ctx, communicator.WorkerID{Name: "w1", Incarnation: 1}, "127.0.0.1:1", nil), errTooMany, "the number of calls is limited")
	require.ErrorIs(t, p.probe(ctx, communicator.WorkerID{Name: "w2", Incarnation: 1}, "127.0.0.1:1", nil), context.Canceled, "other names are not affected")
}

// The call for a lost Register ends with that Register, and does not block the next
// one.
func TestR2_ALostRegisterDoesNotBlockTheNext(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		one := n.newWorker("one")
		release := one.gate.Hold(&one.gate.All)
		ctx, lose := context.WithCancel(t.Context())
		lost := make(chan error, 1)
		go func() {
			_, err := one.manager.Register(ctx, one.asks())
			lost <- err
		}()
		synctest.Wait()
		err := one.register()
		require.Equal(t, codes.Unavailable, code(err))
		require.ErrorContains(t, err, errProbed.Error())
		begun := time.Now()
		lose()
		require.Equal(t, codes.Canceled, code(<-lost))
		synctest.Wait()
		release()
		require.NoError(t, one.register())
		require.Equal(t, begun, time.Now())
		require.Len(t, m.Members(), 1)
	})
}

// counting counts the bytes written to accepted connections.
type counting struct {
	net.Listener
	written *atomic.Int64
}

func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countingConn{conn, c.written}, nil
}

type countingConn struct {
	net.Conn
	written *atomic.Int64
}

func (c *countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

// The manager reads little of a long answer.
func TestR3_LittleOfALongAnswerIsTakenIn(t *testing.T) {
	_, manager := manage(t, probedWithin(time.Second))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	answer := grpctest.Filled(9)
	s := grpc.NewServer(grpc.ForceServerCodecV2(grpctest.Verbatim{}), grpc.MaxSendMsgSize(1<<30),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			if err := stream.RecvMsg(nil); err != nil {
				return err
			}
			return stream.SendMsg(answer)
		}))
	var written atomic.Int64
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(counting{l, &written}) })
	_, err = orchestratorv1.NewManagerClient(connect(t, manager, aManager)).Register(t.Context(),
		registering("liar", 1, l.Addr().String()))
	s.Stop()
	serving.Wait()
	require.Equal(t, codes.Unavailable, code(err))
	require.Less(t, written.Load(), int64(2*introductionWindow+8<<10), "of %d", len(answer))
}

// A worker that follows the proto file literally, and has a long list, does not
// refuse the manager's call.
func TestR1_AWorkerThatSawATermRegistersWithALongList(t *testing.T) {
	f := &grpctest.Fake{
		OnReport: func(*orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
			var names []string
			for i := range 200 {
				names = append(names, fmt.Sprint("a task of a worker that was a member before, ", i))
			}
			return grpctest.ReportOf(1, names...), nil
		},
		OnApply: func(_ context.Context, r *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error) {
			if r.GetTerm() == nil {
				return nil, status.Error(codes.Aborted, "the worker has seen a term")
			}
			return grpctest.Done(len(r.GetChanges())), nil
		},
	}
	server := grpc.NewServer()
	orchestratorv1.RegisterWorkerServer(server, f)
	m, manager := manage(t)
	_, err := orchestratorv1.NewManagerClient(connect(t, manager, aManager)).Register(t.Context(), registering("fake", 1, grpctest.Serve(t, server)))
	require.NoError(t, err)
	require.NotEmpty(t, f.Applied())
	probe := f.Applied()[0] // later calls belong to terms
	require.Empty(t, probe.GetChanges())
	require.Equal(t, m.committer.epoch, probe.GetTerm().GetEpoch())
}

// A worker with a long list can be identified nevertheless, and so can another
// process.
func TestR2_AWorkerWithALongListRegisters(t *testing.T) {
	withManager(t, func(t *testing.T, n *testNet, m *runningManager) {
		one := n.newWorker("one")
		for i := range 1000 {
			task := fmt.Sprintf("a task of a worker that was a member before, %d", i)
			require.Nil(t, one.ApplyWith(t.Context(), []worker.Change[string]{{
				Write: orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: task}, Grant: worker.Grant{Content: []byte("content of " + task)},
			}}))
		}
		stranger := one.asks()
		stranger.Incarnation++
		_, err := one.manager.Register(t.Context(), stranger)
		require.Equal(t, codes.Unavailable, code(err))
		require.Contains(t, n.logs.String(), worker.ErrIncarnation.Error())
		require.Empty(t, m.Members())
		require.NoError(t, one.register())
		require.Len(t, m.Members(), 1)
	})
}
