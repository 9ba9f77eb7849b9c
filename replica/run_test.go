package replica_test

// The clauses of equal processes, A1 to A10, on fake time.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
)

// inBubble runs a test with a cluster on a memory table, and ends its replicas.
func inBubble(t *testing.T, tasks int, test func(c *cluster, table *faultyTable)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		table := newFaultyTable(1)
		c := newCluster(t, table, tasks)
		test(c, table)
		c.close()
		table.late.Wait()
	})
}

// three starts three replicas and waits until they share 12 tasks.
func (c *cluster) three() {
	c.t.Helper()
	for _, name := range []string{"a", "b", "c"} {
		c.start(name)
	}
	c.spread(2*testLease, map[string]int{"a": 4, "b": 4, "c": 4})
}

// all reports whether 12 tasks run.
func (c *cluster) all() bool {
	n := 0
	for _, k := range c.journal.counts() {
		n += k
	}
	return n == 12
}

// others returns the names of the replicas except one.
func (c *cluster) others(name string) (names []string) {
	for _, n := range []string{"a", "b", "c"} {
		if n != name {
			names = append(names, n)
		}
	}
	return names
}

func TestA1_TheFenceComesWithTheFirstLease(t *testing.T) {
	inBubble(t, 12, func(c *cluster, _ *faultyTable) {
		c.start("a")
		c.spread(2*testLease, map[string]int{"a": 12})
		c.bus.cut("a", true) // the leader's own calls do not bring the epoch
		c.start("b")
		c.eventually(testLease, "b has joined", func() bool { return c.members["b"].Ready() == nil })
		b := c.members["b"].Status()
		earlier, err := port{bus: c.bus, name: "earlier"}.Caller(noContents{})
		require.NoError(t, err)
		to := grpc.WorkerID{Name: "b", Incarnation: b.ID}
		require.NoError(t, earlier.Connect(to, b.Address))
		ctx := orchestrator.ContextWithTerm(c.t.Context(), orchestrator.Term{Epoch: b.Epoch - 1, Number: 1})
		errs := earlier.Apply(ctx, to, []orchestrator.Write[string]{{Op: orchestrator.OpAdd, Task: "task-00"}})
		require.ErrorIs(t, errs[0], orchestrator.ErrDeposed)
		c.bus.cut("a", false)
	})
}

func TestA1_EachFirstAttemptHasAnotherID(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		var failed []uint64
		c.backend = syncFunc(func(ctx context.Context, u replica.Update) (replica.View, error) {
			if len(failed) < 3 {
				require.Equal(t, failed, append([]uint64(nil), u.Left...))
				require.NotContains(t, failed, u.Self.ID)
				failed = append(failed, u.Self.ID)
				return replica.View{}, errFault
			}
			if u.Self.Heartbeat == 1 {
				require.Equal(t, failed, u.Left)
			}
			return table.Sync(ctx, u)
		})
		c.start("a")
		c.spread(2*testLease, map[string]int{"a": 12})
		require.Len(t, failed, 3)
	})
}

func TestA3_ANewTableHasALeaderAfterOneLease(t *testing.T) {
	inBubble(t, 12, func(c *cluster, _ *faultyTable) {
		c.start("a")
		took := c.spread(2*testLease, map[string]int{"a": 12})
		require.InDelta(t, testLease.Seconds(), took.Seconds(), 0.5)
		c.start("b")
		took = c.spread(testLease, map[string]int{"a": 6, "b": 6})
		require.Less(t, took, 2*time.Second, "a table that is confirmed serves at once")
	})
}

func TestA4_TheLeadersDeathStopsNothing(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		c.three()
		leader := c.leader()
		starts := c.journal.started()
		table.crash(c, leader)
		took := c.eventually(2*testLease, "everything runs elsewhere", func() bool {
			counts := c.journal.counts()
			return counts[leader] == 0 && c.all()
		})
		require.Less(t, took, testLease+testLease/4, "one lease, not two")
		require.Equal(t, starts+4, c.journal.started(), "only the tasks of the dead leader start elsewhere")
		lines := c.logged("a replica is dead")
		require.Len(t, lines, 1)
		require.Contains(t, lines[0], "name="+leader)
	})
}

func TestA5_AReplicaThatWasCutOffRejoins(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		c.three()
		other := c.others(c.leader())[0]
		id := c.members[other].Status().ID
		table.set(func() { table.cut[other] = true })
		c.eventually(2*testLease, "its tasks run elsewhere", func() bool { return c.journal.counts()[other] == 0 && c.all() })
		table.set(func() { table.cut[other] = false })
		c.eventually(testLease, "it has rejoined, and runs its share", func() bool {
			return c.journal.counts()[other] == 4 && c.all()
		})
		require.NotEqual(t, id, c.members[other].Status().ID)
	})
}

func TestA5_AfterAnOutageReplicasDoNotWaitForEachOther(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		c.three()
		table.set(func() { table.away = true })
		c.eventually(testLease, "everything has stopped", func() bool { return len(c.journal.counts()) == 0 })
		time.Sleep(2 * testLease)
		table.set(func() { table.away = false })
		took := c.spread(testLease, map[string]int{"a": 4, "b": 4, "c": 4})
		require.Less(t, took, 2*time.Second)
	})
}

func TestA6_TasksMoveWhenAReplicaEnds(t *testing.T) {
	inBubble(t, 12, func(c *cluster, _ *faultyTable) {
		c.three()
		for _, leads := range []bool{true, false} {
			leader := c.leader()
			name := leader
			if !leads {
				name = c.others(leader)[0]
			}
			starts := c.journal.started()
			began := time.Now()
			require.NoError(t, c.end(name))
			require.Less(t, time.Since(began), 3*time.Second)
			c.eventually(200*time.Millisecond, "the tasks run elsewhere", c.all)
			require.Equal(t, starts+4, c.journal.started())
			c.eventually(testLease/6, "its record is removed", func() bool { return !slices.Contains(membersOf(c), name) })
			c.start(name)
			c.spread(testLease, map[string]int{"a": 4, "b": 4, "c": 4})
		}
	})
}

func TestA6_TheLastReplicaStopsAtOnce(t *testing.T) {
	inBubble(t, 12, func(c *cluster, _ *faultyTable) {
		c.start("a")
		c.spread(2*testLease, map[string]int{"a": 12})
		began := time.Now()
		require.NoError(t, c.end("a"))
		require.Less(t, time.Since(began), time.Second)
	})
}

func TestA6_UndrainedTasksAreCounted(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		c.start("a", replica.WithWorkerOnly(), replica.WithDrain(5*time.Second))
		c.start("b", replica.WithLeaderOnly())
		c.spread(2*testLease, map[string]int{"a": 12})
		c.start("c", replica.WithWorkerOnly())
		c.spread(testLease, map[string]int{"a": 6, "c": 6})
		table.crash(c, "b") // no leader moves the tasks
		err := c.end("a")
		require.ErrorIs(t, err, replica.ErrUndrained)
		require.ErrorContains(t, err, "6 tasks")
	})
}

func TestA7_ALeaderWithoutItsSourceGivesUp(t *testing.T) {
	inBubble(t, 12, func(c *cluster, _ *faultyTable) {
		good := c.source
		c.source = func(ctx context.Context, _ func([]replica.Task) error) error {
			<-ctx.Done()
			return ctx.Err()
		}
		c.start("a")
		c.eventually(2*testLease, "a leads", func() bool { return c.leader() == "a" })
		c.source = good
		c.start("b")
		c.eventually(4*testLease, "b leads, and everything runs", func() bool { return c.leader() == "b" && c.all() })
	})
}

func TestA7_APollEndsWithItsContext(t *testing.T) {
	for range 100 { // the ticker may be ready too
		ctx, stop := context.WithCancel(t.Context())
		calls := 0
		poll := replica.Poll(time.Nanosecond, func(ctx context.Context) ([]replica.Task, error) {
			calls++
			return nil, ctx.Err()
		})
		require.NoError(t, poll(ctx, func([]replica.Task) error { stop(); return nil }))
		require.Equal(t, 1, calls)

		poll = replica.Poll(time.Nanosecond, func(ctx context.Context) ([]replica.Task, error) {
			return nil, ctx.Err()
		})
		require.NoError(t, poll(ctx, nil))
	}
}

func TestA7_AFailingSourceKeepsTheTasks(t *testing.T) {
	inBubble(t, 12, func(c *cluster, _ *faultyTable) {
		var calls atomic.Int32
		good := c.source
		c.source = func(ctx context.Context, tell func([]replica.Task) error) error {
			call := calls.Add(1)
			ended, stop := context.WithTimeout(ctx, time.Minute)
			defer stop()
			switch call {
			case 1:
				_ = good(ended, tell)
				return errors.New("the database is away")
			case 2:
				panic("nil map")
			}
			return good(ctx, tell)
		}
		c.start("a")
		c.spread(2*testLease, map[string]int{"a": 12})
		starts := c.journal.started()
		c.eventually(5*time.Minute, "the source was called again", func() bool { return calls.Load() == 3 })
		require.True(t, c.all())
		require.Equal(t, starts, c.journal.started())
	})
}

func TestA7_InvalidTasksChangeNothing(t *testing.T) {
	inBubble(t, 12, func(c *cluster, _ *faultyTable) {
		good := c.source
		results := make(chan error, 6)
		c.source = func(ctx context.Context, tell func([]replica.Task) error) error {
			return good(ctx, func(tasks []replica.Task) error {
				if err := tell(tasks); err != nil {
					return err
				}
				for _, bad := range []replica.Task{
					{Name: ""},
					{Name: tasks[0].Name},
					{Name: "x", Instances: -1},
					{Name: "x", Version: -1},
					{Name: "x", Content: []byte("y")},
					{Name: "x", Content: make([]byte, 1<<20+1), Version: 1},
				} {
					results <- tell(append(slices.Clip(tasks), bad))
				}
				return nil
			})
		}
		c.start("a")
		c.spread(2*testLease, map[string]int{"a": 12})
		for i := range 6 {
			require.ErrorIs(t, <-results, orchestrator.ErrInvalid, "%d", i)
		}
	})
}

func TestA7_AHalfPartitionedLeaderGivesUp(t *testing.T) {
	inBubble(t, 12, func(c *cluster, _ *faultyTable) {
		c.three()
		leader := c.leader()
		c.bus.cut(leader, true) // calls of the leader reach nobody else
		c.eventually(4*testLease, "another one leads", func() bool { l := c.leader(); return l != "" && l != leader })
		c.eventually(testLease, "everything runs", c.all)
	})
}

func TestA8_LeasesMayDiffer(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		c.start("a", replica.WithLease(2*time.Second, 100*time.Millisecond))
		c.start("b", replica.WithLease(time.Minute, time.Second))
		c.spread(2*time.Minute, map[string]int{"a": 6, "b": 6})
		table.crash(c, "b")
		took := c.eventually(2*time.Minute, "b is dead", func() bool { return c.journal.counts()["a"] == 12 })
		require.Greater(t, took, 55*time.Second, "b's own lease counts")
	})
}

func TestA9_ALeaderStopsWithItsLease(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		c.three()
		leader := c.leader()
		table.set(func() { table.cut[leader] = true }) // each Sync hangs for a quarter of the lease
		<-c.members[leader].LeaseLost()
		lost := time.Now()
		c.eventually(testLease, "the next one leads", func() bool { l := c.leader(); return l != "" && l != leader })
		require.Empty(t, c.bus.callsSince(leader, lost))
		table.set(func() { table.cut[leader] = false })
	})
}

func TestA10_ARetiredReplicaEndsAtOnce(t *testing.T) {
	inBubble(t, 12, func(c *cluster, _ *faultyTable) {
		c.start("a")
		c.spread(2*testLease, map[string]int{"a": 12})
		c.bus.nextHangs = true
		c.start("b", replica.WithWorkerOnly())
		retired := func() bool { return strings.Contains(c.members["b"].Status().Err, replica.ErrRetired.Error()) }
		for range 6 { // its pauses grow
			c.eventually(20*testLease, "it is retired", retired)
			c.eventually(20*testLease, "it has joined again", func() bool { return !retired() })
		}
		c.eventually(20*testLease, "it is retired", retired)
		time.Sleep(4 * testLease)
		require.NoError(t, c.members["b"].Alive(), "a pause is no reason to restart it")
		began := time.Now()
		require.NoError(t, c.end("b"))
		require.Less(t, time.Since(began), time.Second)
	})
}

func TestA10_UncallableReplicasAreRetired(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		c.start("a")
		c.start("b")
		c.start("c", replica.WithWorkerOnly())
		c.spread(2*testLease, map[string]int{"a": 4, "b": 4, "c": 4})
		leader := c.leader()
		healthy := map[string]string{"a": "b", "b": "a"}[leader]
		address := c.members["c"].Status().Address
		c.bus.hang(address, true)
		table.crash(c, leader) // the next leader never hears from c
		took := c.eventually(8*testLease, "everything runs on the healthy one", func() bool { return c.journal.counts()[healthy] == 12 })
		require.Less(t, took, 6*testLease)
		c.bus.hang(address, false)
		c.eventually(12*testLease, "it comes back", func() bool { return c.journal.counts()["c"] == 6 })
	})
}

func TestA10_NobodyElseIsRetired(t *testing.T) {
	inBubble(t, 12, func(c *cluster, _ *faultyTable) {
		c.three()
		other := c.others(c.leader())[0]
		id := c.members[other].Status().ID
		c.bus.hang(c.members[other].Status().Address, true) // it has answered this leader before
		time.Sleep(6 * testLease)
		require.Equal(t, id, c.members[other].Status().ID)
		c.bus.hang(c.members[other].Status().Address, false)
		c.spread(testLease, map[string]int{"a": 4, "b": 4, "c": 4})
	})
}

func TestB4_ACampaignBelongsToItsServer(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		var lost atomic.Bool
		c.backend = syncFunc(func(ctx context.Context, u replica.Update) (replica.View, error) {
			v, err := table.Sync(ctx, u)
			if u.Campaign > 0 && err == nil && !lost.Swap(true) {
				table.Restore(table.Backup()) // another Server, of which this replica is the leader
				return replica.View{}, errFault
			}
			return v, err
		})
		c.start("a")
		c.eventually(2*testLease, "the answer to its campaign is lost", lost.Load)
		for range 9 {
			time.Sleep(testLease / 10)
			require.False(t, c.members["a"].Status().Leading, "it leads a table of which it may not know all members")
		}
		c.spread(testLease, map[string]int{"a": 12})
	})
}

func TestB7_ALostTableStopsNothing(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		c.three()
		starts := c.journal.started()
		table.Restore(memory.New().Backup())
		for range 30 {
			time.Sleep(testLease / 10)
			require.True(t, c.all(), "every task runs on while the table is another one")
		}
		require.NotEmpty(t, c.leader())
		require.Equal(t, starts, c.journal.started())
		const line = ` msg="the table is new, or may have lost data: for one lease no task starts or moves"`
		require.Len(t, c.logged("level=INFO"+line), 3, "each replica, when it joined")
		require.Len(t, c.logged("level=WARN"+line), 3, "each replica, after the loss")
	})
}

func TestRun_EachLineNamesTheReplica(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		c.three()
		leader := c.leader()
		table.set(func() { table.cut[leader] = true })
		c.within("the others run everything", c.runs(c.others(leader)...))
		for line := range strings.Lines(c.log.String()) {
			require.Contains(t, line, " replica=")
		}
		require.NotEmpty(t, c.logged("msg=term "), "the orchestrator's, too")
		require.NotEmpty(t, c.logged(`msg="lease lost, stopping all tasks"`), "the worker's, too")
	})
}

func TestRun_ForeignTable(t *testing.T) {
	inBubble(t, 1, func(c *cluster, _ *faultyTable) {
		r, err := replica.New(syncFunc(foreign), c.source, c.journal.work("a"), replica.WithNetwork(port{bus: c.bus, name: "a"}))
		require.NoError(t, err)
		require.ErrorIs(t, r.Run(c.t.Context()), replica.ErrForeign)
		require.ErrorIs(t, r.Run(c.t.Context()), orchestrator.ErrInvalid, "Run may be called once")
	})
}

// syncFunc is a backend.
type syncFunc func(context.Context, replica.Update) (replica.View, error)

func (f syncFunc) Sync(ctx context.Context, u replica.Update) (replica.View, error) { return f(ctx, u) }

func foreign(context.Context, replica.Update) (replica.View, error) {
	return replica.View{}, fmt.Errorf("table pollers: %w: it has columns of another program", replica.ErrForeign)
}

// noContents has no content for any task.
type noContents struct{}

func (noContents) Content(string) ([]byte, int64, bool) { return nil, 0, false }
func (noContents) Revision() int64                      { return 1 }

func TestNew_NamesEveryInvalidOption(t *testing.T) {
	_, err := replica.New(nil, nil, nil, replica.WithName(""), replica.WithLease(time.Hour, 0), replica.WithDrain(-1),
		replica.WithInterval(0), replica.WithCredentials(nil), replica.WithLastResort(nil), replica.WithListen("nowhere"),
		replica.WithOrchestrator(orchestrator.WithMaxMoves(-1)))
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	for _, text := range []string{"backend", "source", "WithName", "WithLease", "WithDrain", "WithInterval", "WithCredentials", "WithLastResort", "WithListen", "WithMaxMoves", "run is nil"} {
		require.ErrorContains(t, err, text)
	}
	_, err = replica.New(memory.New(), replica.Names("a"), func(context.Context, string) error { return nil },
		replica.WithInterval(time.Second), replica.WithLease(2*time.Second, 0))
	require.ErrorContains(t, err, "WithInterval(1s): must be at most a third of the lease, which is 2s")
	wide := orchestrator.WorkerSettings{Zone: "a"}
	for i := range 16 {
		wide.Labels = append(wide.Labels, strings.Repeat(string(rune('a'+i)), 256))
	}
	for text, option := range map[string]replica.Option{
		"attributes have 4097 bytes":        replica.WithAttributes(map[string]string{"a": strings.Repeat("x", 4096)}),
		"attributes are not UTF-8":          replica.WithAttributes(map[string]string{"a": "\xff"}),
		"name, address or attributes are":   replica.WithName("\xff"),
		"Share is -1":                       replica.WithSettings(orchestrator.WorkerSettings{Share: -1}),
		"Zone and Labels have 4097 bytes":   replica.WithSettings(wide),
		"name has 1 bytes and address 1025": replica.WithAdvertise(strings.Repeat("x", 1025)),
	} {
		_, err = replica.New(memory.New(), replica.Names("a"), func(context.Context, string) error { return nil }, replica.WithName("a"), option)
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
		require.ErrorContains(t, err, text)
	}
}

// A backend that was made with invalid arguments never works.
func TestRun_InvalidBackend(t *testing.T) {
	inBubble(t, 12, func(c *cluster, _ *faultyTable) {
		c.backend = syncFunc(func(context.Context, replica.Update) (replica.View, error) {
			return replica.View{}, fmt.Errorf("table: %w: it has no name", orchestrator.ErrInvalid)
		})
		c.start("a")
		ended := c.members["a"]
		delete(c.members, "a")
		err := <-ended.done
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
		require.ErrorContains(t, err, "it has no name")
	})
}

// A leader calls members often enough to know that they answer, with the longest interval.
func TestA7_LongIntervals(t *testing.T) {
	inBubble(t, 12, func(c *cluster, _ *faultyTable) {
		c.start("a", replica.WithInterval(testLease/3))
		c.start("b", replica.WithInterval(testLease/3))
		c.spread(2*testLease, map[string]int{"a": 6, "b": 6})
		leader := c.leader()
		time.Sleep(20 * testLease)
		require.Equal(t, leader, c.leader())
		require.Len(t, c.logged("msg=leads"), 1)
	})
}

func membersOf(c *cluster) (names []string) {
	for _, p := range c.members {
		for _, m := range p.Status().Members {
			names = append(names, m.Name)
		}
		break
	}
	return names
}
