package e2e_test

import (
	"fmt"
	"path/filepath"
	"slices"
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
	*proctest.Group
	settings nodeSettings // of every node, except name and endpoints
	etcd     *proctest.Process
	endpoint string
	nodes    []*node
	client   *clientv3.Client
	registry *etcd.Registry
}

// node is a process and its restarts under the same name.
type node struct {
	*proctest.Process
	only           string // onlyCandidate, onlyWorker or empty
	leader, worker *netfault.Proxy
}

// startCluster starts an etcd, n nodes and the given number of tasks.
func startCluster(t *testing.T, n, tasks int, s nodeSettings) *cluster {
	t.Helper()
	c := &cluster{Group: proctest.NewGroup(t), settings: s, endpoint: proctest.FreeAddrs(t, 1)[0]}
	c.settings.Journal = c.Path()
	c.etcd = c.Start(serverRole, serverRole, serverSettings{Dir: filepath.Join(c.Dir, "etcd"), Listen: c.endpoint})
	var err error
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
	n := &node{only: only, leader: c.proxy(), worker: c.proxy()}
	s := c.settings
	s.Only = only
	s.Name, s.Leader, s.Worker = name, "http://"+n.leader.Addr(), "http://"+n.worker.Addr()
	n.Process = c.Start(name, nodeRole, s)
	c.nodes = append(c.nodes, n)
}

func (c *cluster) proxy() *netfault.Proxy {
	p, err := netfault.New(c.endpoint)
	require.NoError(c.T, err)
	c.T.Cleanup(func() { _ = p.Close() })
	return p
}

// settled reports whether each of the tasks, and no other, runs once, evenly spread
// over the living nodes.
func (c *cluster) settled(tasks int) bool {
	c.Look()
	var nodes []string
	for _, n := range c.nodes {
		if n.Alive() && n.only != onlyCandidate {
			nodes = append(nodes, n.Name)
		}
	}
	return c.History.IsEven(tasks, nodes)
}

// leading returns the node that became leader last, and its epoch.
func (c *cluster) leading() (*node, uint64) {
	c.T.Helper()
	c.Look()
	for _, e := range slices.Backward(c.Events) {
		if e.Kind == leads {
			i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.Name == e.Node })
			require.GreaterOrEqual(c.T, i, 0, "node %q", e.Node)
			return c.nodes[i], e.Token
		}
	}
	require.Fail(c.T, "no node has led", c.Logs())
	return nil, 0
}

// awaitSuccessor waits for a leader after the one of an epoch.
func (c *cluster) awaitSuccessor(epoch uint64, within time.Duration) {
	c.T.Helper()
	c.Wait("another leads", within, func() bool { _, now := c.leading(); return now > epoch })
}
