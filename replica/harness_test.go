package replica_test

// Fleets of replicas on a table in memory, in a bubble of testing/synctest.

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
	"github.com/f8949c05/orchestrator/worker"
)

// lease is that of the replicas of a fleet. It is long, because a worker also counts real
// time, which no bubble fakes (internal/lease): on a busy machine a test may stand still for
// seconds.
const lease = time.Minute

// fleet is a service: replicas that share a table.
type fleet struct {
	t        *testing.T
	table    *memory.Table
	backend  replica.Backend // over table
	replicas map[string]*node
	leavers  []*node // that were told to leave
	log      *logs

	mu       sync.Mutex
	tasks    []replica.Task
	told     chan struct{} // closed when tasks change
	running  map[string]map[string]int
	limits   map[string]int // how many copies of a task may run; 0: 1
	tokens   map[string]uint64
	twice    []string
	starts   int
	stubborn map[string]time.Duration                     // how long tasks of a replica take to stop
	began    func(ctx context.Context, name, task string) // nil, or called by each run
}

// node is one process.
type node struct {
	*replica.Replica
	name string
	stop context.CancelFunc
	done chan struct{}
	err  error
}

// logs keeps what was logged.
type logs struct {
	level slog.Level
	mu    sync.Mutex
	buf   bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// lines returns the lines that contain text.
func (l *logs) lines(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// bubble runs a test with a fleet.
func bubble(t *testing.T, test func(t *testing.T, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, memory.New())
		defer f.end()
		test(t, f)
	})
}

func newFleet(t *testing.T, table *memory.Table) *fleet {
	return &fleet{
		t: t, table: table, backend: table, replicas: make(map[string]*node), log: &logs{level: slog.LevelDebug}, told: make(chan struct{}),
		running: make(map[string]map[string]int), limits: make(map[string]int), tokens: make(map[string]uint64),
	}
}

// end ends all processes at once.
func (f *fleet) end() {
	f.table.SetFaults(nil)
	all := append(slices.Collect(maps.Values(f.replicas)), f.leavers...)
	for _, n := range all {
		select {
		case <-n.done:
		default:
			n.Kill()
		}
	}
	for _, n := range all {
		<-n.done
	}
	if f.t.Failed() {
		f.t.Log(strings.Join(f.log.lines(""), "")) // calls that come late may still log
	}
}

// want sets the tasks.
func (f *fleet) want(tasks ...replica.Task) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tasks = tasks
	close(f.told)
	f.told = make(chan struct{})
}

// named returns n tasks, each with an Input.
func named(n int) (tasks []replica.Task) {
	for i := range n {
		tasks = append(tasks, replica.Task{Name: fmt.Sprintf("t%02d", i), Input: int64(i + 1)})
	}
	return tasks
}

// source is a replica.Source of the tasks of want.
func (f *fleet) source(ctx context.Context, tell func([]replica.Task) error) error {
	for {
		f.mu.Lock()
		tasks, told := f.tasks, f.told
		f.mu.Unlock()
		if err := tell(tasks); err != nil {
			return err
		}
		select {
		case <-told:
		case <-ctx.Done():
			return nil
		}
	}
}

// work is what a replica runs. It records how many copies of a task run.
func (f *fleet) work(name string) func(ctx context.Context, task string) error {
	return func(ctx context.Context, task string) error {
		token, _ := worker.Token(ctx)
		f.mu.Lock()
		f.starts++
		if f.running[task] == nil {
			f.running[task] = make(map[string]int)
		}
		f.running[task][name]++
		if n := f.copies(task); n > max(f.limits[task], 1) {
			f.twice = append(f.twice, fmt.Sprintf("%s runs %d times: %v", task, n, f.running[task]))
		}
		f.tokens[task] = max(f.tokens[task], token)
		stubborn, began := f.stubborn[name], f.began
		f.mu.Unlock()
		if began != nil {
			began(ctx, name, task)
		}
		<-ctx.Done()
		if stubborn > 0 {
			time.Sleep(stubborn)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.running[task][name]--; f.running[task][name] == 0 {
			delete(f.running[task], name)
		}
		return nil
	}
}

// started returns how many runs have begun.
func (f *fleet) started() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.starts
}

// copiesOf returns how many copies of a task run.
func (f *fleet) copiesOf(task string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.copies(task)
}

// total returns how many copies of all tasks run.
func (f *fleet) total() (n int) {
	for _, load := range f.loads() {
		n += load
	}
	return n
}

// copies returns how many copies of a task run. mu is held.
func (f *fleet) copies(task string) (n int) {
	for _, k := range f.running[task] {
		n += k
	}
	return n
}

// join starts a replica.
func (f *fleet) join(name string, opts ...replica.Option) *node {
	f.t.Helper()
	return f.joinWith(name, f.source, opts...)
}

func (f *fleet) joinWith(name string, source replica.Source, opts ...replica.Option) *node {
	f.t.Helper()
	return f.start(name, source, f.work(name), opts...)
}

// joinWorking starts a replica with another function of its tasks.
func (f *fleet) joinWorking(name string, work func(context.Context, string) error) *node {
	f.t.Helper()
	return f.start(name, f.source, work)
}

func (f *fleet) start(name string, source replica.Source, work func(context.Context, string) error, opts ...replica.Option) *node {
	f.t.Helper()
	logger := slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: f.log.level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			a.Value = slog.StringValue(a.Value.Time().UTC().Format("04:05.000"))
		}
		return a
	}}))
	opts = append([]replica.Option{
		replica.WithName(name), replica.WithLease(lease, 2*time.Second), replica.WithLogger(logger), replica.WithService("test"),
		replica.WithLastResort(func(tasks []string) { f.t.Errorf("%s: last resort: %v", name, tasks) }),
	}, opts...)
	r, err := replica.New(f.backend, source, work, opts...)
	require.NoError(f.t, err)
	ctx, cancel := context.WithCancel(f.t.Context())
	n := &node{Replica: r, name: name, stop: cancel, done: make(chan struct{})}
	f.replicas[name] = n
	go func() {
		defer close(n.done)
		n.err = r.Run(ctx)
		cancel()
	}()
	return n
}

// kill ends a replica as kill -9 does.
func (f *fleet) kill(name string) {
	f.replicas[name].Kill()
	<-f.replicas[name].done
	delete(f.replicas, name)
}

// leave stops a replica and waits until it has left.
func (f *fleet) leave(name string) error {
	n := f.replicas[name]
	n.stop()
	<-n.done
	delete(f.replicas, name)
	return n.err
}

// leader returns the replica that leads, or nil.
func (f *fleet) leader() *node {
	for _, n := range f.replicas {
		if n.Status().Leading {
			return n
		}
	}
	return nil
}

// follower returns a replica that does not lead, the first by name, or nil.
func (f *fleet) follower() *node {
	for _, name := range slices.Sorted(maps.Keys(f.replicas)) {
		if n := f.replicas[name]; !n.Status().Leading {
			return n
		}
	}
	return nil
}

// cutOff makes all calls of a replica with its present ID fail.
func (f *fleet) cutOff(n *node) {
	id := n.Status().ID
	f.table.SetFaults(func(u replica.Update) memory.Fault {
		if u.Self == id {
			return memory.Fault{Err: memory.ErrInjected}
		}
		return memory.Fault{}
	})
}

// loads returns how many tasks each replica runs.
func (f *fleet) loads() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	loads := make(map[string]int)
	for _, on := range f.running {
		for name, n := range on {
			loads[name] += n
		}
	}
	return loads
}

// allRun reports whether exactly the wanted tasks run, each as often as wanted.
func (f *fleet) allRun() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	wanted := make(map[string]int)
	for _, t := range f.tasks {
		wanted[t.Name] = max(t.Instances, 1)
		if t.Instances < 0 {
			wanted[t.Name] = 0
		}
	}
	for task := range f.running {
		if f.copies(task) != wanted[task] {
			return false
		}
	}
	for task, n := range wanted {
		if f.copies(task) != n {
			return false
		}
	}
	return true
}

// within waits until done, and returns how long that took.
func (f *fleet) within(limit time.Duration, what string, done func() bool) time.Duration {
	f.t.Helper()
	began := time.Now()
	for !done() {
		if time.Since(began) > limit {
			for name, n := range f.replicas {
				s := n.Status()
				if s.Plan != nil {
					f.t.Logf("plan: %+v %+v", s.Plan.Waiting, s.Plan.Changes)
				}
				f.t.Logf("%s: %d leading %v epoch %d leader %q lease %v err %s members %d tasks %+v", name, s.ID, s.Leading, s.Epoch, s.Leader, s.Lease, s.Err, len(s.Members), s.Tasks)
			}
			f.t.Fatalf("%s: not within %v; loads %v", what, limit, f.loads())
		}
		time.Sleep(max(time.Millisecond, time.Since(began)/1000))
		synctest.Wait()
	}
	f.neverTwice()
	return time.Since(began)
}

// neverTwice fails if a task has run more often than it may.
func (f *fleet) neverTwice() {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Empty(f.t, f.twice)
}

// settle starts n replicas with tasks, and waits until everything runs, evenly.
func (f *fleet) settle(n, tasks int) {
	f.t.Helper()
	f.want(named(tasks)...)
	for i := range n {
		f.join(fmt.Sprintf("r%d", i))
	}
	f.within(2*lease, "settle", func() bool { return f.allRun() && f.even() })
}

// even reports whether the replicas run equally many tasks.
func (f *fleet) even() bool {
	loads := f.loads()
	least, most := 1<<30, 0
	for name := range f.replicas {
		least, most = min(least, loads[name]), max(most, loads[name])
	}
	return most-least <= 1
}
