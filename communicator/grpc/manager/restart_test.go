package manager_test

// A manager that is restarted, with real connections, a store in a file, and real
// members.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/boltfile"
	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/internal/proctest"
	"github.com/f8949c05/orchestrator/worker"
)

// journal records what tasks report.
type journal struct {
	mu      sync.Mutex
	started map[string]int
	running map[string]int
	twice   []string // tasks that ran twice at the same time
}

func (j *journal) run(ctx context.Context, task string) error {
	j.mu.Lock()
	j.started[task]++
	if j.running[task]++; j.running[task] > 1 {
		j.twice = append(j.twice, task)
	}
	j.mu.Unlock()
	defer func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.running[task]--
	}()
	if strings.HasPrefix(task, "short") {
		return nil
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// sum returns the number of running tasks, and of all starts.
func (j *journal) sum() (running, started int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, n := range j.running {
		running += n
	}
	for _, n := range j.started {
		started += n
	}
	return running, started
}

// managing is a running manager.
type managing struct {
	*manager.Manager
	terms atomic.Int64
	stop  func()
}

// manage runs a manager at an address with the store at path.
func manage(t *testing.T, address, path string) (m *managing, at string) {
	t.Helper()
	store, err := boltfile.OpenStore(path)
	require.NoError(t, err)
	m = &managing{}
	m.Manager, err = manager.New(store,
		manager.WithInterval(50*time.Millisecond),
		manager.WithOrchestrator(
			orchestrator.WithSettle(10*time.Millisecond),
			orchestrator.WithStats(func(orchestrator.TermStats) { m.terms.Add(1) })))
	require.NoError(t, err)
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx, l) }()
	m.stop = sync.OnceFunc(func() {
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		require.NoError(t, store.Close())
	})
	t.Cleanup(m.stop)
	return m, l.Addr().String()
}

// join makes a worker whose tasks may complete a member until the test ends.
func join(t *testing.T, address, name string, j *journal) {
	t.Helper()
	joinWith(t, address, name, j, worker.WithCompletion(func(string) {}))
}

// joinWith makes a worker with options a member until the test ends.
func joinWith(t *testing.T, address, name string, j *journal, opts ...worker.Option) {
	t.Helper()
	w, err := worker.New(j.run, append(opts, worker.WithLease(20*time.Second, time.Second))...)
	require.NoError(t, err)
	member, err := manager.NewMember(address, name, w)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- member.Run(ctx, l) }()
	over := errors.New("test is over")
	t.Cleanup(func() {
		cancel(over)
		require.ErrorIs(t, <-done, over)
	})
}

func eventually(t *testing.T, f func() bool) {
	t.Helper()
	require.Eventually(t, f, time.Minute, 5*time.Millisecond)
}

// There are 20 workers, one of which is late. Running tasks continue, completed ones
// do not run again, and no task of the late worker is started elsewhere.
func TestR2_ARestartedManagerDisturbsNothing(t *testing.T) {
	const workers, long, short = 20, 100, 40
	path := filepath.Join(t.TempDir(), "manager.db")
	first, at := manage(t, proctest.FreeAddrs(t, 1)[0], path)
	j := &journal{started: make(map[string]int), running: make(map[string]int)}
	var late *netfault.Proxy
	for i := range workers {
		to := at
		if i == 7 {
			var err error
			late, err = netfault.New(at)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, late.Close()) })
			to = late.Addr()
		}
		join(t, to, fmt.Sprint("worker", i), j)
	}
	eventually(t, func() bool { return len(first.Members()) == workers })
	var items []manager.Item
	for i := range long {
		items = append(items, manager.Item{Name: fmt.Sprint("long", i)})
	}
	for i := range short {
		items = append(items, manager.Item{Name: fmt.Sprint("short", i)})
	}
	_, err := first.PutAll(t.Context(), items)
	require.NoError(t, err)
	completed := func(m *managing) int {
		done, err := m.Completed("", manager.MaxList)
		require.NoError(t, err)
		return len(done)
	}
	eventually(t, func() bool {
		running, _ := j.sum()
		return running == long && completed(first) == short
	})
	settled := first.terms.Load() + 3
	eventually(t, func() bool { return first.terms.Load() >= settled })
	_, before := j.sum()
	late.Refuse()
	first.stop()

	second, _ := manage(t, at, path)
	_, err = second.PutAll(t.Context(), append(items, manager.Item{Name: "long and new"}))
	require.NoError(t, err)
	eventually(t, func() bool {
		heard := 0
		for _, m := range second.Members() {
			if !m.Heard.IsZero() {
				heard++
			}
		}
		return heard == workers-1
	})
	require.Zero(t, second.terms.Load())
	running, started := j.sum()
	require.Equal(t, long, running)
	require.Equal(t, before, started)

	late.Heal()
	eventually(t, func() bool { running, _ := j.sum(); return running == long+1 })
	settled = second.terms.Load() + 3
	eventually(t, func() bool { return second.terms.Load() >= settled })
	running, started = j.sum()
	require.Equal(t, long+1, running)
	require.Equal(t, before+1, started, "only the new task was started")
	require.Equal(t, short, completed(second))
	require.Empty(t, j.twice)
}
