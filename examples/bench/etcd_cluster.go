//go:build peers

package main

// A cluster on a real etcd in one process: the server, a leader, and members with
// separate clients.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/worker"
)

// etcdPrefix is the default of package etcd.
const etcdPrefix = "/work/"

var errMeasured = errors.New("the measurement has ended")

// etcdCluster is a server, a leader and members.
type etcdCluster struct {
	server  *embed.Server
	counter counter
	taskLog taskLog
	terms   termLog
	lease   time.Duration

	ctx    context.Context // the parent of everything that runs beside the measurement
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	joined []*etcdMember

	clients []*clientv3.Client
}

// startEtcdCluster starts the server. It writes to a temporary folder, and syncs as in
// production.
func startEtcdCluster(ctx context.Context, lease time.Duration) (*etcdCluster, error) {
	server, err := embed.Start(ctx, embed.Config{})
	if err != nil {
		return nil, err
	}
	c := &etcdCluster{server: server, lease: lease}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.taskLog.init()
	c.terms.init()
	return c, nil
}

func (c *etcdCluster) close() error {
	c.cancel(errMeasured)
	c.wg.Wait()
	for _, client := range c.clients {
		_ = client.Close() // clients of lost members and former leaders are closed already
	}
	return c.server.Close()
}

// connect returns a client whose traffic counts for a side. It is closed with the
// cluster.
func (c *etcdCluster) connect(of side) (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{c.server.Endpoint()},
		Logger:      zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithStatsHandler(handler{&c.counter, of})},
	})
	if err != nil {
		return nil, err
	}
	c.clients = append(c.clients, client)
	return client, nil
}

// write writes the contents of the first tasks, and adds them to the registry if
// they are missing.
func (c *etcdCluster) write(tasks int, content []byte) error {
	client, err := c.connect(users)
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
				_, _, errs[first] = registry.Put(c.ctx, etcd.Item{Name: taskName(t), Content: content})
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func taskName(t int) string { return fmt.Sprintf("task-%08d", t) }

// leadership is an elected leader.
type leadership struct {
	o            *orchestrator.Orchestrator[etcd.WorkerID, string]
	knownMembers *knownMembers
	resigns      context.CancelCauseFunc
	ended        chan struct{}
}

// resign makes the leader stop its terms and resign, and waits for the resignation.
func (l *leadership) resign() {
	l.resigns(errMeasured)
	<-l.ended
}

// lead campaigns, and returns once the orchestrator has loaded the registry and the
// membership. serve runs during the leadership.
func (c *etcdCluster) lead(serve func(context.Context, *orchestrator.Orchestrator[etcd.WorkerID, string]) error) (*leadership, error) {
	client, err := c.connect(leaders)
	if err != nil {
		return nil, err
	}
	election, err := etcd.NewElection(client, "leader", etcd.WithLeaseDuration(c.lease))
	if err != nil {
		return nil, err
	}
	l := &leadership{ended: make(chan struct{})}
	var ctx context.Context
	ctx, l.resigns = context.WithCancelCause(c.ctx)
	loaded := make(chan error, 1)
	c.wg.Go(func() {
		defer close(l.ended)
		defer func() { _ = client.Close() }() // its election has ended
		err := election.Run(ctx, func(ctx context.Context, led *etcd.Leadership) error {
			if l.o != nil {
				return errors.New("the leader lost and regained the election")
			}
			if err := l.load(ctx, client, led, &c.terms); err != nil {
				return err
			}
			loaded <- nil
			return serve(ctx, l.o)
		})
		switch {
		case l.o == nil:
			loaded <- err
		case ctx.Err() == nil:
			c.cancel(fmt.Errorf("the leader: %w", err))
		}
	})
	select {
	case err := <-loaded:
		return l, err
	case <-c.ctx.Done():
		return nil, context.Cause(c.ctx)
	}
}

// load makes the orchestrator of a new leader.
func (l *leadership) load(ctx context.Context, client *clientv3.Client, led *etcd.Leadership, terms *termLog) error {
	registry, err := etcd.NewRegistry(client)
	if err != nil {
		return err
	}
	membership, err := etcd.NewMembership(client)
	if err != nil {
		return err
	}
	communicator, err := etcd.NewCommunicator(ctx, client, led)
	if err != nil {
		return err
	}
	o, err := orchestrator.New(communicator, orchestrator.WithEpoch(led.Epoch()),
		orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved), orchestrator.WithStats(terms.note))
	if err != nil {
		return err
	}
	if err := registry.Feed(ctx, led, o); err != nil {
		return err
	}
	knownMembers := newKnownMembers(o)
	if err := membership.Feed(ctx, led, knownMembers); err != nil {
		return err
	}
	l.o, l.knownMembers = o, knownMembers
	return nil
}

// etcdMember is a member and its worker.
type etcdMember struct {
	client *clientv3.Client
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// startMember makes one more member join. It does not wait for the join.
func (c *etcdCluster) startMember() error {
	name := fmt.Sprintf("worker-%03d", len(c.joined))
	client, err := c.connect(workers)
	if err != nil {
		return err
	}
	w, err := worker.New(func(ctx context.Context, task string) error {
		if err := c.taskLog.start(task, name); err != nil {
			c.cancel(err)
		}
		defer c.taskLog.stop(task, name)
		<-ctx.Done()
		return context.Cause(ctx)
	}, worker.WithLease(c.lease, c.lease/5), worker.WithUpdate(func(context.Context, string) error {
		c.taskLog.update()
		return nil
	}))
	if err != nil {
		return err
	}
	member, err := etcd.NewMember(client, name, w, etcd.WithDrain(0))
	if err != nil {
		return err
	}
	m := &etcdMember{client: client, done: make(chan struct{})}
	var ctx context.Context
	ctx, m.cancel = context.WithCancelCause(c.ctx)
	c.joined = append(c.joined, m)
	c.wg.Go(func() {
		defer close(m.done)
		if err := member.Run(ctx); ctx.Err() == nil {
			c.cancel(fmt.Errorf("member %s: %w", name, err))
		}
	})
	return nil
}

// crash disconnects a member from etcd for good.
func (m *etcdMember) crash() error { return m.client.Close() }

// end ends the rest of a crashed member.
func (m *etcdMember) end() {
	m.cancel(errMeasured)
	<-m.done
}

// knownMembers passes changes of the membership on to an orchestrator, and records them.
type knownMembers struct {
	etcd.Workers
	mu      sync.Mutex
	there   map[string]int64 // the incarnation of each member, by name
	changed chan struct{}    // closed and replaced at every change
}

func newKnownMembers(o etcd.Workers) *knownMembers {
	return &knownMembers{Workers: o, there: make(map[string]int64), changed: make(chan struct{})}
}

func (t *knownMembers) note(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *knownMembers) UpdateWorkers(all []orchestrator.Worker[etcd.WorkerID]) error {
	err := t.Workers.UpdateWorkers(all)
	t.note(func() {
		clear(t.there)
		for _, w := range all {
			t.there[w.Name.Name] = w.Name.Incarnation
		}
	})
	return err
}

func (t *knownMembers) AddWorker(w etcd.WorkerID, opts ...orchestrator.WorkerOption) error {
	err := t.Workers.AddWorker(w, opts...)
	t.note(func() { t.there[w.Name] = w.Incarnation })
	return err
}

func (t *knownMembers) RemoveWorker(w etcd.WorkerID) {
	t.Workers.RemoveWorker(w)
	t.note(func() {
		if t.there[w.Name] == w.Incarnation {
			delete(t.there, w.Name)
		}
	})
}

// wait returns when the orchestrator knows that many workers.
func (t *knownMembers) wait(ctx context.Context, n int) error {
	for {
		t.mu.Lock()
		there, changed := len(t.there), t.changed
		t.mu.Unlock()
		if there == n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d members, want %d: %w", there, n, context.Cause(ctx))
		}
	}
}
