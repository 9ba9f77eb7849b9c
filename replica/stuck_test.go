package replica_test

// Nothing holds up what it has nothing to do with: tasks that stop slowly, starts that are
// refused, members that run nothing, records that the table refuses, calls that hang.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
	"github.com/f8949c05/orchestrator/worker"
)

// slow makes each call take 5 ms on its way to the table, and 5 ms back.
func slow(replica.Update) memory.Fault {
	return memory.Fault{Before: 5 * time.Millisecond, After: 5 * time.Millisecond}
}

// refuse is an option of a replica whose worker refuses a task.
func refuse(bad string) replica.Option {
	return replica.WithWorker(worker.WithAccept(func(_ context.Context, task string, _ []byte) error {
		if task == bad {
			return errors.New("no")
		}
		return nil
	}))
}

// In a loop without a pause the bubble's time would stand still.
func TestTheLoopPausesWhileTasksStop(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.stubborn = map[string]time.Duration{"r0": time.Second}
		f.settle(1, 4)
		began := time.Now()
		require.NoError(t, f.leave("r0"))
		require.Less(t, time.Since(began), 1100*time.Millisecond)
	})
}

func TestA11_ARefusedStartBesideASlowStop(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.stubborn = map[string]time.Duration{"r0": lease * 3 / 2}
		f.want(named(4)...)
		f.join("r0", refuse("bad"), replica.WithLastResort(func([]string) {}))
		f.within(lease, "all run", f.allRun)
		f.want(append(named(4)[1:], replica.Task{Name: "bad"})...)
		time.Sleep(2 * lease)
		require.Empty(t, f.log.lines("lease lost"))
		require.Equal(t, 3, f.total())
	})
}

// Otherwise the leader would try again in each term.
func TestARefusedStartIsNotAcknowledged(t *testing.T) {
	for range 20 {
		bubble(t, func(t *testing.T, f *fleet) {
			f.want(append(named(4), replica.Task{Name: "bad"})...)
			f.join("r0", refuse("bad"))
			f.join("r1", refuse("bad"))
			f.within(lease, "the others run", func() bool { return f.total() == 4 })
			time.Sleep(lease)
			require.Empty(t, slices.DeleteFunc(f.log.lines("task=bad"), func(line string) bool { return !strings.Contains(line, "outcome=done") }))
		})
	}
}

// Whether the successor reads before or after the member has left is a matter of chance.
func TestO9_AMemberWithoutOrdersLeaves(t *testing.T) {
	for range 6 {
		bubble(t, func(t *testing.T, f *fleet) {
			f.want(named(4)...)
			f.join("c0", replica.WithRole(replica.CandidateOnly))
			f.within(lease, "it leads", func() bool { return f.leader() != nil })
			f.join("r1")
			f.join("r2")
			f.within(2*lease, "all run", f.allRun)
			time.Sleep(2 * lease)
			f.table.SetFaults(slow)
			require.NoError(t, f.leave("c0"))
			f.want(named(8)...)
			require.Less(t, f.within(2*lease, "all run", f.allRun), time.Second)
			for i := range 10 { // beside the leader's reading of everything, once a minute
				name := fmt.Sprint("x", i)
				f.join(name, replica.WithRole(replica.CandidateOnly))
				time.Sleep(time.Second + time.Duration(i)*100*time.Millisecond)
				require.NoError(t, f.leave(name))
				f.want(named(9 + i)...)
				require.Less(t, f.within(2*lease, "all run", f.allRun), time.Second)
			}
		})
	}
}

// A candidate that cannot call, and whose record is deleted by hand, may run nothing: no worker is
// silent for it.
func TestB6_ACandidateIsDeletedByHand(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(3, 12)
		leader := f.leader()
		idle := f.join("idle", replica.WithRole(replica.CandidateOnly))
		time.Sleep(lease) // all have seen it
		id := idle.Status().ID
		f.cutOff(idle)
		f.table.Edit(func(r *memory.Records) { delete(r.Members, id) })
		for range 40 {
			time.Sleep(lease / 20)
			require.Zero(t, leader.Last().Plan().Stats.Workers.Silent)
		}
		require.True(t, f.allRun())
	})
}

func TestRg_ServicesThatStartAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.want(named(4)...)
		f.table.SetFaults(slow)
		one, two := f.join("one", replica.WithService("one")), f.join("two", replica.WithService("two"))
		select {
		case <-one.done:
			one = two
			delete(f.replicas, "one")
		case <-two.done:
			delete(f.replicas, "two")
		case <-time.After(lease):
			t.Fatal("both share the table")
		}
		f.within(lease, "the other one runs all", f.allRun)
		require.NoError(t, one.Ready())
	})
}

func TestB5_RefusedRecordsAreLeftOut(t *testing.T) {
	no := fmt.Errorf("%w: too long", orchestrator.ErrRejected)
	for name, refused := range map[string]func(b *replica.Batch) bool{
		"an eviction": func(b *replica.Batch) bool { return len(b.Evict) > 0 },
		"an order": func(b *replica.Batch) bool {
			return slices.ContainsFunc(b.Orders, func(o replica.Order) bool { return o.Task == "bad" })
		},
		"a task to list": func(b *replica.Batch) bool {
			return slices.ContainsFunc(b.Tasks, func(t replica.Task) bool { return t.Name == "bad" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fleet) {
				var n atomic.Int64
				f.backend = &meddler{Table: f.table, sync: func(b *meddler, ctx context.Context, u replica.Update) (replica.View, error) {
					if u.Batch != nil && refused(u.Batch) {
						n.Add(1)
						return replica.View{}, no
					}
					return b.Table.Sync(ctx, u)
				}}
				f.settle(3, 6)
				leader := f.leader()
				f.table.Edit(func(r *memory.Records) { // of another leader, and not read
					for _, m := range r.Members {
						if m.Record.Name != leader.name {
							m.Orders["bad"] = memory.Order{Order: replica.Order{Member: m.Record.ID, Task: "bad", Version: m.Report.Applied + 1}}
							return
						}
					}
				})
				f.want(append(named(6), replica.Task{Name: "bad"})...)
				time.Sleep(lease)
				f.kill(f.follower().name)
				time.Sleep(4 * lease)
				t.Logf("refused %d times", n.Load())
				require.Less(t, n.Load(), int64(60))
				require.Empty(t, f.log.lines("lease lost"))
				if name != "an eviction" {
					f.within(lease, "the others run", func() bool { return f.total() >= 6 })
				}
			})
		})
	}
}

func TestA9_ALeadershipEndsWithItsLease(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.want(named(2)...)
		var ended atomic.Pointer[time.Time]
		f.join("r0", replica.WithLeading(func(*orchestrator.Orchestrator[replica.WorkerID, string]) func() {
			return func() { now := time.Now(); ended.Store(&now) }
		}))
		f.within(lease, "all run", f.allRun)
		f.table.SetFaults(func(replica.Update) memory.Fault { return memory.Fault{After: time.Hour} })
		began := time.Now()
		time.Sleep(2 * lease)
		require.LessOrEqual(t, ended.Load().Sub(began), lease*9/10)
		f.table.SetFaults(nil)
	})
}

func TestASourceThatEndsItsGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.want(named(4)...)
		var calls atomic.Int64
		f.joinWith("r0", func(ctx context.Context, tell func([]replica.Task) error) error {
			n := calls.Add(1)
			if n == 2 {
				_ = tell(named(2))
			}
			if n <= 3 {
				runtime.Goexit()
			}
			return f.source(ctx, tell)
		})
		f.within(4*lease, "all run", f.allRun)
		require.NotEmpty(t, f.log.lines("source failed"))
	})
}

func TestTheErrorOfAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(2, 4)
		f.table.SetFaults(func(replica.Update) memory.Fault { return memory.Fault{Err: memory.ErrInjected} })
		time.Sleep(lease / 4)
		for range 100 {
			time.Sleep(lease / 50)
			for _, n := range f.replicas {
				require.Contains(t, n.Status().Err, memory.ErrInjected.Error(), "%s", n.name)
			}
		}
		for _, line := range f.log.lines("joins again") {
			require.Contains(t, line, memory.ErrInjected.Error())
		}
	})
}

// A Source that flips between everything and nothing: two lines a minute.
func TestRb_ASourceThatFlips(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.want(named(12)...)
		f.joinWith("r0", func(ctx context.Context, tell func([]replica.Task) error) error {
			for i := 0; ctx.Err() == nil; i++ {
				_ = tell(named(12 * (1 - i%2)))
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
			}
			return nil
		})
		time.Sleep(10 * time.Minute)
		require.True(t, f.allRun())
		require.Less(t, len(f.log.lines("level=WARN")), 25)
	})
}

// An order to stop that was not read yet is deleted by hand, and the leader changes: the member
// still runs the task, and its report does not say so (B7).
func TestB7_AnOrderToStopIsDeleted(t *testing.T) {
	bubble(t, func(_ *testing.T, f *fleet) {
		f.settle(3, 12)
		leader := f.leader()
		id := f.follower().Status().ID
		f.cutOff(f.follower())
		for _, name := range []string{"r7", "r8", "r9"} { // each of the others gives two tasks
			f.join(name)
		}
		deleted := 0
		f.within(lease/6, "an order to stop is deleted", func() bool {
			f.table.Edit(func(r *memory.Records) {
				n := len(r.Members[id].Orders)
				maps.DeleteFunc(r.Members[id].Orders, func(_ string, o memory.Order) bool { return o.Stop })
				deleted = n - len(r.Members[id].Orders)
			})
			return deleted > 0
		})
		delete(f.replicas, leader.name)
		leader.stop()
		f.leavers = append(f.leavers, leader)
		time.Sleep(lease / 2)
		f.neverTwice()
		f.table.SetFaults(nil)
		f.within(4*lease, "all run", func() bool { return f.allRun() && f.even() })
	})
}
