package replica_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
)

// knows reports whether the owners of every task, as a replica knows them, are those that run it.
func (f *fleet) knows(n *node) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.tasks {
		var want []string
		for name, copies := range f.running[t.Name] {
			if copies > 0 {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		f.mu.Unlock()
		owners := n.Owners(t.Name)
		f.mu.Lock()
		if len(owners) != len(want) {
			return false
		}
		for i, o := range owners {
			if o.Name != want[i] || o.Since.IsZero() {
				return false
			}
		}
	}
	return true
}

// shows reports whether the last term that a replica shows has all tasks.
func (f *fleet) shows(n *node) bool {
	s := n.Last()
	if s == nil {
		return false
	}
	p := s.Plan()
	return p.Stats.Instances.Running == f.total() && p.Stats.Instances.Missing == 0 && len(p.Workers) == len(f.replicas) && p.Stats.Observed != n.Status().Leading
}

// url describes a replica by its name.
func url(name string) replica.Option {
	return replica.WithAttributes(map[string]string{"url": "http://" + name})
}

// Any replica knows who runs what, while others join, leave, die and lead.
func TestOwners(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		tasks := append(named(20), replica.Task{Name: "both", Instances: 2})
		f.limits["both"] = 2
		f.want(tasks...)
		for _, name := range []string{"r0", "r1", "r2", "r3"} {
			f.join(name, url(name))
		}
		f.within(lease, "settle", f.allRun)
		known := func(when string) {
			t.Helper()
			f.within(3*lease, when, func() bool {
				for _, n := range f.replicas {
					if !f.knows(n) {
						return false
					}
				}
				return f.allRun()
			})
		}
		leader := func() (n *node) {
			f.within(lease, "one leads", func() bool { n = f.leader(); return n != nil })
			return n
		}
		known("at first")
		f.join("r9", url("r9"))
		known("after a join")
		for _, o := range leader().Owners("both") {
			require.Equal(t, "http://"+o.Name, o.Attributes["url"])
		}
		require.NoError(t, f.leave(leader().name))
		known("after the leader has left")
		f.kill(leader().name)
		known("after the leader has died")
		f.want(named(3)...)
		known("after tasks were removed")
		for _, n := range f.replicas { // the next full View shows it
			f.within(lease, "no owner is left", func() bool { return len(n.Owners("t19")) == 0 })
		}
		time.Sleep(lease) // nobody asks
		synctest.Wait()
		for _, n := range f.replicas {
			began := time.Now()
			require.Len(t, n.Owners("t00"), 1)
			require.Less(t, time.Since(began), 100*time.Millisecond, "it waits until it knows")
			require.Empty(t, n.Owners("none"))
		}
	})
}

// Watch begins with every task, and then yields what changes.
func TestWatch(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(3, 12)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		for name, n := range f.replicas {
			seen, began := make(map[string]string), time.Now()
			for c := range n.Watch(ctx) {
				require.Len(t, c.Owners, 1)
				if seen[c.Task] = c.Owners[0].Name; len(seen) == 12 {
					break
				}
			}
			require.Less(t, time.Since(began), time.Second, name)
		}
		var mu sync.Mutex
		owners := make(map[string]string)
		var watching sync.WaitGroup
		watching.Go(func() {
			for c := range f.replicas["r1"].Watch(ctx) {
				mu.Lock()
				if delete(owners, c.Task); len(c.Owners) > 0 {
					owners[c.Task] = c.Owners[0].Name
				}
				mu.Unlock()
			}
		})
		matches := func() bool {
			mu.Lock()
			defer mu.Unlock()
			loads := make(map[string]int)
			for _, name := range owners {
				loads[name]++
			}
			return fmt.Sprint(loads) == fmt.Sprint(f.loads())
		}
		f.within(time.Second, "all owners", matches)
		f.join("r9")
		f.within(lease, "after a join", func() bool { return f.even() && matches() })
		f.kill("r2")
		f.within(2*lease, "after a death", func() bool { return f.allRun() && f.loads()["r2"] == 0 && matches() })
		time.Sleep(10 * lease) // it goes on to follow
		f.want(named(7)...)
		f.within(lease, "after tasks were removed", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return f.allRun() && len(owners) == 7
		})
		stop()
		watching.Wait()
	})
}

// A replica that does not lead shows the workers, their tasks and their states, and what is
// missing, but no plans.
func TestLast(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.want(append(named(6), replica.Task{Name: "gpu", Requires: []string{"gpu"}})...)
		for _, name := range []string{"r0", "r1", "r2"} {
			f.join(name)
		}
		f.within(lease, "all that can run", func() bool { return f.total() == 6 && f.even() })
		f.within(lease, "the leader has ended a term", func() bool {
			leader := f.leader()
			return leader != nil && leader.Last() != nil && leader.Last().Plan().Stats.Instances.Running == 6
		})
		for name, n := range f.replicas {
			began := time.Now()
			s := n.Last()
			require.NotNil(t, s, name)
			require.Less(t, time.Since(began), time.Second)
			p := s.Plan()
			require.Equal(t, !n.Status().Leading, p.Stats.Observed)
			require.Len(t, p.Workers, 3)
			require.Equal(t, orchestrator.InstanceStats{Wanted: 7, Running: 6, Missing: 1, Unplaceable: 1}, p.Stats.Instances, name)
			require.Len(t, p.Waiting, 1)
			require.Equal(t, orchestrator.ReasonNoPlace, p.Waiting[0].Reason)
			for w := range s.Workers() {
				require.Len(t, w.Tasks, 2)
			}
			require.Equal(t, p.Stats.Term.Epoch, n.Config().Epoch)
			require.Equal(t, n.Status().Epoch, p.Stats.Term.Epoch)
			require.Zero(t, n.Progress())
			_, err := n.Plan(orchestrator.Hypothesis[replica.WorkerID, string]{Drain: []replica.WorkerID{p.Workers[0].Name}})
			require.NoError(t, err)
		}
	})
}

// What a replica that does not lead shows of a death: the tasks are held, and then they run.
func TestLast_ADeath(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(4, 8)
		var follower, victim string
		for name, n := range f.replicas {
			if !n.Status().Leading {
				follower, victim = name, cmp.Or(follower, name)
			}
		}
		var mu sync.Mutex
		var seen []orchestrator.Reason
		changes, observed := 0, true
		stop := f.replicas[follower].OnTerm(func(s *orchestrator.Snapshot[replica.WorkerID, string]) {
			mu.Lock()
			defer mu.Unlock()
			p := s.Plan()
			observed = observed && p.Stats.Observed
			changes += len(p.Changes)
			for _, w := range p.Waiting {
				seen = append(seen, w.Reason)
			}
		})
		f.kill(victim)
		f.within(2*lease, "all run again", func() bool {
			f.replicas[follower].Last()
			return f.allRun() && f.loads()[victim] == 0
		})
		stop()
		mu.Lock()
		defer mu.Unlock()
		require.True(t, observed)
		require.Zero(t, changes)
		require.Contains(t, seen, orchestrator.ReasonHeld)
	})
}

// R-d of the trials: a task that fails on one replica is visible on all.
func TestRd_AFailureIsVisibleOnAll(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		for _, name := range []string{"r0", "r1", "r2"} {
			work := f.work(name)
			f.want(named(6)...)
			f.joinWorking(name, func(ctx context.Context, task string) error {
				if name == "r1" {
					return errors.New("disk is full")
				}
				return work(ctx, task)
			})
		}
		for name, n := range f.replicas {
			f.within(2*lease, name+" knows the failures", func() bool {
				s := n.Last()
				if s == nil {
					return false
				}
				failing := 0
				for w := range s.Workers() {
					for _, state := range n.States(w.Name) {
						require.Equal(t, "r1", w.Name.Name)
						if state.Err == "disk is full" && state.Restarts > 0 {
							failing++
						}
					}
				}
				return failing == 2
			})
		}
	})
}

// A task that fails now and then is known to fail while it runs, for a minute.
func TestRd_AFailureNowAndThen(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		work := f.work("r0")
		f.want(named(2)...)
		n := f.joinWorking("r0", func(ctx context.Context, task string) error {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			_ = work(ctx, task)
			return errors.New("disk is full")
		})
		failing := func() (n int) {
			for w := range f.replicas["r0"].Last().Workers() {
				for _, s := range f.replicas["r0"].States(w.Name) {
					if s.Err == "disk is full" {
						n++
					}
				}
			}
			return n
		}
		f.within(lease, "they fail", func() bool { return n.Last() != nil && failing() == 2 })
		for range 20 {
			time.Sleep(lease / 12)
			synctest.Wait()
			require.Equal(t, 2, failing())
		}
	})
}

// Nobody is followed without a question, and before Run nothing waits.
func TestOwners_WithoutAQuestion(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(3, 6)
		time.Sleep(lease)
		synctest.Wait()
		var follows atomic.Int32
		f.table.SetFaults(func(u replica.Update) memory.Fault {
			if u.Follow {
				follows.Add(1)
			}
			return memory.Fault{}
		})
		time.Sleep(lease)
		require.Less(t, follows.Load(), int32(20), "the leader alone")
		r, err := replica.New(memory.New(), replica.Names("a"), func(context.Context, string) error { return nil })
		require.NoError(t, err)
		began := time.Now()
		require.Nil(t, r.Last())
		require.Empty(t, r.Owners("a"))
		require.Zero(t, r.Config())
		_, err = r.Plan(orchestrator.Hypothesis[replica.WorkerID, string]{})
		require.ErrorContains(t, err, "no term is known")
		require.Zero(t, time.Since(began))
	})
}
