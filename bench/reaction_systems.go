package main

// The systems whose reaction time is measured.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/communicator/memory"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/worker"
)

// inMemory is a cluster on communicator/memory, and its leader.
type inMemory struct {
	cluster  *memory.Cluster[string, string]
	interval time.Duration
	taskLog  taskLog
	terms    termLog
	tasks    []orchestrator.Task[string] // the initial tasks of every leader
	workers  []orchestrator.Worker[string]

	ctx    context.Context
	cancel context.CancelCauseFunc
	leader *orchestrator.Orchestrator[string, string]
	end    context.CancelCauseFunc // ends the leader
	ended  sync.WaitGroup
}

func startInMemory(ctx context.Context, t transport, interval time.Duration) (system, error) {
	m := &inMemory{interval: interval}
	m.taskLog.init()
	m.terms.init()
	m.ctx, m.cancel = context.WithCancelCause(ctx)
	var err error
	m.cluster, err = memory.New(func(ctx context.Context, worker, task string) error {
		if err := m.taskLog.start(task, worker); err != nil {
			m.cancel(err)
		}
		defer m.taskLog.stop(task, worker)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if err != nil {
		return nil, err
	}
	for i := range t.instances {
		m.tasks = append(m.tasks, orchestrator.Task[string]{Name: taskName(i)})
	}
	for i := range t.workers - 1 {
		m.workers = append(m.workers, orchestrator.Worker[string]{Name: workerName(i)})
		m.cluster.Start(workerName(i))
	}
	return m, m.startLeader()
}

func (m *inMemory) observed() (context.Context, *taskLog, *termLog) {
	return m.ctx, &m.taskLog, &m.terms
}

func (m *inMemory) add(task string) error { return m.leader.AddTask(task) }

func (m *inMemory) remove(tasks []string) error {
	for _, task := range tasks {
		m.leader.RemoveTask(task)
	}
	return nil
}

func (m *inMemory) join(worker string) (time.Time, error) {
	start := time.Now()
	m.cluster.Start(worker)
	return start, m.leader.AddWorker(worker)
}

// kill also removes the worker, because in memory nothing else ends its membership.
func (m *inMemory) kill(worker string) (time.Time, error) {
	m.cluster.Kill(worker)
	m.taskLog.killed(worker)
	m.leader.RemoveWorker(worker)
	return time.Now(), nil
}

func (m *inMemory) stopLeader() {
	m.end(errMeasured)
	m.ended.Wait()
}

func (m *inMemory) startLeader() error {
	var err error
	if m.leader, err = orchestrator.New(m.cluster, orchestrator.WithStats(m.terms.note)); err != nil {
		return err
	}
	if err := errors.Join(m.leader.UpdateTasks(m.tasks), m.leader.UpdateWorkers(m.workers)); err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(m.ctx)
	m.end = end
	m.ended.Go(func() {
		if err := m.leader.Run(ctx, m.interval); ctx.Err() == nil {
			m.cancel(fmt.Errorf("the leader: %w", err))
		}
	})
	return nil
}

func (m *inMemory) close() error {
	m.cancel(errMeasured)
	m.ended.Wait()
	return m.cluster.Close(context.WithoutCancel(m.ctx))
}

// onGRPC is a manager and its members, except the guest.
type onGRPC struct {
	*grpcFleet
	process workerProcess
}

func startOnGRPC(ctx context.Context, t transport, interval time.Duration) (system, error) {
	if err := enoughDescriptors(t.workers); err != nil {
		return nil, err
	}
	f, err := startGRPCFleet(ctx, interval, t.lease)
	if err != nil {
		return nil, err
	}
	s := &onGRPC{f, workerProcess{lease: t.shortLease, taskLog: &f.taskLog, fail: f.cancel}}
	for range t.workers - 1 {
		if err := f.startMember(slots, false); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	// Add the tasks when all members have joined; otherwise tasks would move.
	_, err = f.terms.wait(f.ctx, 0, func(s orchestrator.TermStats) bool { return s.Workers.Answering == t.workers-1 })
	if err == nil {
		err = f.expect(0, t.instances)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *onGRPC) observed() (context.Context, *taskLog, *termLog) { return s.ctx, &s.taskLog, &s.terms }

func (s *onGRPC) add(task string) error {
	_, err := s.manager.Put(s.ctx, manager.Item{Name: task, Content: make([]byte, contentBytes)})
	return err
}

func (s *onGRPC) remove(tasks []string) error { return s.manager.Delete(s.ctx, tasks...) }

func (s *onGRPC) join(worker string) (time.Time, error) {
	return s.process.join(s.ctx, workerSpec{Name: worker, Manager: s.address})
}

// kill returns the end of the lease as the manager knows it.
func (s *onGRPC) kill(worker string) (time.Time, error) {
	if _, err := s.process.kill(); err != nil {
		return time.Time{}, err
	}
	for _, m := range s.manager.Members() {
		if m.Name == worker {
			return m.Until, nil
		}
	}
	return time.Time{}, errors.New("the lease had ended already")
}

func (s *onGRPC) stopLeader() {
	s.stopManager(errMeasured)
	s.managing.Wait()
}

func (s *onGRPC) startLeader() error { return s.manage() }

func (s *onGRPC) close() error { return errors.Join(s.process.close(), s.grpcFleet.close()) }

// onRealEtcd is an etcd, a leader, and the members except the guest.
type onRealEtcd struct {
	*etcdCluster
	process  workerProcess
	interval time.Duration
	leader   *leadership
	registry *etcd.Registry
}

func startOnEtcd(ctx context.Context, t transport, interval time.Duration) (_ system, err error) {
	st, err := startEtcdCluster(ctx, t.lease)
	if err != nil {
		return nil, err
	}
	s := &onRealEtcd{etcdCluster: st, process: workerProcess{lease: t.shortLease, taskLog: &st.taskLog, fail: st.cancel}, interval: interval}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	client, err := st.connect(users)
	if err != nil {
		return nil, err
	}
	if s.registry, err = etcd.NewRegistry(client); err != nil {
		return nil, err
	}
	if err := st.write(t.instances, make([]byte, etcdContent)); err != nil {
		return nil, fmt.Errorf("fill the registry: %w", err)
	}
	for range t.workers - 1 {
		if err := st.startMember(); err != nil {
			return nil, err
		}
	}
	return s, s.startLeader()
}

func (s *onRealEtcd) observed() (context.Context, *taskLog, *termLog) {
	return s.ctx, &s.taskLog, &s.terms
}

func (s *onRealEtcd) add(task string) error {
	_, err := s.registry.Create(s.ctx, etcd.Item{Name: task, Content: make([]byte, etcdContent)})
	return err
}

func (s *onRealEtcd) remove(tasks []string) error {
	for _, task := range tasks {
		if err := s.registry.Delete(s.ctx, task); err != nil {
			return err
		}
	}
	return nil
}

func (s *onRealEtcd) join(worker string) (time.Time, error) {
	return s.process.join(s.ctx, workerSpec{Name: worker, Etcd: s.server.Endpoints()})
}

// kill computes the end of the lease from the last answer to a renewal.
func (s *onRealEtcd) kill(string) (time.Time, error) {
	renewed, err := s.process.kill()
	return renewed.Add(s.process.lease), err
}

func (s *onRealEtcd) stopLeader() { s.leader.resign() }

func (s *onRealEtcd) startLeader() (err error) {
	s.leader, err = s.lead(func(ctx context.Context, o *orchestrator.Orchestrator[etcd.WorkerID, string]) error {
		return o.Run(ctx, s.interval)
	})
	return err
}

func (s *onRealEtcd) close() error { return errors.Join(s.process.close(), s.etcdCluster.close()) }

// The worker processes that join and are killed.

// workerProcess is at most one worker process.
type workerProcess struct {
	lease   time.Duration
	taskLog *taskLog
	fail    func(error)

	spec   workerSpec
	cmd    *exec.Cmd      // nil: no process
	stdin  io.WriteCloser // the process exits when it is closed
	ended  chan struct{}
	killed chan struct{} // closed before the process is killed

	mu      sync.Mutex
	renewed time.Time // the last answered renewal of the lease
}

// workerSpec is the configuration of a worker process.
type workerSpec struct {
	Name    string
	Lease   time.Duration
	Manager string   // the address of the manager, over gRPC
	Etcd    []string // the endpoints, on etcd
}

// workerEnv makes this program a worker process. It holds a workerSpec as JSON.
const workerEnv = "ORCHESTRATOR_BENCH_WORKER"

// A worker process reports lines on its standard output: the time in nanoseconds,
// the kind and, if any, the task.
const (
	saysJoin    = "join"
	saysRenewed = "renewed"
	saysStart   = "start"
	saysStop    = "stop"
)

// join starts a process, and returns when it began to join.
func (g *workerProcess) join(ctx context.Context, spec workerSpec) (time.Time, error) {
	spec.Lease = g.lease
	text, err := json.Marshal(spec)
	if err != nil {
		return time.Time{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return time.Time{}, err
	}
	var stderr bytes.Buffer
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return time.Time{}, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return time.Time{}, err
	}
	if err := cmd.Start(); err != nil {
		return time.Time{}, err
	}
	g.spec, g.cmd, g.stdin = spec, cmd, stdin
	g.ended, g.killed = make(chan struct{}), make(chan struct{})
	joined := make(chan time.Time, 1)
	go func() {
		defer close(g.ended)
		err := g.follow(stdout, joined)
		err = errors.Join(err, cmd.Wait())
		select {
		case <-g.killed:
		default:
			g.fail(fmt.Errorf("worker process %s: %w: %s", spec.Name, err, stderr.Bytes()))
		}
	}()
	select {
	case at := <-joined:
		return at, nil
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
}

// follow records the reports of the process until it ends.
func (g *workerProcess) follow(stdout io.Reader, joined chan<- time.Time) error {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		nanos, said, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.ParseInt(nanos, 10, 64)
		if err != nil {
			return fmt.Errorf("bad report %q: %w", lines.Text(), err)
		}
		at := time.Unix(0, n)
		switch kind, task, _ := strings.Cut(said, " "); kind {
		case saysJoin:
			joined <- at
		case saysRenewed:
			g.mu.Lock()
			g.renewed = at
			g.mu.Unlock()
		case saysStart:
			if err := g.taskLog.startAt(at, task, g.spec.Name); err != nil {
				g.fail(err)
			}
		case saysStop:
			g.taskLog.stop(task, g.spec.Name)
		}
	}
	return lines.Err()
}

// kill sends SIGKILL, waits until the process has ended, and returns when its lease
// was last renewed.
func (g *workerProcess) kill() (time.Time, error) {
	close(g.killed)
	err := g.cmd.Process.Kill()
	<-g.ended
	g.cmd = nil
	g.taskLog.killed(g.spec.Name)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.renewed, errors.Join(err, ignoreClosed(g.stdin.Close()))
}

// ignoreClosed returns nil if Wait has already closed the pipe.
func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// close kills the process, if any.
func (g *workerProcess) close() error {
	if g.cmd == nil {
		return nil
	}
	_, err := g.kill()
	return err
}

// workerMain is the main function of a worker process. In any other process it
// returns immediately.
func workerMain() {
	text, ok := os.LookupEnv(workerEnv)
	if !ok {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1) // the benchmark has ended
	}()
	var spec workerSpec
	err := json.Unmarshal([]byte(text), &spec)
	if err == nil {
		err = spec.run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// reporter writes the lines of a worker process.
type reporter struct{ mu sync.Mutex }

func (r *reporter) say(kind, task string) {
	now := time.Now().UnixNano()
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Printf("%d %s %s\n", now, kind, task)
}

// run runs a worker until the process is killed.
func (spec workerSpec) run(ctx context.Context) error {
	var r reporter
	w, err := worker.New(func(ctx context.Context, task string) error {
		r.say(saysStart, task)
		defer r.say(saysStop, task)
		<-ctx.Done()
		return context.Cause(ctx)
	}, worker.WithLease(spec.Lease, spec.Lease/5))
	if err != nil {
		return err
	}
	if spec.Manager != "" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		member, err := manager.NewMember(spec.Manager, spec.Name, w)
		if err != nil {
			return err
		}
		r.say(saysJoin, "")
		return member.Run(ctx, l)
	}
	clientConfig := etcd.ClientConfig(spec.Etcd...)
	clientConfig.DialOptions = append(clientConfig.DialOptions, grpc.WithStatsHandler(renewals{&r}))
	client, err := clientv3.New(clientConfig)
	if err != nil {
		return err
	}
	member, err := etcd.NewMember(client, spec.Name, w)
	if err != nil {
		return err
	}
	r.say(saysJoin, "")
	return member.Run(ctx)
}

// renewals reports each answer about a lease. It is a stats.Handler.
type renewals struct{ *reporter }

var _ stats.Handler = renewals{}

// TagRPC stores the method in the context for HandleRPC.
func (r renewals) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, methodKey{}, info.FullMethodName)
}

// HandleRPC reports an answer.
func (r renewals) HandleRPC(ctx context.Context, s stats.RPCStats) {
	_, answer := s.(*stats.InPayload)
	if method, _ := ctx.Value(methodKey{}).(string); answer && strings.HasPrefix(method, leaseMethods) {
		r.say(saysRenewed, "")
	}
}

// TagConn does nothing.
func (r renewals) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (r renewals) HandleConn(context.Context, stats.ConnStats) {}
