package etcd_test

// The conformance kit for clauses C1 to C7 on real members: once with one leader for
// successive orchestrators, once with a new leader for each epoch.

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/communicatortest"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/worker"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestC_OneLeader(t *testing.T) {
	communicatortest.Run(t, func(t *testing.T) communicatortest.Cluster[etcd.Worker, string] {
		s := newStage(t)
		client, gate := s.gated()
		return s.cluster(gate, func() orchestrator.Communicator[etcd.Worker, string] {
			return s.elect(client, "leader", 5*time.Second).comm
		})
	})
}

func TestC_LeadersFollowOneAnother(t *testing.T) {
	communicatortest.Run(t, func(t *testing.T) communicatortest.Cluster[etcd.Worker, string] {
		s := newStage(t)
		client, gate := s.gated()
		return s.cluster(gate, func() orchestrator.Communicator[etcd.Worker, string] {
			return &succession{stage: s, client: client, leaders: map[uint64]*leading{}}
		})
	})
}

// cluster returns two members behind proxies, and a communicator whose writes pass a
// gate.
func (s *stage) cluster(gate *gate, comm func() orchestrator.Communicator[etcd.Worker, string]) communicatortest.Cluster[etcd.Worker, string] {
	s.Helper()
	s.twice = true
	var picky pickiness
	cluster := communicatortest.Cluster[etcd.Worker, string]{
		Timeout:   3 * time.Second,
		Tasks:     []string{"a", "b/c", "größe"},
		Strangers: []etcd.Worker{{Name: "nobody", Incarnation: 1}, {Name: "w1", Incarnation: 1}},
		Hold:      func(w etcd.Worker) func() { return gate.hold("/work/assigned/" + w.Name + "/") },
		Refuse:    func(w etcd.Worker, task string) func() { return picky.refuse(w.Name, task) },
	}
	cuts := map[string]func() func(){}
	for _, name := range []string{"w1", "w2"} {
		client, p := s.behind()
		h := s.hire(client, name, 20*time.Second, worker.WithAccept(func(_ context.Context, task string, _ []byte) error {
			return picky.accept(name, task)
		}))
		cluster.Workers = append(cluster.Workers, h.joined())
		cuts[name] = func() func() { p.Cut(netfault.Both); return p.Heal }
	}
	cluster.Cut = func(w etcd.Worker) func() { return cuts[w.Name]() }
	cluster.Communicator = comm()
	return cluster
}

// pickiness holds the tasks that workers refuse.
type pickiness struct {
	mu   sync.Mutex
	list [][2]string
}

func (p *pickiness) refuse(worker, task string) (accept func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pair := [2]string{worker, task}
	p.list = append(p.list, pair)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.list = slices.DeleteFunc(p.list, func(o [2]string) bool { return o == pair })
	}
}

func (p *pickiness) accept(worker, task string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.list, [2]string{worker, task}) {
		return errors.New("not that one")
	}
	return nil
}

// gate holds back transactions on their way to etcd. A held transaction outlives the
// context of its caller, like one in a queue.
type gate struct {
	clientv3.KV
	mu   sync.Mutex
	held map[string]chan struct{} // by prefix; closed on release
	late sync.WaitGroup           // transactions that outlive their callers
	// arrived receives a value for each transaction that is held back.
	arrived chan struct{}
}

// gated returns a client whose transactions pass a gate.
func (s *stage) gated() (*clientv3.Client, *gate) {
	s.Helper()
	c := s.connect()
	return c, gateBefore(c)
}

// gateBefore makes the transactions of a client pass a gate.
func gateBefore(c *clientv3.Client) *gate {
	g := &gate{KV: c.KV, held: map[string]chan struct{}{}, arrived: make(chan struct{}, 1000)}
	c.KV = g
	return g
}

// hold holds back writes below a prefix. release returns when all of them were made.
func (g *gate) hold(prefix string) (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	free := make(chan struct{})
	g.held[prefix] = free
	return func() {
		g.mu.Lock()
		delete(g.held, prefix)
		close(free)
		g.mu.Unlock()
		g.late.Wait()
	}
}

// closedFor returns the channel to wait for before making the operations, or nil.
func (g *gate) closedFor(ops []clientv3.Op) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	for prefix, free := range g.held {
		if writesBelow(ops, prefix) {
			g.late.Add(1)
			g.arrived <- struct{}{}
			return free
		}
	}
	return nil
}

func writesBelow(ops []clientv3.Op, prefix string) bool {
	return slices.ContainsFunc(ops, func(op clientv3.Op) bool {
		if op.IsTxn() {
			_, then, otherwise := op.Txn()
			return writesBelow(then, prefix) || writesBelow(otherwise, prefix)
		}
		key := string(op.KeyBytes())
		return (op.IsPut() || op.IsDelete()) && len(key) > len(prefix) && key[:len(prefix)] == prefix
	})
}

func (g *gate) Txn(ctx context.Context) clientv3.Txn {
	return &gatedTxn{gate: g, ctx: ctx}
}

// gatedTxn is a transaction that may be made after its caller has returned.
type gatedTxn struct {
	gate                *gate
	ctx                 context.Context
	compares            []clientv3.Cmp
	success, otherwises []clientv3.Op
}

func (t *gatedTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { t.compares = cs; return t }
func (t *gatedTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.success = ops; return t }
func (t *gatedTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.otherwises = ops; return t }

func (t *gatedTxn) Commit() (*clientv3.TxnResponse, error) {
	commit := func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return t.gate.KV.Txn(ctx).If(t.compares...).Then(t.success...).Else(t.otherwises...).Commit()
	}
	free := t.gate.closedFor(t.success)
	if free == nil {
		return commit(t.ctx)
	}
	type answer struct {
		resp *clientv3.TxnResponse
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		defer t.gate.late.Done()
		<-free
		resp, err := commit(context.WithoutCancel(t.ctx))
		answers <- answer{resp, err}
	}()
	select {
	case a := <-answers:
		return a.resp, a.err
	case <-t.ctx.Done():
		return nil, t.ctx.Err()
	}
}

// succession is a communicator that elects a new leader for each higher epoch.
type succession struct {
	stage   *stage
	client  *clientv3.Client
	mu      sync.Mutex
	leaders map[uint64]*leading
	highest uint64
}

// of returns the communicator of a call, and the call's context with the epoch of
// its leader.
func (x *succession) of(ctx context.Context) (context.Context, *etcd.Communicator) {
	x.mu.Lock()
	defer x.mu.Unlock()
	term, ok := orchestrator.TermFromContext(ctx)
	epoch := term.Epoch
	if !ok {
		epoch = x.highest
	}
	if epoch > x.highest {
		if old := x.leaders[x.highest]; old != nil {
			old.resign()
		}
		x.highest = epoch
		x.leaders[epoch] = x.stage.elect(x.client, "leader", 5*time.Second)
	}
	l := x.leaders[epoch]
	if ok {
		ctx = orchestrator.ContextWithTerm(ctx, orchestrator.Term{Epoch: l.leader.Epoch(), Number: term.Number})
	}
	return ctx, l.comm
}

func (x *succession) List(ctx context.Context, w etcd.Worker) ([]string, error) {
	ctx, c := x.of(ctx)
	return c.List(ctx, w)
}

func (x *succession) Add(ctx context.Context, w etcd.Worker, task string) error {
	ctx, c := x.of(ctx)
	return c.Add(ctx, w, task)
}

func (x *succession) Remove(ctx context.Context, w etcd.Worker, task string) error {
	ctx, c := x.of(ctx)
	return c.Remove(ctx, w, task)
}

func (x *succession) Apply(ctx context.Context, w etcd.Worker, writes []orchestrator.Write[string]) []error {
	ctx, c := x.of(ctx)
	return c.Apply(ctx, w, writes)
}
