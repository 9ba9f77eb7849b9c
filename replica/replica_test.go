package replica_test

// What replicas on a table in memory do, clause by clause.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
	"github.com/f8949c05/orchestrator/worker"
)

func TestTasksRunOnceAndEvenly(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(4, 20)
		starts := f.started()
		time.Sleep(5 * lease)
		f.neverTwice()
		require.Equal(t, starts, f.started())
		for _, n := range f.replicas {
			require.NoError(t, n.Alive())
			require.NoError(t, n.Ready())
		}
		s := f.leader().Status()
		require.Len(t, s.Members, 4)
		require.Len(t, s.Tasks, 5)
		require.NotNil(t, s.Plan)
		require.Equal(t, s.Name, s.Leader)
		require.Empty(t, f.log.lines("level=WARN"))
	})
}

// A crash costs one lease, also if the leader and another replica die together. It moves
// only what they ran (A4).
func TestA4_ALeaderAndAWorkerThatDieTogetherCostOneLease(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(5, 20)
		time.Sleep(lease)
		starts, leads, other := f.started(), f.leader().name, f.follower().name
		f.kill(leads)
		f.kill(other)
		took := f.within(2*lease, "all run again", f.allRun)
		require.Less(t, took, lease+lease/3)
		require.Equal(t, starts+8, f.started(), "only the tasks of the two")
	})
}

// A join moves the joiner's share, and nothing else.
func TestAJoinMovesOnlyItsShare(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(4, 20)
		starts := f.started()
		f.join("r9")
		took := f.within(lease, "even", func() bool { return f.allRun() && f.even() })
		require.Less(t, took, time.Second)
		require.Equal(t, starts+4, f.started())
	})
}

func TestA6_Leaving(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(4, 20)
		time.Sleep(lease / 12) // who has campaigned waits a heartbeat for the next time
		leads := f.leader().name
		began := time.Now()
		require.NoError(t, f.leave(leads))
		require.Less(t, time.Since(began), 2*time.Second)
		f.within(time.Second, "all run", func() bool { return f.allRun() && f.leader() != nil })
		for len(f.replicas) > 0 {
			for name := range f.replicas {
				began := time.Now()
				require.NoError(t, f.leave(name))
				require.Less(t, time.Since(began), lease/12+time.Second, "who has campaigned waits a heartbeat for the next time")
				break
			}
		}
		f.neverTwice()
	})
}

func TestA6_Undrained(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.stubborn = map[string]time.Duration{"r9": 5 * time.Second}
		f.settle(2, 4)
		f.join("r9", replica.WithDrain(time.Second))
		f.within(2*lease, "even", func() bool { return f.allRun() && f.even() })
		err := f.leave("r9")
		require.ErrorIs(t, err, replica.ErrUndrained)
		require.ErrorContains(t, err, "1 task")
	})
}

// An outage of the table longer than the lease stops everything, and everything runs soon
// after it (A5).
func TestA5_AnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(3, 12)
		f.table.SetFaults(func(replica.Update) memory.Fault { return memory.Fault{Err: memory.ErrInjected} })
		time.Sleep(2 * lease)
		require.Empty(t, f.loads())
		for _, n := range f.replicas {
			require.Error(t, n.Ready())
			require.NoError(t, n.Alive())
		}
		f.table.SetFaults(nil)
		require.Less(t, f.within(2*lease, "all run again", f.allRun), lease/4+time.Second)
		require.LessOrEqual(t, len(f.log.lines("backend failed")), 3*2, "one line a minute and replica")
	})
}

// Each member's own lease counts (A8).
func TestA8_LeasesMayDiffer(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.want(named(12)...)
		f.join("short", replica.WithLease(2*time.Second, 200*time.Millisecond))
		f.join("long", replica.WithLease(time.Minute, 2*time.Second))
		f.join("r0")
		f.within(2*lease, "all run", func() bool { return f.allRun() && f.even() })
		f.kill("short")
		// Others may first see its last heartbeat a lease after it was written.
		require.LessOrEqual(t, f.within(lease, "the tasks of the short lease", f.allRun), 2*2*time.Second+200*time.Millisecond)
		f.kill("long")
		took := f.within(2*time.Minute, "the tasks of the long lease", f.allRun)
		require.InDelta(t, time.Minute, took, float64(10*time.Second))
	})
}

// A worker that lives and takes no orders is evicted (A11).
func TestA11_AWorkerWhoseBeginHangs(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(2, 4)
		hung := make(chan struct{})
		defer close(hung)
		f.join("hung", replica.WithWorker(worker.WithAccept(func(context.Context, string, []byte) error { <-hung; return nil })))
		time.Sleep(lease)
		f.within(2*lease, "all run", f.allRun)
		require.NotEmpty(t, f.log.lines("worker does not take orders"))
		f.kill("hung")
	})
}

// Inputs reach running tasks, and nothing moves (W7).
func TestAnInputThatChanges(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(2, 4)
		starts := f.started()
		tasks := named(4)
		tasks[1].Input = 7
		f.want(tasks...)
		f.within(lease, "restarted in place", func() bool { return f.started() == starts+1 })
		time.Sleep(lease)
		require.Equal(t, starts+1, f.started())
		require.True(t, f.allRun())
	})
}

// A leader whose list never changes stays leader.
func TestIdleLeadersStay(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.want(named(4)...)
		for i := range 3 {
			f.joinWith(fmt.Sprint("r", i), replica.Names("t00", "t01", "t02", "t03"))
		}
		f.within(lease, "all run", f.allRun)
		leads := f.leader()
		epoch := leads.Status().Epoch
		time.Sleep(10 * lease)
		require.Same(t, leads, f.leader())
		require.Equal(t, epoch, leads.Status().Epoch)
		f.kill(leads.name)
		f.within(2*lease, "all run", f.allRun)
		epoch = f.leader().Status().Epoch
		time.Sleep(10 * lease)
		require.Equal(t, epoch, f.leader().Status().Epoch)
	})
}

func TestNeverStuck(t *testing.T) {
	sources := map[string]func(f *fleet, began time.Time, i int) replica.Source{
		"answers after two leases": func(f *fleet, began time.Time, _ int) replica.Source {
			return func(ctx context.Context, tell func([]replica.Task) error) error {
				select {
				case <-time.After(time.Until(began.Add(2 * lease))):
				case <-ctx.Done():
					return nil
				}
				return f.source(ctx, tell)
			}
		},
		"fails at first": func(f *fleet, began time.Time, _ int) replica.Source {
			return func(ctx context.Context, tell func([]replica.Task) error) error {
				if time.Since(began) < 2*lease {
					return errors.New("not yet")
				}
				return f.source(ctx, tell)
			}
		},
		"blocks in all but one": func(f *fleet, began time.Time, i int) replica.Source {
			return func(ctx context.Context, tell func([]replica.Task) error) error {
				if i != 3 {
					<-ctx.Done()
					return nil
				}
				select {
				case <-time.After(time.Until(began.Add(2 * lease))):
				case <-ctx.Done():
				}
				return f.source(ctx, tell)
			}
		},
		"ignores its context": func(f *fleet, began time.Time, _ int) replica.Source {
			return func(ctx context.Context, tell func([]replica.Task) error) error {
				<-time.After(time.Until(began.Add(2 * lease)))
				return f.source(ctx, tell)
			}
		},
		"lies at first": func(f *fleet, began time.Time, i int) replica.Source {
			return func(ctx context.Context, tell func([]replica.Task) error) error {
				lies := [][]replica.Task{nil, named(4), {{}, {Name: "t00", Instances: -7}}, {{Name: "a", Weight: 1}, {Name: "a", Weight: 2}}}
				if err := tell(lies[i%4]); err != nil {
					return err
				}
				select {
				case <-time.After(time.Until(began.Add(2 * lease))):
				case <-ctx.Done():
					return nil
				}
				return f.source(ctx, tell)
			}
		},
		"panics at first": func(f *fleet, began time.Time, _ int) replica.Source {
			return func(ctx context.Context, tell func([]replica.Task) error) error {
				if time.Since(began) < 2*lease {
					panic("not yet")
				}
				return f.source(ctx, tell)
			}
		},
	}
	for name, source := range sources {
		for _, n := range []int{4, 8, 12, 20} {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				t.Parallel()
				bubble(t, func(_ *testing.T, f *fleet) {
					f.want(named(40)...)
					began := time.Now()
					for i := range n {
						f.joinWith(fmt.Sprint("r", i), source(f, began, i))
					}
					f.within(6*lease, "all run", f.allRun)
				})
			})
		}
	}
}

func TestRn_NewNamesWhatIsWrong(t *testing.T) {
	work := func(context.Context, string) error { return nil }
	_, err := replica.New(nil, nil, nil, nil)
	require.ErrorIs(t, err, replica.ErrInvalid)
	for _, what := range []string{"backend", "source", "work", "option 1"} {
		require.ErrorContains(t, err, what)
	}
	for what, opt := range map[string]replica.Option{
		"WithOrchestrator(WithEpoch)":       replica.WithOrchestrator(orchestrator.WithEpoch(7)),
		"WithOrchestrator(WithGracePeriod)": replica.WithOrchestrator(orchestrator.WithGracePeriod(0)),
		"WithWorker(WithLease)":             replica.WithWorker(worker.WithLease(time.Minute, time.Second)),
		"WithWorker(WithCompletion)":        replica.WithWorker(worker.WithCompletion(func(string) {})),
		"an Option is nil":                  replica.WithOrchestrator(nil),
		"WithWorker":                        replica.WithWorker(nil),
		"WithLogger":                        replica.WithLogger(nil),
		"WithLease":                         replica.WithLease(time.Hour, time.Second),
		"WithName":                          replica.WithName(""),
		"WithRole":                          replica.WithRole(9),
		"WithDrain":                         replica.WithDrain(-1),
		"WithInterval":                      replica.WithInterval(0),
		"WithLeading":                       replica.WithLeading(nil),
		"WithLastResort":                    replica.WithLastResort(nil),
		"attributes":                        replica.WithAttributes(map[string]string{"a": fmt.Sprintf("%5000d", 1)}),
	} {
		_, err := replica.New(memory.New(), replica.Names("a"), work, opt)
		require.ErrorIs(t, err, replica.ErrInvalid, what)
		require.ErrorContains(t, err, what)
	}
}

func TestRg_Services(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(2, 4)
		err := f.join("x", replica.WithService("another"))
		<-err.done
		delete(f.replicas, "x")
		require.ErrorIs(t, err.err, replica.ErrForeign)
		require.ErrorContains(t, err.err, "another")
		require.True(t, f.allRun())
		require.NotContains(t, f.loads(), "x")
	})
	bubble(t, func(_ *testing.T, f *fleet) { // an empty name refuses none, and none refuses it
		f.settle(2, 4)
		f.join("x", replica.WithService(""))
		f.join("y")
		f.within(lease, "all run", func() bool { return f.allRun() && f.even() && len(f.loads()) == 4 })
	})
	bubble(t, func(_ *testing.T, f *fleet) { // the other service has died
		f.settle(1, 4)
		f.kill("r0")
		f.join("x", replica.WithService("another"))
		f.within(4*lease, "all run", f.allRun)
	})
}

// An emptied table has no list in force. Until a Source has answered, nothing stops (A7).
func TestA7_NothingIsServedBeforeAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.want(named(12)...)
		for i := range 3 {
			f.joinWith(fmt.Sprint("r", i), func(ctx context.Context, tell func([]replica.Task) error) error {
				select {
				case <-time.After(5 * time.Second):
				case <-ctx.Done():
				}
				return f.source(ctx, tell)
			})
		}
		f.within(2*lease, "all run", func() bool { return f.allRun() && f.even() })
		starts := f.started()
		f.table.Truncate()
		time.Sleep(4 * lease)
		require.NotNil(t, f.leader())
		require.True(t, f.allRun())
		require.Equal(t, starts, f.started())
	})
}

// A table that is emptied stops nothing, and moves nothing.
func TestB7_LossesStopNothing(t *testing.T) {
	for name, lose := range map[string]func(*memory.Table){
		"emptied":  (*memory.Table).Truncate,
		"set back": func(table *memory.Table) { table.Restore(table.Save()) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fleet) {
				f.settle(4, 20)
				time.Sleep(lease)
				starts := f.started()
				lose(f.table)
				time.Sleep(lease / 2)
				require.Nil(t, f.leader(), "no elections for one lease")
				f.within(2*lease, "a leader", func() bool { return f.leader() != nil })
				time.Sleep(2 * lease)
				require.True(t, f.allRun())
				require.Equal(t, starts, f.started())
			})
		})
	}
}

// A Sync that finds another Server renews no lease (B7).
func TestB7_ASyncOfAnotherServerRenewsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(2, 4)
		f.table.SetFaults(func(u replica.Update) memory.Fault {
			if u.Member.Heartbeat > 0 {
				f.table.Truncate()
			}
			return memory.Fault{}
		})
		time.Sleep(lease)
		require.Empty(t, f.loads())
		f.table.SetFaults(nil)
		f.within(4*lease, "all run", f.allRun)
	})
}

// A report whose Sync had no answer is sent again (O2).
func TestO2_AReportWithoutAnAnswerIsSentAgain(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.backend = &meddler{Table: f.table, sync: func(b *meddler, ctx context.Context, u replica.Update) (replica.View, error) {
			if u.Report != nil && u.Report.Applied > 0 && !b.done[u.Self] {
				b.done[u.Self] = true
				return replica.View{}, errors.New("lost")
			}
			return b.Table.Sync(ctx, u)
		}, done: make(map[uint64]bool)}
		f.settle(2, 4)
		time.Sleep(lease)
		v, err := f.table.Read(t.Context(), replica.Query{Follow: true})
		require.NoError(t, err)
		for _, o := range v.Orders {
			require.GreaterOrEqual(t, v.Reports[o.Member].Applied, o.Version)
		}
	})
}

// A batch that is refused after a Sync with it had no answer may be in the table (B5).
func TestB5_ARefusalAfterNoAnswerIsNotCertain(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		tries := 0
		f.backend = &meddler{Table: f.table, sync: func(b *meddler, ctx context.Context, u replica.Update) (replica.View, error) {
			if u.Batch == nil || len(u.Batch.Orders) == 0 || tries == 2 {
				return b.Table.Sync(ctx, u)
			}
			if tries++; tries == 2 {
				return replica.View{}, fmt.Errorf("%w: no", orchestrator.ErrRejected)
			}
			_, _ = b.Table.Sync(ctx, u)
			return replica.View{}, errors.New("no answer")
		}}
		f.settle(2, 4)
		f.within(lease, "it leads no longer", func() bool { return len(f.log.lines("the backend refuses a batch that it may have written")) > 0 })
		f.within(lease, "all run", f.allRun)
		require.Len(t, f.log.lines("the backend refuses a batch that it may have written"), 1)
	})
}

// slowWaiter is a table whose Wait tells of nothing, as while it connects.
type slowWaiter struct{ *memory.Table }

func (b slowWaiter) Wait(ctx context.Context, _ replica.Query) error {
	<-ctx.Done()
	return context.Canceled
}

// Replicas read at intervals until a Wait has told of a change.
func TestWait_ThatTellsNothing(t *testing.T) {
	bubble(t, func(_ *testing.T, f *fleet) {
		f.backend = slowWaiter{f.table}
		f.settle(2, 6)
		f.join("late")
		f.within(lease/30, "even", f.even) // a heartbeat comes after lease/12
	})
}

// meddler is a table whose Sync is replaced.
type meddler struct {
	*memory.Table
	mu   sync.Mutex
	sync func(b *meddler, ctx context.Context, u replica.Update) (replica.View, error)
	done map[uint64]bool
}

func (b *meddler) Sync(ctx context.Context, u replica.Update) (replica.View, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sync(b, ctx, u)
}

// A record whose epoch is the highest that is believed leaves room for the next epochs.
func TestB3_AnEpochAtItsLimit(t *testing.T) {
	for name, newTable := range map[string]func() *memory.Table{"O4": memory.New, "O5": memory.NewPiecewise} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := newTable()
				f := newFleet(t, table)
				defer f.end()
				f.settle(4, 12)
				leader, dead := f.leader(), f.follower()
				id := dead.Status().ID
				f.kill(dead.name)
				f.kill(leader.name)
				table.Edit(func(r *memory.Records) { r.Members[id].Record.Epoch = replica.MaxSeen - 1 })
				f.within(4*lease, "all run", f.allRun)
				require.Greater(t, f.leader().Status().Epoch, uint64(replica.MaxSeen))
				f.want(named(15)...)
				f.within(lease, "all run", f.allRun)
			})
		})
	}
}
