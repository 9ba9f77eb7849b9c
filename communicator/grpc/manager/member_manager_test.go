package manager

// Members with a real manager, in a synctest bubble.

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"
	"github.com/f8949c05/orchestrator/worker"
)

// memberWorker is a member on a testNet. Its connection to the manager can be cut.
type memberWorker struct {
	*testWorker
	member *Member
	line   *line
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error // what Run returned, once done is closed
}

// startMemberWorker starts a member that is served at an address with its name, or at
// another address if that is in use.
func (n *testNet) startMemberWorker(name, at string, opts ...worker.Option) *memberWorker {
	n.t.Helper()
	f := &memberWorker{testWorker: &testWorker{n: n, name: name, address: at + ".test:7000"}, line: &line{}, done: make(chan struct{})}
	run := func(ctx context.Context, task string) error {
		n.mu.Lock()
		if twice := n.runs[task]; len(twice) > 0 {
			n.t.Errorf("%s starts on %s while it runs on %v", task, name, twice)
		}
		n.mu.Unlock()
		return f.run(ctx, task)
	}
	w, err := worker.New(run, append([]worker.Option{worker.WithLease(lease, stopping), worker.WithCompletion(func(string) {})}, opts...)...)
	require.NoError(n.t, err)
	f.Worker = w
	f.member, err = NewMember(managerAt, name, w, WithAdvertise(f.address), communicator.WithLogger(slog.New(slog.DiscardHandler)),
		memberOptionFunc(func(s *option.Member) {
			s.Dialing = []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := n.dial(ctx, address)
				return f.line.over(conn), err
			})}
		}))
	require.NoError(n.t, err)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(n.t.Context()))
	f.cancel = cancel
	l := n.listen(f.address)
	go func() {
		defer close(f.done)
		f.err = f.member.Run(ctx, l)
	}()
	n.t.Cleanup(func() {
		f.line.heal()
		cancel(errOver)
		<-f.done
	})
	return f
}

// line is a network path that can be cut like a cable: neither end is notified, and
// data in transit arrives when the line is whole again. The zero line is whole.
type line struct {
	mu    sync.Mutex
	whole chan struct{} // closed when it is whole again; nil: it is
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.whole == nil {
		l.whole = make(chan struct{})
	}
}

func (l *line) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.whole != nil {
		close(l.whole)
		l.whole = nil
	}
}

// over returns a connection over the line.
func (l *line) over(conn net.Conn) net.Conn {
	if conn == nil {
		return nil
	}
	return &overLine{Conn: conn, line: l, closed: make(chan struct{})}
}

type overLine struct {
	net.Conn
	line   *line
	once   sync.Once
	closed chan struct{}
}

func (c *overLine) wait() {
	c.line.mu.Lock()
	whole := c.line.whole
	c.line.mu.Unlock()
	if whole == nil {
		return
	}
	select {
	case <-whole:
	case <-c.closed:
	}
}

func (c *overLine) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.wait()
	return n, err
}

func (c *overLine) Write(b []byte) (int, error) {
	c.wait()
	return c.Conn.Write(b)
}

func (c *overLine) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// after waits for a duration.
func (n *testNet) after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func names(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(prefix, i))
	}
	return all
}

// A manager is restarted repeatedly. No task is restarted, no member registers
// again, and completed work continues.
func TestR2_MembersOutliveTheirManager(t *testing.T) {
	inTestNet(t, func(t *testing.T, n *testNet) {
		store := NewMemoryStore()
		m := n.open(store)
		members := []*memberWorker{n.startMemberWorker("a", "a"), n.startMemberWorker("b", "b"), n.startMemberWorker("c", "c")}
		m.put(names("t", 9)...)
		n.after(5 * time.Second)
		require.Equal(t, map[string]int{"a": 3, "b": 3, "c": 3}, n.spread())
		var before []uint64
		for _, f := range members {
			before = append(before, f.Incarnation())
		}
		for range 4 {
			m.close()
			n.after(lease / 3)
			m = n.open(store)
			n.after(lease / 3)
		}
		require.Equal(t, 9, n.starts())
		m.put(names("u", 3)...)
		n.after(5 * time.Second)
		require.Equal(t, map[string]int{"a": 4, "b": 4, "c": 4}, n.spread())
		require.Equal(t, 12, n.starts())
		for i, f := range members {
			require.Equal(t, before[i], f.Incarnation())
		}
		m.close()
	})
}

// A worker is cut off from its manager, which can still call it. All its tasks have
// stopped before they are started elsewhere. The worker comes back when the line is
// whole again.
func TestW5_AMemberIsCutOffFromItsManager(t *testing.T) {
	inTestNet(t, func(t *testing.T, n *testNet) {
		m := n.open(NewMemoryStore())
		a, _ := n.startMemberWorker("a", "a"), n.startMemberWorker("b", "b")
		m.put(names("t", 6)...)
		n.after(5 * time.Second)
		require.Equal(t, map[string]int{"a": 3, "b": 3}, n.spread())
		for range 5 {
			before := a.Incarnation()
			a.line.cut()
			n.after(2 * lease)
			require.Equal(t, map[string]int{"b": 6}, n.spread())
			a.line.heal()
			n.after(lease)
			require.NotEqual(t, before, a.Incarnation())
			n.after(time.Minute) // it has fallen again, and must stay (T17)
			require.Equal(t, map[string]int{"a": 3, "b": 3}, n.spread())
		}
		m.close()
	})
}

// A cut that is shorter than the lease has no effect.
func TestW5_AShortCutStopsNothing(t *testing.T) {
	inTestNet(t, func(t *testing.T, n *testNet) {
		m := n.open(NewMemoryStore())
		a := n.startMemberWorker("a", "a")
		m.put(names("t", 3)...)
		n.after(5 * time.Second)
		for range 5 {
			a.line.cut()
			n.after(lease / 2)
			a.line.heal()
			n.after(lease / 2)
		}
		require.Equal(t, 3, n.starts())
		m.close()
	})
}

// Of two processes with the same name, the second waits until the first has left.
func TestR2_TwoMembersOfOneName(t *testing.T) {
	inTestNet(t, func(t *testing.T, n *testNet) {
		m := n.open(NewMemoryStore())
		first := n.startMemberWorker("a", "a")
		m.put(names("t", 3)...)
		n.after(5 * time.Second)
		second := n.startMemberWorker("a", "other")
		n.after(10 * lease)
		require.Equal(t, 3, n.starts())
		require.Empty(t, second.Status())
		first.cancel(errOver)
		<-first.done
		n.after(5 * time.Second)
		require.Len(t, second.Status(), 3)
		m.close()
	})
}

// The tasks of a process that ends without leaving are taken over when its lease has
// expired, also by another process of its name.
func TestR2_ASuccessorOfOneThatDied(t *testing.T) {
	inTestNet(t, func(t *testing.T, n *testNet) {
		m := n.open(NewMemoryStore())
		first := n.startMemberWorker("a", "a")
		m.put(names("t", 3)...)
		n.after(5 * time.Second)
		first.line.cut() // nothing that it sends from now on arrives in time
		second := n.startMemberWorker("a", "other")
		n.after(lease / 2)
		require.Empty(t, second.Status())
		n.after(lease)
		require.Len(t, second.Status(), 3)
		m.close()
	})
}

func TestW6_AMemberIsDrained(t *testing.T) {
	inTestNet(t, func(t *testing.T, n *testNet) {
		m := n.open(NewMemoryStore())
		a, _ := n.startMemberWorker("a", "a"), n.startMemberWorker("b", "b")
		m.put(names("t", 6)...)
		n.after(5 * time.Second)
		require.Equal(t, map[string]int{"a": 3, "b": 3}, n.spread())
		require.NoError(t, a.member.Close(t.Context()))
		require.Equal(t, map[string]int{"b": 6}, n.spread())
		<-a.done
		require.NoError(t, a.err)
		members := m.Members()
		require.Len(t, members, 1)
		require.Equal(t, "b", members[0].Name)
		m.close()
	})
}

// The end of Run's context drains it too.
func TestW6_AMemberIsDrainedWhenRunsContextEnds(t *testing.T) {
	inTestNet(t, func(t *testing.T, n *testNet) {
		m := n.open(NewMemoryStore())
		a, _ := n.startMemberWorker("a", "a"), n.startMemberWorker("b", "b")
		m.put(names("t", 6)...)
		n.after(5 * time.Second)
		require.Equal(t, map[string]int{"a": 3, "b": 3}, n.spread())
		a.cancel(errOver)
		<-a.done
		require.Equal(t, map[string]int{"b": 6}, n.spread())
		require.Equal(t, errOver, a.err, "nothing was stopped that had not moved")
		m.close()
	})
}

// Members that leave together do not wait, because no other member can take their
// tasks. The same holds if the only others are drained by name.
func TestW6_TheLastMembersLeaveAtOnce(t *testing.T) {
	inTestNet(t, func(t *testing.T, n *testNet) {
		m := n.open(NewMemoryStore())
		a, b := n.startMemberWorker("a", "a"), n.startMemberWorker("b", "b")
		c := n.startMemberWorker("c", "c")
		n.after(time.Second)
		require.NoError(t, m.Drain(t.Context(), "c"))
		m.put(names("t", 6)...)
		n.after(5 * time.Second)
		require.Equal(t, map[string]int{"a": 3, "b": 3}, n.spread())
		began := time.Now()
		closed := make(chan error, 2)
		for _, f := range []*memberWorker{a, b} {
			go func() { closed <- f.member.Close(t.Context()) }()
		}
		require.NoError(t, <-closed)
		require.NoError(t, <-closed)
		require.LessOrEqual(t, time.Since(began), 2*heartbeatEvery(lease))
		require.NoError(t, c.member.Close(t.Context()))
		for _, f := range []*memberWorker{a, b, c} {
			<-f.done
			require.NoError(t, f.err)
		}
		require.Empty(t, n.where())
		require.Empty(t, m.Members())
		m.close()
		require.NotContains(t, n.logs.String(), "level=WARN")
	})
}

// Each task completes once and is recorded, whatever happens to the manager in the
// meantime.
func TestW3_TasksComplete(t *testing.T) {
	inTestNet(t, func(t *testing.T, n *testNet) {
		store := NewMemoryStore()
		m := n.open(store)
		n.startMemberWorker("a", "a", worker.WithSlots(2))
		n.startMemberWorker("b", "b", worker.WithSlots(2))
		n.after(time.Second)
		m.put(names("short", 50)...)
		m.put("long")
		m.close()
		n.after(lease / 3)
		m = n.open(store)
		m.put(names("shorter", 50)...)
		n.after(2 * lease)
		done, err := m.Completed("", 1000)
		require.NoError(t, err)
		require.Len(t, done, 100)
		require.Equal(t, 101, n.starts())
		require.Len(t, n.where(), 1)
		left := 0
		for _, member := range m.Members() {
			left += len(m.Tasks(member.WorkerID))
		}
		require.Equal(t, 1, left, "the long task only: completed ones were removed")
		m.close()
	})
}
