package e2e_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

// cluster is an etcd and nodes, with the journal of their events.
type cluster struct {
	t        *testing.T
	settings nodeSettings // of every node, except name and endpoints
	etcd     *proctest.Process
	endpoint string
	nodes    []*node
	client   *clientv3.Client
	registry *etcd.Registry
	journal  *proctest.Journal
	reader   *proctest.Reader
	events   []proctest.Event
	history  *proctest.History
	epoch    uint64 // of the last leader in the journal
	leader   string
}

// node is a process and its restarts under the same name.
type node struct {
	*proctest.Process
	name, only     string
	leader, worker *netfault.Proxy
}

// startCluster starts an etcd, n nodes and the given number of tasks.
func startCluster(t *testing.T, n, tasks int, s nodeSettings) *cluster {
	t.Helper()
	dir := t.TempDir()
	c := &cluster{t: t, settings: s, history: proctest.NewHistory(), endpoint: proctest.FreeAddrs(t, 1)[0]}
	c.settings.Journal = filepath.Join(dir, "journal")
	j, err := proctest.OpenJournal(c.settings.Journal, "test")
	require.NoError(t, err)
	c.journal, c.reader = j, proctest.OpenReader(t, c.settings.Journal)

	c.etcd = &proctest.Process{T: t, Role: serverRole, Settings: serverSettings{Dir: filepath.Join(dir, "etcd"), Listen: c.endpoint}}
	c.etcd.Start()
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

// add starts another node. only restricts it to a candidate or a worker.
func (c *cluster) add(name, only string) {
	n := &node{name: name, only: only, leader: c.proxy(), worker: c.proxy()}
	s := c.settings
	s.Only = only
	s.Name, s.Leader, s.Worker = name, "http://"+n.leader.Addr(), "http://"+n.worker.Addr()
	n.Process = &proctest.Process{T: c.t, Role: nodeRole, Settings: s, Journal: c.journal}
	n.Start()
	c.nodes = append(c.nodes, n)
}

func (c *cluster) proxy() *netfault.Proxy {
	p, err := netfault.New(c.endpoint)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = p.Close() })
	return p
}

// look reads new events of the journal, and returns the nodes of each running task.
func (c *cluster) look() map[string][]string {
	c.t.Helper()
	events := c.reader.Next()
	c.events = append(c.events, events...)
	for _, e := range events {
		if e.Kind == leads {
			c.leader, c.epoch = e.Node, e.Token
		}
	}
	require.NoError(c.t, c.history.Add(events...))
	return c.history.Running()
}

// settled reports whether each of the tasks, and no other, runs once, evenly spread
// over the living nodes.
func (c *cluster) settled(tasks int) bool {
	c.look()
	var nodes []string
	for _, n := range c.nodes {
		if n.Alive() && n.only != onlyCandidate {
			nodes = append(nodes, n.name)
		}
	}
	return c.history.IsEven(tasks, nodes)
}

// wait waits until cond holds, and fails the test after the given time.
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

// leading returns the node that became leader last.
func (c *cluster) leading() *node {
	c.look()
	return c.node(c.leader)
}

func (c *cluster) node(name string) *node {
	i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.name == name })
	require.GreaterOrEqual(c.t, i, 0, "node %q", name)
	return c.nodes[i]
}

// logs returns the last output of each process.
func (c *cluster) logs() string {
	var b strings.Builder
	for _, n := range c.nodes {
		fmt.Fprintf(&b, "--- %s\n%s\n", n.name, n.Output.Tail())
	}
	return b.String()
}
