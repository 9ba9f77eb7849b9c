package replica_test

// Replicas in one process: a network of function calls, and a journal of what ran where.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/worker"
)

// bus is a network of replicas in one process.
type bus struct {
	mu      sync.Mutex
	workers map[string]*worker.Worker[string] // by address
	next    int
	hung    map[string]bool        // addresses at which calls are never answered
	hosts   map[string]string      // of replicas, by name; otherwise 127.0.0.1
	away    map[string]bool        // replicas whose own calls are never answered, by name
	calls   map[string][]time.Time // by the name of the caller
	// nextHangs makes calls at the next address hang.
	nextHangs bool
	// lateness returns how much later than sent the writes of a call are carried out; 0: the
	// call is not late. nil: none is.
	lateness func() time.Duration
	late     sync.WaitGroup
	// born is called with each new address; nil: nothing is.
	born func(name, address string)
	// lost has the addresses that lead nowhere.
	lost map[string]bool
	// last has what happens when the next write at an address has been carried out and its
	// answer is lost.
	last map[string]func()
}

// worker returns the worker at an address.
func (b *bus) worker(address string) *worker.Worker[string] {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.workers[address]
}

// lose makes an address lead nowhere.
func (b *bus) lose(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lost[address] = true
}

// loseAnswer loses the answer to the next write at an address, and calls then.
func (b *bus) loseAnswer(address string, then func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last[address] = then
}

// callsSince returns the times of a replica's calls that began later.
func (b *bus) callsSince(name string, t time.Time) []time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.calls[name]), func(at time.Time) bool { return !at.After(t) })
}

// port is one replica's place on the bus.
type port struct {
	*bus
	name string
}

func (p port) Serve(ctx context.Context, w *worker.Worker[string]) (string, <-chan error, error) {
	p.mu.Lock()
	p.next++
	address := fmt.Sprintf("%s:%d", cmp.Or(p.hosts[p.name], "127.0.0.1"), p.next)
	p.workers[address] = w
	p.hung[address], p.nextHangs = p.nextHangs, false
	p.mu.Unlock()
	if p.born != nil {
		p.born(p.name, address)
	}
	served := make(chan error)
	context.AfterFunc(ctx, func() { close(served) })
	return address, served, nil
}

func (p port) Caller(c grpc.RevisedContents) (replica.Caller, error) {
	return &busCaller{bus: p.bus, name: p.name, contents: c, addresses: make(map[grpc.WorkerID]string)}, nil
}

// busCaller implements caller.
type busCaller struct {
	*bus
	name      string
	contents  grpc.RevisedContents
	addresses map[grpc.WorkerID]string
}

func (c *busCaller) Connect(w grpc.WorkerID, address string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addresses[w] = address
	return nil
}

func (c *busCaller) Disconnect(w grpc.WorkerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.addresses, w)
}

func (c *busCaller) Close() error { return nil }

func (c *busCaller) find(ctx context.Context, w grpc.WorkerID) (*replica.Local, error) {
	c.mu.Lock()
	at := c.addresses[w]
	found, hung, lost := c.workers[at], c.hung[at] || c.away[c.name], c.lost[at]
	c.calls[c.name] = append(c.calls[c.name], time.Now())
	c.mu.Unlock()
	if hung {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if found == nil || lost {
		return nil, fmt.Errorf("%w: connection refused", orchestrator.ErrRejected)
	}
	return replica.NewLocal(found, w.Incarnation, c.contents), nil
}

func (c *busCaller) List(ctx context.Context, w grpc.WorkerID) ([]string, error) {
	l, err := c.find(ctx, w)
	if err != nil {
		return nil, err
	}
	return l.List(ctx)
}

func (c *busCaller) Add(context.Context, grpc.WorkerID, string) error {
	panic("calls uses Apply")
}

func (c *busCaller) Remove(context.Context, grpc.WorkerID, string) error {
	panic("calls uses Apply")
}

func (c *busCaller) Apply(ctx context.Context, w grpc.WorkerID, writes []orchestrator.Write[string]) []error {
	failed := func(err error) []error {
		errs := make([]error, len(writes))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	l, err := c.find(ctx, w)
	if err == nil && c.lateness != nil {
		if d := c.lateness(); d > 0 { // also after the caller has given up, or has stopped leading
			c.late.Go(func() {
				time.Sleep(d)
				l.Apply(context.WithoutCancel(ctx), writes)
			})
			<-ctx.Done()
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return failed(err)
	}
	errs := l.Apply(ctx, writes)
	c.mu.Lock()
	at := c.addresses[w]
	then := c.last[at]
	delete(c.last, at)
	c.mu.Unlock()
	if then != nil {
		then()
		<-ctx.Done()
		return failed(context.Cause(ctx))
	}
	return errs
}

// journal records what runs where.
type journal struct {
	mu      sync.Mutex
	running map[string][]string // the replicas that run a task
	twice   []string            // tasks that ran twice, with the replicas
	starts  int
	tokens  map[string]uint64 // the last of each task; nil: not looked at
	fallen  []string          // tasks whose token did not rise with their owner
}

// work returns a function that runs tasks as a replica.
func (j *journal) work(name string) func(context.Context, string) error {
	return func(ctx context.Context, task string) error {
		j.mu.Lock()
		j.starts++
		j.running[task] = append(j.running[task], name)
		if on := j.running[task]; len(on) > 1 {
			j.twice = append(j.twice, fmt.Sprintf("%s on %v", task, on))
		}
		if token, _ := worker.Token(ctx); j.tokens != nil {
			if token <= j.tokens[task] {
				j.fallen = append(j.fallen, fmt.Sprintf("%s on %s: %d after %d", task, name, token, j.tokens[task]))
			}
			j.tokens[task] = token
		}
		j.mu.Unlock()
		<-ctx.Done()
		j.mu.Lock()
		defer j.mu.Unlock()
		j.running[task] = slices.DeleteFunc(j.running[task], func(s string) bool { return s == name })
		return ctx.Err()
	}
}

// counts returns the number of tasks that each replica runs.
func (j *journal) counts() map[string]int {
	j.mu.Lock()
	defer j.mu.Unlock()
	counts := make(map[string]int)
	for _, on := range j.running {
		for _, r := range on {
			counts[r]++
		}
	}
	return counts
}

// started returns the number of starts.
func (j *journal) started() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.starts
}

// cluster is a set of replicas that share a table.
type cluster struct {
	t       *testing.T
	backend replica.Backend
	bus     *bus
	journal *journal
	source  replica.Source
	members map[string]*replicaProcess
	log     safeBuffer
}

type replicaProcess struct {
	*replica.Replica
	stop context.CancelFunc
	done chan error
}

const testLease = 12 * time.Second

func newCluster(t *testing.T, b replica.Backend, tasks int) *cluster {
	names := make([]string, tasks)
	for i := range names {
		names[i] = fmt.Sprintf("task-%02d", i)
	}
	return &cluster{
		t: t, backend: b, source: replica.Names(names...),
		bus: &bus{
			workers: make(map[string]*worker.Worker[string]), hung: make(map[string]bool), away: make(map[string]bool),
			calls: make(map[string][]time.Time), lost: make(map[string]bool), last: make(map[string]func()),
			hosts: make(map[string]string),
		},
		journal: &journal{running: make(map[string][]string)},
		members: make(map[string]*replicaProcess),
	}
}

// start starts a replica.
func (c *cluster) start(name string, opts ...replica.Option) {
	c.t.Helper()
	opts = append([]replica.Option{
		replica.WithLogger(slog.New(slog.NewTextHandler(&c.log, nil))), replica.WithName(name), replica.WithLease(testLease, time.Second), replica.WithNetwork(port{bus: c.bus, name: name}),
		replica.WithLastResort(func(tasks []string) { c.t.Errorf("%s: last resort: %v", name, tasks) }),
	}, opts...)
	r, err := replica.New(c.backend, c.source, c.journal.work(name), opts...)
	require.NoError(c.t, err)
	ctx, stop := context.WithCancel(context.Background())
	p := &replicaProcess{Replica: r, stop: stop, done: make(chan error, 1)}
	go func() { p.done <- r.Run(ctx) }()
	c.members[name] = p
}

// end stops a replica and returns the result of Run.
func (c *cluster) end(name string) error {
	p := c.members[name]
	delete(c.members, name)
	p.stop()
	return <-p.done
}

// close stops all replicas.
func (c *cluster) close() {
	for _, name := range slices.Sorted(maps.Keys(c.members)) {
		if err := c.end(name); err != nil && !errors.Is(err, replica.ErrUndrained) {
			c.t.Errorf("%s: %v", name, err)
		}
	}
	require.Empty(c.t, c.journal.twice)
	require.Empty(c.t, c.journal.fallen)
}

// eventually waits for at most the given time, in which it looks every tenth of a second.
func (c *cluster) eventually(within time.Duration, what string, ok func() bool) time.Duration {
	c.t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > within {
			c.t.Fatalf("not within %v: %s; it is %v", within, what, c.journal.counts())
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
	}
	return time.Since(began)
}

// spread waits until the replicas run so many tasks each.
func (c *cluster) spread(within time.Duration, want map[string]int) time.Duration {
	c.t.Helper()
	return c.eventually(within, fmt.Sprint(want), func() bool { return maps.Equal(c.journal.counts(), want) })
}

// leader returns the name of the replica that leads; empty if none does.
func (c *cluster) leader() string {
	for name, p := range c.members {
		if p.Status().Leading {
			return name
		}
	}
	return ""
}
