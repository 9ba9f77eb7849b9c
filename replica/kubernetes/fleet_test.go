package kubernetes_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/kubernetes"
)

// fleet is a service: replicas in this process that share a table.
type fleet struct {
	t     *testing.T
	c     kubernetes.Config
	table string
	tasks []string
	log   *logs
	nodes []*node

	mu      sync.Mutex
	running map[string]map[string]int // by task and replica
	twice   []string
	starts  int
}

// node is a replica of a fleet.
type node struct {
	*replica.Replica
	name  string
	stop  context.CancelFunc
	ended chan struct{}
	err   error
	cut   *atomic.Bool // its calls fail
}

// cutOff is a table whose calls may fail.
type cutOff struct {
	*kubernetes.Table
	cut atomic.Bool
}

func (c *cutOff) Sync(ctx context.Context, u replica.Update) (replica.View, error) {
	if c.cut.Load() {
		return replica.View{}, errors.New("cut off")
	}
	return c.Table.Sync(ctx, u)
}

func (c *cutOff) Read(ctx context.Context, q replica.Query) (replica.View, error) {
	if c.cut.Load() {
		return replica.View{}, errors.New("cut off")
	}
	return c.Table.Read(ctx, q)
}

type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

const lease = 10 * time.Second

func newFleet(t *testing.T, c kubernetes.Config, n int) *fleet {
	f := &fleet{t: t, c: c, table: fmt.Sprint("fleet-", tables.Add(1)), log: &logs{}, running: make(map[string]map[string]int)}
	for i := range n {
		f.tasks = append(f.tasks, fmt.Sprintf("task-%03d", i))
	}
	t.Cleanup(func() {
		for _, n := range f.nodes {
			n.stop()
		}
		for _, n := range f.nodes {
			<-n.ended
		}
	})
	return f
}

// start starts a replica, which ends with the test.
func (f *fleet) start(name string) *node {
	log := slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug})).With("replica", name)
	c := f.c
	if c.TokenFile == "" {
		c.Token = name
	}
	table := &cutOff{Table: kubernetes.New(c, f.table, kubernetes.WithLogger(log))}
	r, err := replica.New(table, replica.Names(f.tasks...), func(ctx context.Context, task string) error {
		f.ran(name, task, 1)
		<-ctx.Done()
		f.ran(name, task, -1)
		return nil
	}, replica.WithName(name), replica.WithLease(lease, time.Second), replica.WithLogger(log), replica.WithService("fleet"), replica.WithDrain(5*time.Second))
	require.NoError(f.t, err)
	n := &node{Replica: r, name: name, ended: make(chan struct{}), cut: &table.cut}
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.Background())
	go func() {
		defer close(n.ended)
		n.err = r.Run(ctx)
	}()
	f.nodes = append(f.nodes, n)
	return n
}

// leave tells a replica to end, and waits for it.
func (f *fleet) leave(n *node) {
	f.t.Helper()
	began := time.Now()
	n.stop()
	<-n.ended
	require.NoError(f.t, n.err, "%s", f.log)
	f.t.Logf("%s has left: %v", n.name, time.Since(began).Round(time.Millisecond))
}

// ran records that a run of a task begins or ends.
func (f *fleet) ran(name, task string, delta int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running[task] == nil {
		f.running[task] = make(map[string]int)
	}
	if f.running[task][name] += delta; f.running[task][name] == 0 {
		delete(f.running[task], name)
	}
	if f.starts += max(delta, 0); delta > 0 && len(f.running[task]) > 1 {
		f.twice = append(f.twice, fmt.Sprintf("%s: %v", task, f.running[task]))
	}
}

// share returns how many tasks a replica runs, and how many run at all.
func (f *fleet) share(name string) (own, all int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, by := range f.running {
		if own += by[name]; len(by) > 0 {
			all++
		}
	}
	return own, all
}

// started returns how many runs have begun.
func (f *fleet) started() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.starts
}

// await waits until all tasks run, and each of the replicas has its share.
func (f *fleet) await(what string, within time.Duration, nodes ...*node) {
	f.t.Helper()
	f.wait(what, within, func() bool {
		_, all := f.share("")
		for _, n := range nodes {
			if own, _ := f.share(n.name); own < len(f.tasks)/len(nodes)-1 {
				return false
			}
		}
		return all == len(f.tasks)
	})
}

// wait waits until a condition holds. Nothing may run twice.
func (f *fleet) wait(what string, within time.Duration, holds func() bool) {
	f.t.Helper()
	began := time.Now()
	for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
		f.mu.Lock()
		twice := f.twice
		f.mu.Unlock()
		require.Empty(f.t, twice, what)
		if holds() {
			f.t.Logf("%s: %v", what, time.Since(began).Round(time.Millisecond))
			return
		}
		require.Less(f.t, time.Since(began), within, "%s\n%s", what, f.log)
	}
}

// calm lets time pass, in which nothing starts, stops or runs twice.
func (f *fleet) calm(what string, d time.Duration) {
	f.t.Helper()
	starts, end := f.started(), time.Now().Add(d)
	f.wait(what, d+time.Minute, func() bool {
		_, all := f.share("")
		require.Equal(f.t, len(f.tasks), all, "%s: tasks that run\n%s", what, f.log)
		return time.Now().After(end)
	})
	require.Equal(f.t, starts, f.started(), "%s: starts", what)
}
