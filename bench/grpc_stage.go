package main

// A fleet over gRPC, all in one process: a manager, and members that each have a
// port of their own, with real connections on loopback.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/f8949c05/orchestrator"
	managed "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/internal/proxy"
	"github.com/f8949c05/orchestrator/worker"
)

// fleetOverGRPC is the manager and its members.
type fleetOverGRPC struct {
	manager *managed.Manager
	address string // the manager's
	lease   time.Duration
	ledger  ledger
	terms   termLog
	calls   meter // of the manager to its workers
	books   meter // of the workers to their manager: registrations and heartbeats

	ctx      context.Context // for what goes on beside the measuring
	cancel   context.CancelCauseFunc
	managing sync.WaitGroup
	working  sync.WaitGroup
	leave    context.CancelCauseFunc // of all members
	present  context.Context         // while they are to be there
	crew     int                     // how many were hired
	exposed  []*exposed              // who can be lost, the next one last
}

// exposed is a member that is reached, and reaches its manager, through what can
// be taken away.
type exposed struct{ toManager, toWorker *proxy.Proxy }

func startFleet(ctx context.Context, interval, lease time.Duration) (*fleetOverGRPC, error) {
	f := &fleetOverGRPC{lease: lease}
	f.ledger.init()
	f.terms.init()
	var err error
	f.manager, err = managed.NewManager(managed.NewMemoryStore(),
		managed.WithInterval(interval), managed.WithOrchestrator(orchestrator.WithStats(f.terms.note)))
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f.address = l.Addr().String()
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.present, f.leave = context.WithCancelCause(context.WithoutCancel(ctx))
	f.managing.Go(func() {
		if err := f.manager.Run(f.ctx, f.books.on(l)); f.ctx.Err() == nil {
			f.cancel(fmt.Errorf("the manager: %w", err))
		}
	})
	return f, nil
}

// descriptors is how many a worker takes: a listener and both ends of two connections,
// and the server of a bare call another listener and both ends of one.
const descriptors = 5 + 3

// enoughDescriptors says why there cannot be so many workers. Go has raised the
// limit as far as it goes when the process began.
func enoughDescriptors(workers int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("how many files may be open: %w", err)
	}
	if need := uint64(descriptors*workers + 1000); limit.Cur < need {
		return fmt.Errorf("%d workers take up to %d open files, and %d are allowed: raise the hard limit (ulimit -Hn)", workers, need, limit.Cur)
	}
	return nil
}

// close ends the manager first: it would have others take over what each member
// leaves behind.
func (f *fleetOverGRPC) close() error {
	f.cancel(errMeasured)
	f.managing.Wait()
	f.leave(errMeasured)
	f.working.Wait()
	var errs []error
	for _, e := range f.exposed {
		errs = append(errs, e.toManager.Close(), e.toWorker.Close())
	}
	return errors.Join(errs...)
}

// hire has one more member come, and returns at once. At most slots of its tasks
// run at a time.
func (f *fleetOverGRPC) hire(slots int, mayBeLost bool) error {
	name := fmt.Sprintf("worker-%04d", f.crew)
	f.crew++
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	manager, own := f.address, l.Addr().String()
	if mayBeLost {
		e := &exposed{}
		e.toManager, err = proxy.New(manager)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		e.toWorker, err = proxy.New(own)
		if err != nil {
			return errors.Join(err, l.Close(), e.toManager.Close())
		}
		f.exposed = append(f.exposed, e)
		manager, own = e.toManager.Addr(), e.toWorker.Addr()
	}
	w, err := worker.New(func(ctx context.Context, task string) error {
		if err := f.ledger.start(task, name); err != nil {
			f.cancel(err)
		}
		defer f.ledger.stop(task)
		<-ctx.Done()
		return context.Cause(ctx)
	}, worker.WithLease(f.lease, f.lease/5), worker.WithSlots(slots))
	if err != nil {
		return errors.Join(err, l.Close())
	}
	member, err := managed.NewMember(manager, name, w, managed.WithAdvertise(own))
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

// lose has a member be cut off from its manager, as if its process had ended. It stops its
// tasks by itself, before its lease does.
func (f *fleetOverGRPC) lose() error {
	last := len(f.exposed) - 1
	if last < 0 {
		return errors.New("nobody is left who can be lost")
	}
	lost := f.exposed[last]
	f.exposed = f.exposed[:last]
	return errors.Join(lost.toManager.Close(), lost.toWorker.Close())
}

// expect has exactly the first so many tasks be expected.
func (f *fleetOverGRPC) expect(before, now int) error {
	if now < before {
		gone := make([]string, 0, before-now)
		for t := now; t < before; t++ {
			gone = append(gone, taskName(t))
		}
		return f.manager.Delete(f.ctx, gone...)
	}
	items := make([]managed.Item, 0, now-before)
	for t := before; t < now; t++ {
		items = append(items, managed.Item{Name: taskName(t), Content: make([]byte, contentBytes)})
	}
	_, err := f.manager.PutAll(f.ctx, items)
	return err
}

// termLog is what the terms of a manager have said of themselves.
type termLog struct {
	mu      sync.Mutex
	all     []orchestrator.TermStats
	changed chan struct{} // closed, and replaced, at every term
}

func (l *termLog) init() { l.changed = make(chan struct{}) }

func (l *termLog) note(s orchestrator.TermStats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, s)
	close(l.changed)
	l.changed = make(chan struct{})
}

// since returns the terms that have ended after the first so many.
func (l *termLog) since(n int) []orchestrator.TermStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[n:len(l.all):len(l.all)]
}

func (l *termLog) len() int { return len(l.since(0)) }

// wait returns the first term of which ok is true, of those after the first so
// many.
func (l *termLog) wait(ctx context.Context, n int, ok func(orchestrator.TermStats) bool) (orchestrator.TermStats, error) {
	for {
		l.mu.Lock()
		terms, changed := l.all[n:], l.changed
		l.mu.Unlock()
		for _, s := range terms {
			if ok(s) {
				return s, nil
			}
		}
		n += len(terms)
		select {
		case <-changed:
		case <-ctx.Done():
			return orchestrator.TermStats{}, fmt.Errorf("after term %d: %w", n, errors.Join(context.Cause(ctx), l.last()))
		}
	}
}

// last says what the last term has come to.
func (l *termLog) last() error {
	terms := l.since(0)
	if len(terms) == 0 {
		return errors.New("no term has ended")
	}
	s := terms[len(terms)-1]
	failed := ""
	if s.Err != nil {
		failed = fmt.Sprintf(", %.300s", s.Err)
	}
	return fmt.Errorf("the last took %v and leaves %+v on %+v, spread %d%s", s.Total, s.Instances, s.Workers, s.Spread, failed)
}
