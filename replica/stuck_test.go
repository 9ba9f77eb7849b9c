package replica_test

// Never stuck: within four leases of a fault, everything that can run runs.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/replica"
)

// uncallable is how a replica cannot be called: each changes what its address leads to.
var uncallable = map[string]func(c *cluster, address string){
	"wrong address":      func(c *cluster, address string) { c.bus.lose(address) },
	"hung or firewalled": func(c *cluster, address string) { c.bus.hang(address, true) },
}

// within measures how long something takes, which must be within four leases.
func (c *cluster) within(what string, ok func() bool) {
	c.t.Helper()
	took := c.eventually(4*testLease, what, ok)
	c.t.Logf("%s: after %.2f leases", what, took.Seconds()/testLease.Seconds())
}

// runs returns whether exactly the given replicas run the 12 tasks, evenly.
func (c *cluster) runs(names ...string) func() bool {
	want := make(map[string]int)
	for _, name := range names {
		want[name] = 12 / len(names)
	}
	return func() bool { return maps.Equal(c.journal.counts(), want) }
}

func TestNeverStuck_UncallableAtTheElection(t *testing.T) {
	for name, fault := range uncallable {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 12, func(c *cluster, table *faultyTable) {
				c.three()
				leader := c.leader()
				others := c.others(leader)
				c.start("d", replica.WithWorkerOnly())
				c.spread(testLease, map[string]int{"a": 3, "b": 3, "c": 3, "d": 3})
				fault(c, c.members["d"].Status().Address)
				table.crash(c, leader)
				c.within("the others run everything", c.runs(others...))
			})
		})
	}
}

func TestNeverStuck_UncallableInANewTable(t *testing.T) {
	for name, fault := range uncallable {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 12, func(c *cluster, _ *faultyTable) {
				c.bus.born = func(name, address string) {
					if name == "c" {
						fault(c, address)
					}
				}
				c.start("a")
				c.start("b")
				c.start("c", replica.WithWorkerOnly())
				c.within("the others run everything", c.runs("a", "b"))
			})
		})
	}
}

func TestNeverStuck_UncallableJoins(t *testing.T) {
	for name, fault := range uncallable {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 12, func(c *cluster, table *faultyTable) {
				c.bus.born = func(name, address string) {
					if name == "z" {
						fault(c, address)
					}
				}
				c.three()
				c.start("z")
				table.crash(c, c.others(c.leader())[0])
				c.within("the others run everything", func() bool {
					counts := c.journal.counts()
					return len(counts) == 2 && counts["z"] == 0 && c.all()
				})
			})
		})
	}
}

func TestNeverStuck_UncallableDuringAnAdd(t *testing.T) {
	for name, fault := range uncallable {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 12, func(c *cluster, table *faultyTable) {
				c.three()
				other := c.others(c.leader())[0]
				address := c.members[other].Status().Address
				c.bus.loseAnswer(address, func() { fault(c, address) })
				crashed := c.others(c.leader())[1]
				table.crash(c, crashed) // its tasks start on the other two
				c.within("everything runs", func() bool { return c.journal.counts()[crashed] == 0 && c.all() })
			})
		})
	}
}

// A stop whose answer is lost leaves a task that runs nowhere.
func TestNeverStuck_UncallableDuringARemove(t *testing.T) {
	for name, fault := range uncallable {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 12, func(c *cluster, _ *faultyTable) {
				c.three()
				other := c.others(c.leader())[0]
				address := c.members[other].Status().Address
				c.bus.loseAnswer(address, func() { fault(c, address) })
				c.start("d")
				c.within("everything runs", func() bool { return c.journal.counts()["d"] >= 2 && c.all() })
			})
		})
	}
}

// Two replicas of which neither can call the other.
func TestNeverStuck_NoReplicaCanCallAnother(t *testing.T) {
	inBubble(t, 12, func(c *cluster, _ *faultyTable) {
		c.bus.born = func(_, address string) { c.bus.hang(address, true) }
		c.start("a")
		c.start("b")
		c.within("one of them runs everything", c.all)
		before := c.journal.counts()
		for range 30 {
			time.Sleep(testLease)
			require.Equal(t, before, c.journal.counts(), "the other one does not take over")
		}
	})
}

func TestNeverStuck_AnswersListButCannotSync(t *testing.T) {
	for _, leads := range []bool{true, false} {
		t.Run(fmt.Sprintf("leads=%v", leads), func(t *testing.T) {
			inBubble(t, 12, func(c *cluster, table *faultyTable) {
				c.three()
				name := c.leader()
				if !leads {
					name = c.others(name)[0]
				}
				table.set(func() { table.cut[name] = true })
				c.within("the others run everything", c.runs(c.others(name)...))
			})
		})
	}
}

// Of three candidates the Source of one hangs, and that of another fails.
func TestNeverStuck_TheSourceNeverAnswers(t *testing.T) {
	for range 8 { // any of them may be elected first
		inBubble(t, 12, func(c *cluster, _ *faultyTable) {
			good := c.source
			c.source = func(ctx context.Context, _ func([]replica.Task) error) error {
				<-ctx.Done()
				return nil
			}
			c.start("a")
			c.source = func(context.Context, func([]replica.Task) error) error { return errors.New("no such table") }
			c.start("b")
			c.source = good
			c.start("c")
			c.within("everything runs", c.runs("a", "b", "c"))
			require.Equal(t, "c", c.leader())
		})
	}
}

// A lone leader must not take a replica that has only just joined for one that does not
// answer.
func TestNeverStuck_AJoinChangesNoLeader(t *testing.T) {
	inBubble(t, 12, func(c *cluster, _ *faultyTable) {
		c.start("a")
		c.spread(2*testLease, map[string]int{"a": 12})
		epoch := c.members["a"].Status().Epoch
		time.Sleep(3 * testLease)
		c.start("b")
		c.spread(testLease, map[string]int{"a": 6, "b": 6})
		c.start("c")
		c.spread(testLease, map[string]int{"a": 4, "b": 4, "c": 4})
		require.Equal(t, epoch, c.members["a"].Status().Epoch)
	})
}

// A table that is restored has an epoch far below what the workers have seen.
func TestNeverStuck_ALostEpoch(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		c.three()
		early, epoch := table.Backup(), uint64(0)
		for range 3 { // leaders come and go
			leader := c.leader()
			require.NoError(t, c.end(leader))
			c.start(leader)
			c.spread(testLease, map[string]int{"a": 4, "b": 4, "c": 4})
			require.Greater(t, c.members["a"].Status().Epoch, epoch)
			epoch = c.members["a"].Status().Epoch
		}
		table.Restore(early)
		crashed := c.leader()
		table.crash(c, crashed)
		c.within("everything runs under a higher epoch", func() bool {
			higher := c.journal.counts()[crashed] == 0 && c.all()
			for _, name := range c.others(crashed) {
				higher = higher && c.members[name].Status().Epoch > epoch
			}
			return higher
		})
	})
}

// A worker has seen an epoch that the table never had, from a clock decades ahead.
func TestNeverStuck_AnEpochFromTheFuture(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		c.three()
		starts := c.journal.started()
		epoch := uint64(time.Now().AddDate(90, 0, 0).UnixMicro())
		c.bus.worker(c.members[c.others(c.leader())[0]].Status().Address).Fence(orchestrator.Term{Epoch: epoch})
		c.within("there is a leader with a higher epoch", func() bool {
			l := c.leader()
			return l != "" && c.members[l].Status().Epoch > epoch
		})
		require.Equal(t, starts, c.journal.started(), "nothing moves")
		crashed := c.others(c.leader())[0]
		table.crash(c, crashed)
		c.within("the tasks of a crashed replica run elsewhere", func() bool { return c.journal.counts()[crashed] == 0 && c.all() })
	})
}

// futureTable shows the member "future" as a newer program might publish it: with a role
// that this one does not know, and a name and an address that it cannot call.
type futureTable struct{ *faultyTable }

func (f futureTable) Sync(ctx context.Context, u replica.Update) (replica.View, error) {
	v, err := f.faultyTable.Sync(ctx, u)
	for i := range v.Members {
		if m := &v.Members[i]; m.Name == "future" {
			m.Name, m.Address, m.Role = "", "", 7
		}
	}
	return v, err
}

func TestNeverStuck_TwoVersions(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		c.backend = futureTable{table}
		future := replica.Update{Self: replica.Member{ID: 7, Lease: testLease, Name: "future", Address: "?"}}
		ctx, stop := context.WithCancel(c.t.Context())
		defer stop()
		retired := make(chan time.Time, 1)
		go func() {
			for ctx.Err() == nil {
				future.Self.Heartbeat++
				if _, err := table.Table.Sync(ctx, future); errors.Is(err, replica.ErrRetired) {
					retired <- time.Now()
					return
				}
				time.Sleep(testLease / 12)
			}
		}()
		c.start("a", replica.WithLease(testLease/2, time.Second))
		c.start("b", replica.WithAttributes(map[string]string{"version": "2", "région": "\x00✓"}))
		c.start("c", replica.WithLease(testLease*3/4, time.Second))
		c.within("everything runs", c.runs("a", "b", "c"))
		require.Less(t, time.Since(<-retired), 2*testLease)
		for range 3 {
			leader := c.leader()
			require.NoError(t, c.end(leader))
			c.within("the others run everything", c.runs(c.others(leader)...))
			c.start(leader)
			c.within("everything runs", c.runs("a", "b", "c"))
		}
	})
}

// The leader's calls cannot be set up: another one leads.
func TestNeverStuck_ALeaderWithoutANetwork(t *testing.T) {
	inBubble(t, 12, func(c *cluster, _ *faultyTable) {
		c.start("a", replica.WithNetwork(deaf{port{bus: c.bus, name: "a"}}))
		time.Sleep(2 * testLease)
		require.Empty(t, c.leader())
		c.start("b")
		c.within("b leads", c.runs("a", "b"))
		require.Less(t, c.members["a"].Status().Epoch, uint64(time.Now().UnixMicro())+1<<39, "a has campaigned with every beat at most")
	})
}

type deaf struct{ port }

func (deaf) Caller(grpc.RevisedContents) (replica.Caller, error) {
	return nil, errors.New("too many open files")
}

// A replica was retired once. Later its process stands still for longer than the lease: it
// joins again at once, and says nothing of calls.
func TestA10_APauseAfterARetirementIsNoRetirement(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		pause := make(chan time.Duration, 1)
		c.backend = syncFunc(func(ctx context.Context, u replica.Update) (replica.View, error) {
			v, err := table.Sync(ctx, u)
			if u.Self.Name == "b" && len(pause) > 0 {
				time.Sleep(<-pause)
			}
			return v, err
		})
		c.three()
		b := c.members["b"]
		_, err := table.Sync(t.Context(), replica.Update{
			Self:   replica.Member{ID: 7, Heartbeat: 1, Lease: testLease, Name: "leaves at once", Draining: true},
			Retire: []uint64{b.Status().ID}, Left: []uint64{7},
		})
		require.NoError(t, err)
		time.Sleep(testLease)
		c.spread(testLease, map[string]int{"a": 4, "b": 4, "c": 4})
		require.EqualValues(t, 1, b.Stats().Retired)
		pause <- 2 * testLease
		c.eventually(testLease, "its tasks stop", func() bool { return c.journal.counts()["b"] == 0 })
		c.spread(2*testLease, map[string]int{"a": 4, "b": 4, "c": 4})
		require.EqualValues(t, 1, b.Stats().Retired)
		require.Len(t, c.logged("no leader can call this replica"), 1)
	})
}
