package proof_test

// The cluster: the processes, and what is done to them.

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/internal/proxy"
)

// cluster is an etcd, nodes, and what they have written down.
type cluster struct {
	t        *testing.T
	settings nodeSettings // of every node, but for its name and endpoints
	etcd     *process
	endpoint string
	nodes    []*node
	client   *clientv3.Client
	registry *etcd.Registry
	journal  *journal
	reader   *reader
	events   []event
	history  *history
	epoch    uint64 // of the last leader seen in the journal
	leader   string
}

// node is one process, or its successors of the same name.
type node struct {
	*process
	name, only     string
	leader, worker *proxy.Proxy
}

// startCluster starts an etcd and n nodes, with so many tasks to run.
func startCluster(t *testing.T, n, tasks int, s nodeSettings) *cluster {
	t.Helper()
	dir := t.TempDir()
	c := &cluster{t: t, settings: s, history: newHistory(), endpoint: freeAddr(t)}
	c.settings.Journal = filepath.Join(dir, "journal")
	j, err := openJournal(c.settings.Journal, "test")
	require.NoError(t, err)
	c.journal, c.reader = j, openReader(t, c.settings.Journal)

	c.etcd = &process{t: t, env: serverEnv, name: "etcd", settings: serverSettings{Dir: filepath.Join(dir, "etcd"), Listen: c.endpoint}}
	c.etcd.start()
	c.client, err = dial("http://" + c.endpoint)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.client.Close() })
	c.registry, err = etcd.NewRegistry(c.client)
	require.NoError(t, err)
	for i := range tasks {
		_, err := c.registry.Create(t.Context(), etcd.Item{Name: fmt.Sprintf("t%03d", i)})
		require.NoError(t, err)
	}
	for i := range n {
		c.add(fmt.Sprint("n", i), "")
	}
	return c
}

// add starts a further node, which may be only a candidate or only a worker.
func (c *cluster) add(name, only string) {
	n := &node{name: name, only: only, leader: c.proxy(), worker: c.proxy()}
	s := c.settings
	s.Only = only
	s.Name, s.Leader, s.Worker = name, "http://"+n.leader.Addr(), "http://"+n.worker.Addr()
	n.process = &process{t: c.t, env: nodeEnv, name: name, settings: s, journal: c.journal}
	n.start()
	c.nodes = append(c.nodes, n)
}

func (c *cluster) proxy() *proxy.Proxy {
	p, err := proxy.New(c.endpoint)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = p.Close() })
	return p
}

// look reads the journal, and says where each task runs.
func (c *cluster) look() map[string][]string {
	c.t.Helper()
	events := c.reader.next(c.t)
	c.events = append(c.events, events...)
	for _, e := range events {
		if e.Kind == leads {
			c.leader, c.epoch = e.Node, e.Token
		}
	}
	require.NoError(c.t, c.history.add(events...))
	return c.history.running()
}

// settled reports whether each of n tasks runs once, evenly over the nodes that
// are there.
func (c *cluster) settled(tasks int) bool {
	running := c.look()
	if len(running) != tasks {
		return false
	}
	load := map[string]int{}
	for _, where := range running {
		if len(where) != 1 {
			return false
		}
		load[where[0]]++
	}
	var loads []int
	for _, n := range c.nodes {
		if n.alive() && n.only != onlyCandidate {
			loads = append(loads, load[n.name])
		}
	}
	return slices.Max(loads)-slices.Min(loads) <= 1
}

// wait waits until cond holds, and fails the test where that takes too long.
func (c *cluster) wait(what string, within time.Duration, cond func() bool) time.Duration {
	c.t.Helper()
	begin := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Since(begin) > within {
			require.FailNow(c.t, "not in time", "%s: not within %v; running: %v\n%s", what, within, c.look(), c.logs())
		}
		<-tick.C
	}
	return time.Since(begin)
}

// leading returns the node that said last that it leads.
func (c *cluster) leading() *node {
	c.look()
	return c.node(c.leader)
}

func (c *cluster) node(name string) *node {
	i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.name == name })
	require.GreaterOrEqual(c.t, i, 0, "node %q", name)
	return c.nodes[i]
}

// logs are the last lines that each process has printed.
func (c *cluster) logs() string {
	var b strings.Builder
	for _, n := range c.nodes {
		fmt.Fprintf(&b, "--- %s\n%s\n", n.name, n.output.tail())
	}
	return b.String()
}

// freeAddr is an address that nobody listens at now. The kernel chooses it; an
// etcd that is started again has to come back to it.
func freeAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// process is this test's binary, started again as something else.
type process struct {
	t        *testing.T
	env      string
	name     string
	settings any
	journal  *journal // nil: its end is not written down
	output   lastLines

	cmd    *exec.Cmd
	exited chan struct{}
}

func (p *process) start() {
	p.t.Helper()
	text, err := json.Marshal(p.settings)
	require.NoError(p.t, err)
	self, err := os.Executable()
	require.NoError(p.t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), p.env+"="+string(text))
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	// It ends when this end of its standard input does: when the test is over,
	// however that ends.
	lifeline, err := cmd.StdinPipe()
	require.NoError(p.t, err)
	require.NoError(p.t, cmd.Start())
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // how it ended is no news: most are killed
		if p.journal != nil {
			_ = p.journal.write(event{Kind: died, PID: cmd.Process.Pid, Text: cmd.ProcessState.String()})
		}
	}()
	p.cmd, p.exited = cmd, exited
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
		_ = lifeline.Close()
	})
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// kill is SIGKILL. It returns when the process is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// leave is SIGTERM. It returns at once.
func (p *process) leave() { require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM)) }

// pause stops the process with SIGSTOP, and returns once it has stopped.
func (p *process) pause() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	for !p.isStopped() {
		runtime.Gosched() // it takes the kernel some microseconds
	}
	require.NoError(p.t, p.journal.write(event{Kind: paused, PID: p.pid()}))
}

// resume lets a stopped process go on.
func (p *process) resume() {
	p.t.Helper()
	require.NoError(p.t, p.journal.write(event{Kind: resumed, PID: p.pid()}))
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGCONT))
}

// isStopped reads the state of the process from the kernel: all its threads
// have to have stopped.
func (p *process) isStopped() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.pid()))
	require.NoError(p.t, err)
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		_, rest, ok := strings.Cut(string(stat), ") ") // after the name, which may hold anything
		if !ok || rest[0] != 'T' {
			return false
		}
	}
	return len(threads) > 0
}
