package replica_test

// What happened in trials of the first edition, with the values seen there (R-…).

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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

// A second row with the same id, while there are three replicas with four tasks each.
func TestRa_TwoRowsOfOneName(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(3, 12)
		tasks := append(named(12), replica.Task{Name: "t03", Weight: 7}, replica.Task{Name: "new"}, replica.Task{Name: "new"})
		f.want(tasks...)
		f.within(lease, "the new task runs", func() bool { return f.copiesOf("new") == 1 })
		require.Equal(t, 1, f.copiesOf("t03"), "it stays as it was")
		require.Contains(t, f.leader().Status().BadRows, "t03")
		require.Len(t, f.log.lines("source has bad rows"), 1)
		f.kill(f.leader().name)
		f.within(2*lease, "a new leader knows the list", func() bool {
			return f.leader() != nil && f.copiesOf("new") == 1 && f.copiesOf("t03") == 1 && f.total() == 13
		})
		require.NoError(t, f.leave(f.leader().name), "a drain needs no Source")
		f.within(time.Second, "all run", func() bool { return f.total() == 13 })
	})
}

// A Source that tells 10 of 100 tasks once.
func TestRb_ASourceThatForgets(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(4, 100)
		f.want(named(10)...)
		time.Sleep(55 * time.Second)
		require.Equal(t, 100, f.total())
		require.Len(t, f.log.lines("source lacks most tasks"), 1)
		f.want(named(100)...)
		time.Sleep(2 * time.Minute)
		require.Equal(t, 100, f.total())
		f.want(named(10)...)
		f.within(time.Minute+lease/12+time.Second, "the brake ends", func() bool { return f.total() == 10 })
		require.NotEmpty(t, f.log.lines("brake on missing tasks ended"))
	})
}

// R-e: one of three replicas dies 6 s after each start, and starts again a second later, or when
// its lease is over. It loses at most its first two shares. Once it stays it gets its share.
func TestRe_AReplicaThatDiesAgainAndAgain(t *testing.T) {
	for _, away := range []time.Duration{time.Second, lease + lease/2} {
		bubble(t, func(t *testing.T, f *fleet) {
			f.settle(3, 30)
			dies, lost := "r0", 0
			if f.leader().name == dies {
				dies = "r1" // what a leader knows of falls ends with it
			}
			for range 6 {
				lost += f.loads()[dies]
				f.kill(dies)
				time.Sleep(away)
				f.join(dies)
				time.Sleep(6 * time.Second)
			}
			require.LessOrEqual(t, lost, 2*10, "away for %v", away)
			f.within(10*time.Minute, "it has its share", func() bool { return f.allRun() && f.even() })
		})
	}
}

// A task that ignores its context, and SIGTERM: the task is named, and the last resort is
// called at the end of the lease.
func TestRj_ATaskThatIgnoresItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.stubborn = map[string]time.Duration{"r9": 10 * time.Minute}
		f.settle(2, 4)
		var mu sync.Mutex
		var named []string
		n := f.join("r9", replica.WithDrain(5*time.Second), replica.WithLastResort(func(tasks []string) {
			mu.Lock()
			defer mu.Unlock()
			named = append(named, tasks...)
		}))
		f.within(lease, "r9 has a task", func() bool { return f.loads()["r9"] > 0 })
		began := time.Now()
		n.stop()
		last := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(named) > 0
		}
		for !last() {
			time.Sleep(time.Second)
			require.Less(t, time.Since(began), 5*time.Second+lease)
		}
		require.Len(t, f.log.lines("tasks do not stop"), 1)
		require.Contains(t, f.log.lines("tasks do not stop")[0], named[0])
		delete(f.replicas, "r9")
		time.Sleep(10 * time.Minute) // the test's last resort does not end the process
		<-n.done
		require.Error(t, n.err)
	})
}

// Tasks that need a label nobody has, and a Source that blocks on a single replica.
func TestRl_OneLineEach(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.want(replica.Task{Name: "picky", Requires: []string{"gpu"}}, replica.Task{Name: "plain"})
		f.join("r0")
		time.Sleep(50 * time.Second)
		require.Equal(t, 1, f.total())
		require.Len(t, f.log.lines("task has no place on any replica"), 1)
		require.Contains(t, f.log.lines("task has no place on any replica")[0], "picky")
	})
	bubble(t, func(t *testing.T, f *fleet) {
		f.joinWith("r0", func(ctx context.Context, _ func([]replica.Task) error) error {
			<-ctx.Done()
			return nil
		})
		time.Sleep(lease + lease/2)
		require.Len(t, f.log.lines("source failed"), 1)
		require.Contains(t, f.log.lines("source failed")[0], "has not answered for a lease")
	})
}

// Every replica says since when the Source fails; the leader, which rows are bad and which tasks the brake keeps (D34).
func TestD34_TheStatusOfTheSource(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		var answer atomic.Pointer[[]replica.Task] // nil: it fails
		answer.Store(new(named(12)))
		source := replica.Poll(time.Second, func(context.Context) ([]replica.Task, error) {
			if tasks := answer.Load(); tasks != nil {
				return *tasks, nil
			}
			return nil, errors.New("connection refused")
		})
		f.want(named(12)...)
		for _, name := range []string{"r0", "r1"} {
			f.joinWith(name, source)
		}
		f.within(lease, "all run", f.allRun)
		leader, other := f.leader(), f.follower()
		require.Zero(t, leader.Status().Source)

		began := time.Now()
		answer.Store(new(append(named(3), replica.Task{})))
		time.Sleep(10 * time.Second)
		s := leader.Status().Source
		require.Equal(t, 9, s.Kept)
		for _, since := range []time.Time{s.Braked, s.BadSince} {
			require.InDelta(t, 500*time.Millisecond, since.Sub(began), float64(500*time.Millisecond))
		}
		require.Zero(t, other.Status().Source)
		answer.Store(new(named(12)))
		time.Sleep(3 * time.Second)
		require.Zero(t, leader.Status().Source)

		began = time.Now()
		answer.Store(nil)
		time.Sleep(10 * time.Second)
		s = leader.Status().Source
		require.Equal(t, "connection refused", s.Err)
		require.InDelta(t, 500*time.Millisecond, s.Failing.Sub(began), float64(500*time.Millisecond))
		time.Sleep(4 * lease)
		require.Equal(t, began.Add(s.Failing.Sub(began)), f.leader().Status().Source.Failing)
		require.Equal(t, "the Source of "+f.leader().Status().Name+", which leads, does not answer", f.follower().Status().Source.Err)
		require.True(t, f.follower().Status().Source.Failing.After(began))
		answer.Store(new(named(12)))
		time.Sleep(lease)
		require.Zero(t, f.leader().Status().Source)
		require.Zero(t, f.follower().Status().Source)
	})
}

// A Source that tells once and returns is told once what to do instead.
func TestRm_ASourceThatReturns(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.want(named(4)...)
		f.joinWith("r0", func(_ context.Context, tell func([]replica.Task) error) error { return tell(named(4)) })
		f.within(lease, "all run", f.allRun)
		time.Sleep(10 * time.Minute)
		require.True(t, f.allRun())
		require.Len(t, f.log.lines("return when ctx ends, or use Names or Poll"), 1)
		require.Len(t, f.log.lines("level=WARN"), 1)
	})
}

// A Source that ignores its context is named, and not waited for.
func TestASourceThatIgnoresItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		release := make(chan struct{})
		f.want(named(4)...)
		f.joinWith("r0", func(_ context.Context, tell func([]replica.Task) error) error {
			err := tell(named(4))
			<-release
			return err
		})
		f.within(lease, "all run", f.allRun)
		began := time.Now()
		require.NoError(t, f.leave("r0"))
		require.Less(t, time.Since(began), 3*time.Second)
		time.Sleep(2 * lease)
		require.Len(t, f.log.lines("source has not returned, it must watch its context"), 1)
		close(release)
	})
}

// Poll calls at an interval. A failure and a call that lasts too long are failures of the
// Source, so that another candidate leads.
func TestPoll(t *testing.T) {
	work := func(context.Context, string) error { return nil }
	for _, source := range []replica.Source{replica.Poll(0, nil), replica.Poll(time.Second, nil), replica.Poll(-1, func(context.Context) ([]replica.Task, error) { return nil, nil })} {
		_, err := replica.New(memory.New(), source, work)
		require.ErrorIs(t, err, replica.ErrInvalid)
		require.ErrorContains(t, err, "Poll")
	}
	for name, trouble := range map[string]func(ctx context.Context) ([]replica.Task, error){
		"fails": func(context.Context) ([]replica.Task, error) { return nil, errors.New("no") },
		"hangs": func(ctx context.Context) ([]replica.Task, error) { <-ctx.Done(); return nil, ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(_ *testing.T, f *fleet) {
				f.want(named(4)...)
				began := time.Now()
				poll := func(bad time.Duration) replica.Source {
					return replica.Poll(time.Second, func(ctx context.Context) ([]replica.Task, error) {
						if bad > 0 && time.Since(began) > bad {
							return trouble(ctx)
						}
						return named(4), nil
					})
				}
				first := f.joinWith("r0", poll(lease))
				f.within(lease, "all run", f.allRun)
				f.joinWith("r1", poll(0))
				f.joinWith("r2", poll(0))
				f.within(6*lease, "another leads", func() bool { return f.leader() != nil && f.leader() != first })
				f.within(lease, "all run", f.allRun)
			})
		})
	}
}

// An error of the first call that wraps ErrInvalid ends Run. The replica leaves the table, so
// that its tasks run elsewhere at once.
func TestASourceThatIsInvalid(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(2, 6)
		n := f.joinWith("r9", func(context.Context, func([]replica.Task) error) error {
			time.Sleep(2 * time.Second)
			return fmt.Errorf("%w: no column id", replica.ErrInvalid)
		})
		f.within(time.Second, "r9 has tasks", func() bool { return f.loads()["r9"] > 0 })
		<-n.done
		delete(f.replicas, "r9")
		require.ErrorIs(t, n.err, replica.ErrInvalid)
		require.ErrorContains(t, n.err, "no column id")
		require.Less(t, f.within(lease, "all run", f.allRun), time.Second)
		require.Empty(t, f.log.lines("lease lost"))
		require.Empty(t, f.log.lines("tasks stay as they are"))
	})
}

// A replica that leaves while the table is away has moved nothing.
func TestALeaveWithoutTheTable(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(1, 4)
		f.table.SetFaults(func(replica.Update) memory.Fault { return memory.Fault{Err: memory.ErrInjected} })
		require.NoError(t, f.leave("r0"), "there is no other replica")

		f.table.SetFaults(nil)
		f.join("r1")
		f.join("r2", replica.WithDrain(2*lease))
		f.within(3*lease, "even", func() bool { return f.allRun() && f.even() })
		f.cutOff(f.replicas["r2"])
		err := f.leave("r2")
		require.ErrorIs(t, err, replica.ErrUndrained)
		require.ErrorContains(t, err, "2 tasks")
		f.within(3*lease, "all run", f.allRun)
	})
}

// Run needs no first lease of waiting, and logs about five lines in a life.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logs
		ctx, cancel := context.WithCancel(t.Context())
		began, done, ran := time.Now(), make(chan error, 1), make(chan string, 1)
		go func() {
			done <- replica.Run(ctx, memory.New(), replica.Names("one"), func(ctx context.Context, task string) error {
				ran <- task
				<-ctx.Done()
				return nil
			}, replica.WithLease(lease, 2*time.Second), replica.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		}()
		require.Equal(t, "one", <-ran)
		require.Less(t, time.Since(began), 100*time.Millisecond)
		time.Sleep(10 * time.Minute)
		cancel()
		require.NoError(t, <-done)
		require.Empty(t, log.lines("level=WARN"))
		require.LessOrEqual(t, len(log.lines("level=INFO")), 6, "%q", log.lines(""))
	})
}

// WithLeading is called before a leadership's first term, and its result after the last one.
func TestWithLeading(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		var mu sync.Mutex
		var calls []string
		add := func(text string) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, text)
		}
		f.want(named(2)...)
		f.join("r0", replica.WithLeading(func(o *orchestrator.Orchestrator[replica.WorkerID, string]) func() {
			add(fmt.Sprint("leads ", o.Last() == nil))
			return func() { add(fmt.Sprint("stops ", o.Last() == nil)) }
		}))
		f.within(lease, "all run", f.allRun)
		f.table.Truncate()
		time.Sleep(3 * lease)
		require.NoError(t, f.leave("r0"))
		require.Equal(t, []string{"leads true", "stops false", "leads true", "stops false"}, calls)
	})
}

// R-i: a new version brings a new kind of task. Tasks that require a label of the new version are
// never given to the old one, whoever leads, and the others stay where they are.
func TestRi_ANewKindOfTask(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(3, 6)
		f.want(append(named(6), replica.Task{Name: "report", Requires: []string{"reports"}})...)
		time.Sleep(lease)
		require.Zero(t, f.copiesOf("report"), "no replica can run it")
		require.Equal(t, 6, f.total())
		for i := range 3 {
			f.join(fmt.Sprintf("new%d", i), replica.WithSettings(orchestrator.WorkerSettings{Labels: []string{"reports"}}))
			f.within(lease, "it runs on a new one", func() bool { return f.allRun() })
			require.NoError(t, f.leave(fmt.Sprintf("r%d", i)))
			f.within(2*lease, "all run", f.allRun)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for name, copies := range f.running["report"] {
			require.True(t, copies == 0 || strings.HasPrefix(name, "new"), name)
		}
	})
}
