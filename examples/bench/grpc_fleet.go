//go:build peers

package main

// A fleet over gRPC in one process: a manager, and members with separate ports,
// connected over loopback.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/worker"
)

// grpcFleet is the manager and its members.
type grpcFleet struct {
	manager    *manager.Manager
	store      *manager.MemoryStore
	address    string        // the manager's, kept over a restart
	interval   time.Duration // from term to term
	lease      time.Duration
	taskLog    taskLog
	terms      termLog
	calls      meter // from the manager to its workers
	membership meter // from the workers to the manager: registrations and heartbeats

	ctx         context.Context // the parent of everything that runs beside the measurement
	cancel      context.CancelCauseFunc
	stopManager context.CancelCauseFunc // ends the manager
	managing    sync.WaitGroup
	working     sync.WaitGroup
	leave       context.CancelCauseFunc // ends all members
	present     context.Context         // the members' context
	started     int                     // number of members started
	proxies     []*memberProxies        // the members that can be cut off; the next one is the last
}

// memberProxies holds the proxies of a member's connections, in both directions, so that
// they can be cut.
type memberProxies struct{ toManager, toWorker *netfault.Proxy }

func startGRPCFleet(ctx context.Context, interval, lease time.Duration) (*grpcFleet, error) {
	f := &grpcFleet{store: manager.NewMemoryStore(), address: "127.0.0.1:0", interval: interval, lease: lease}
	f.taskLog.init()
	f.terms.init()
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.present, f.leave = context.WithCancelCause(context.WithoutCancel(ctx))
	return f, f.manage()
}

// manage starts a manager on the store, at the address of the previous one.
func (f *grpcFleet) manage() error {
	manager, err := manager.New(f.store,
		manager.WithInterval(f.interval), manager.WithOrchestrator(orchestrator.WithStats(f.terms.note)))
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", f.address)
	if err != nil {
		return err
	}
	f.manager, f.address = manager, l.Addr().String()
	ctx, stopManager := context.WithCancelCause(f.ctx)
	f.stopManager = stopManager
	f.managing.Go(func() {
		if err := manager.Run(ctx, f.membership.on(l)); ctx.Err() == nil {
			f.cancel(fmt.Errorf("the manager: %w", err))
		}
	})
	return nil
}

// descriptors is the number of file descriptors per worker. A worker takes a
// listener and both ends of two connections. The server of its bare call takes a
// listener and both ends of one connection.
const descriptors = 5 + 3

// enoughDescriptors returns an error if the process cannot have that many workers.
// The Go runtime has already raised the soft limit to the hard limit.
func enoughDescriptors(workers int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("get the limit of open files: %w", err)
	}
	if need := uint64(descriptors*workers + 1000); limit.Cur < need {
		return fmt.Errorf("%d workers take up to %d open files, but the limit is %d: raise the hard limit (ulimit -Hn)", workers, need, limit.Cur)
	}
	return nil
}

// close ends the manager first. Otherwise the manager would move the tasks of each
// member that ends.
func (f *grpcFleet) close() error {
	f.cancel(errMeasured)
	f.managing.Wait()
	f.leave(errMeasured)
	f.working.Wait()
	var errs []error
	for _, e := range f.proxies {
		errs = append(errs, e.toManager.Close(), e.toWorker.Close())
	}
	return errors.Join(errs...)
}

// startMember makes one more member join, and does not wait for the join. At most slots of
// its tasks run at the same time.
func (f *grpcFleet) startMember(slots int, mayBeLost bool) error {
	name := fmt.Sprintf("worker-%04d", f.started)
	f.started++
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address, own := f.address, l.Addr().String()
	if mayBeLost {
		e := &memberProxies{}
		e.toManager, err = netfault.New(address)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		e.toWorker, err = netfault.New(own)
		if err != nil {
			return errors.Join(err, l.Close(), e.toManager.Close())
		}
		f.proxies = append(f.proxies, e)
		address, own = e.toManager.Addr(), e.toWorker.Addr()
	}
	w, err := worker.New(func(ctx context.Context, task string) error {
		if err := f.taskLog.start(task, name); err != nil {
			f.cancel(err)
		}
		defer f.taskLog.stop(task, name)
		<-ctx.Done()
		return context.Cause(ctx)
	}, worker.WithLease(f.lease, f.lease/5), worker.WithSlots(slots))
	if err != nil {
		return errors.Join(err, l.Close())
	}
	member, err := manager.NewMember(address, name, w, manager.WithAdvertise(own), manager.WithDrain(0))
	if err != nil {
		return errors.Join(err, l.Close())
	}
	f.working.Go(func() {
		if err := member.Run(f.present, f.calls.on(l)); f.present.Err() == nil {
			f.cancel(fmt.Errorf("member %s: %w", name, err))
		}
	})
	return nil
}

// lose cuts a member off from its manager, as if its process had ended. The member
// stops its tasks before its lease ends.
func (f *grpcFleet) lose() error {
	last := len(f.proxies) - 1
	if last < 0 {
		return errors.New("no member left that can be cut off")
	}
	lost := f.proxies[last]
	f.proxies = f.proxies[:last]
	return errors.Join(lost.toManager.Close(), lost.toWorker.Close())
}

// expect changes the number of expected tasks from before to now.
func (f *grpcFleet) expect(before, now int) error {
	if now < before {
		gone := make([]string, 0, before-now)
		for t := now; t < before; t++ {
			gone = append(gone, taskName(t))
		}
		return f.manager.Delete(f.ctx, gone...)
	}
	items := make([]manager.Item, 0, now-before)
	for t := before; t < now; t++ {
		items = append(items, manager.Item{Name: taskName(t), Content: make([]byte, contentBytes)})
	}
	_, err := f.manager.PutAll(f.ctx, items)
	return err
}

// The floor of a term over gRPC: the same number of bare calls over the same number
// of connections, with empty requests and answers.

// bareCalls holds servers, and a connection to each.
type bareCalls struct {
	servers []*grpc.Server
	conns   []*grpc.ClientConn
	serving sync.WaitGroup
}

// emptyHandler returns an empty answer to each Report.
type emptyHandler struct {
	orchestratorv1.UnimplementedWorkerServer
}

func (emptyHandler) Report(context.Context, *orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
	return &orchestratorv1.ReportResponse{}, nil
}

// newBareCalls starts n servers and calls each once.
func newBareCalls(ctx context.Context, n int) (*bareCalls, error) {
	b := &bareCalls{}
	for range n {
		if err := b.add(); err != nil {
			return nil, errors.Join(err, b.close())
		}
	}
	if err := b.run(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bareCalls) add() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	orchestratorv1.RegisterWorkerServer(server, emptyHandler{})
	b.servers = append(b.servers, server)
	b.serving.Go(func() { _ = server.Serve(l) }) // if it fails, so do the calls
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	b.conns = append(b.conns, conn)
	return nil
}

// run makes one call on each connection, as many at the same time as a term does.
func (b *bareCalls) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var next atomic.Int64
	errs := make([]error, callsAtOnce)
	var wg sync.WaitGroup
	for k := range errs {
		wg.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(b.conns) && errs[k] == nil; i = next.Add(1) - 1 {
				_, errs[k] = orchestratorv1.NewWorkerClient(b.conns[i]).Report(ctx, &orchestratorv1.ReportRequest{})
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("bare calls: %w", err)
	}
	return nil
}

func (b *bareCalls) close() error {
	var errs []error
	for _, conn := range b.conns {
		errs = append(errs, conn.Close())
	}
	for _, server := range b.servers {
		server.Stop()
	}
	b.serving.Wait()
	return errors.Join(errs...)
}
