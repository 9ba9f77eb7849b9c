package main

// A cluster on a real etcd, all in one process: the server, a leader, and
// members that each have a client of their own. What is noted of them is in
// etcd_ledger.go.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/worker"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// etcdPrefix is the default of package etcd.
const etcdPrefix = "/work/"

var errMeasured = errors.New("it has been measured")

// stage is the cluster.
type stage struct {
	server  *embed.Server
	counter counter
	ledger  ledger
	lease   time.Duration

	ctx    context.Context // the stage's, for what goes on beside the measuring
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	told   told
	crew   []*crew

	clients []*clientv3.Client
}

// startStage starts the server. It writes to a temporary folder, and syncs, as
// it does for users.
func startStage(ctx context.Context, lease time.Duration) (*stage, error) {
	server, err := embed.Start(ctx, embed.Config{})
	if err != nil {
		return nil, err
	}
	s := &stage{server: server, lease: lease}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.ledger.init()
	s.told.init()
	return s, nil
}

func (s *stage) close() error {
	s.cancel(errMeasured)
	s.wg.Wait()
	for _, client := range s.clients {
		_ = client.Close() // that of a member that was lost is closed already
	}
	return s.server.Close()
}

// connect returns a client whose traffic counts for a side. It is closed with the
// stage.
func (s *stage) connect(of side) (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   s.server.Endpoints(),
		Logger:      zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithStatsHandler(handler{&s.counter, of})},
	})
	if err != nil {
		return nil, err
	}
	s.clients = append(s.clients, client)
	return client, nil
}

// write gives tasks, the first ones, their contents, whether they are in the
// registry or not.
func (s *stage) write(tasks int, content []byte) error {
	client, err := s.connect(users)
	if err != nil {
		return err
	}
	registry, err := etcd.NewRegistry(client)
	if err != nil {
		return err
	}
	const atOnce = 100
	errs := make([]error, atOnce)
	var wg sync.WaitGroup
	for first := range atOnce {
		wg.Go(func() {
			for t := first; t < tasks && errs[first] == nil; t += atOnce {
				_, _, errs[first] = registry.Put(s.ctx, etcd.Item{Name: taskName(t), Content: content})
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func taskName(t int) string { return fmt.Sprintf("task-%08d", t) }

// lead has a leader elected, and returns its orchestrator once it has loaded
// the registry and the membership.
func (s *stage) lead() (*orchestrator.Orchestrator[etcd.Worker, string], error) {
	client, err := s.connect(leaders)
	if err != nil {
		return nil, err
	}
	election, err := etcd.NewElection(client, "leader", etcd.WithLeaseDuration(s.lease))
	if err != nil {
		return nil, err
	}
	registry, err := etcd.NewRegistry(client)
	if err != nil {
		return nil, err
	}
	membership, err := etcd.NewMembership(client)
	if err != nil {
		return nil, err
	}
	type outcome struct {
		o   *orchestrator.Orchestrator[etcd.Worker, string]
		err error
	}
	loaded := make(chan outcome, 1)
	s.wg.Go(func() {
		err := election.Run(s.ctx, func(ctx context.Context, l *etcd.Leadership) error {
			communicator, err := etcd.NewCommunicator(ctx, client, l)
			if err != nil {
				return err
			}
			o, err := orchestrator.New(communicator,
				orchestrator.WithEpoch(l.Epoch()), orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved))
			if err != nil {
				return err
			}
			if err := registry.Feed(ctx, l, o); err != nil {
				return err
			}
			if err := membership.Feed(ctx, l, s.told.of(o)); err != nil {
				return err
			}
			select {
			case loaded <- outcome{o: o}:
			default:
				return errors.New("a leadership was lost and won again")
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		select {
		case loaded <- outcome{err: err}:
		default:
			s.cancel(fmt.Errorf("the leader: %w", err))
		}
	})
	select {
	case got := <-loaded:
		return got.o, got.err
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	}
}

// crew is a member and the worker in it.
type crew struct {
	client *clientv3.Client
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// hire has one more member join. It returns at once.
func (s *stage) hire() error {
	name := fmt.Sprintf("worker-%03d", len(s.crew))
	client, err := s.connect(workers)
	if err != nil {
		return err
	}
	w, err := worker.New(func(ctx context.Context, task string) error {
		if err := s.ledger.start(task, name); err != nil {
			s.cancel(err)
		}
		defer s.ledger.stop(task)
		<-ctx.Done()
		return context.Cause(ctx)
	}, worker.WithLease(s.lease, s.lease/5), worker.WithUpdate(func(context.Context, string) error {
		s.ledger.update()
		return nil
	}))
	if err != nil {
		return err
	}
	member, err := etcd.NewMember(client, name, w)
	if err != nil {
		return err
	}
	m := &crew{client: client, done: make(chan struct{})}
	var ctx context.Context
	ctx, m.cancel = context.WithCancelCause(s.ctx)
	s.crew = append(s.crew, m)
	s.wg.Go(func() {
		defer close(m.done)
		if err := member.Run(ctx); ctx.Err() == nil {
			s.cancel(fmt.Errorf("member %s: %w", name, err))
		}
	})
	return nil
}

// crash takes etcd away from a member, which can do nothing about it.
func (m *crew) crash() error { return m.client.Close() }

// bury ends what is left of a member that has crashed.
func (m *crew) bury() {
	m.cancel(errMeasured)
	<-m.done
}
