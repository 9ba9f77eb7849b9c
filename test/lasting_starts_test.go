package test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// T3 and T9: starts that hang or take long, for ever.

// One of ten workers starts nothing, and 1,000 new tasks arrive.
func TestT9_AWorkerWhoseStartsHangKeepsNoShare(t *testing.T) {
	for _, test := range []struct {
		name   string
		runs   int // tasks that run before
		fault  func(ctx context.Context, release <-chan struct{}) error
		limit  time.Duration
		silent bool // the worker does not answer either, so it is lost after the grace period
		start  func(*testing.T, int, ...option) *fleet
	}{
		{"runs nothing", 0, hangs, 45 * time.Second, false, newFleet},
		{"runs 100 tasks", 1000, hangs, 45 * time.Second, false, newFleet},
		{"runs 100 tasks, batches", 1000, hangs, 45 * time.Second, false, newBatchFleet},
		{"runs nothing, ignores the context", 0, ignores, 45 * time.Second, true, newFleet},
		{"runs 100 tasks, ignores the context", 1000, ignores, 45 * time.Second, true, newFleet},
		{"runs nothing, 6 s for each start", 0, takesLong, time.Minute, false, newFleet},
		{"runs 100 tasks, 6 s for each start", 1000, takesLong, time.Minute, false, newFleet},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServiceOn(t, test.start, 10)
				release := make(chan struct{})
				t.Cleanup(func() { close(release) })
				s.expect(test.runs)
				require.NoError(t, s.NextTerm(t.Context()))
				s.intercept(on(orchestrator.OpAdd, "w10", "", func(ctx context.Context) error { return test.fault(ctx, release) }))
				s.start(tick)
				time.Sleep(tick / 2)
				s.addAtOnce(names("new", 1000))
				began := time.Now()
				for len(s.firstStarts()) < test.runs+1000 && time.Since(began) < time.Hour {
					time.Sleep(tick)
				}
				t.Logf("every task has started after %v", time.Since(began))
				require.LessOrEqual(t, time.Since(began), test.limit)
				if !test.silent {
					s.requireNeverTwice()
				}
			})
		})
	}
}

// addAtOnce adds tasks in one step.
func (f *fleet) addAtOnce(tasks []string) {
	f.t.Helper()
	all := f.ListExpectedTasks()
	for _, name := range tasks {
		all = append(all, task{Name: name})
	}
	require.NoError(f.t, f.UpdateTasks(all))
}

// The faults of a start, for ever. Only ignores makes use of release, which the
// test closes at its end.

func hangs(ctx context.Context, _ <-chan struct{}) error { return hang(ctx) }

func ignores(_ context.Context, release <-chan struct{}) error {
	<-release
	return errBoom
}

func takesLong(ctx context.Context, _ <-chan struct{}) error { return pass(ctx, 6*time.Second) }

// Every worker takes six seconds for each start, so none of them is given less.
// Two starts of a worker begin within the ten seconds of a term: 1,000 tasks on
// ten workers need 50 terms of 12 seconds.
func TestT9_AFleetThatIsSlowAlikeIsNotSlowedDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, 10)
		s.intercept(on(orchestrator.OpAdd, "", "", func(ctx context.Context) error { return takesLong(ctx, nil) }))
		s.addAtOnce(names("t", 1000))
		s.start(tick)
		require.LessOrEqual(t, s.untilAllRun(time.Hour), slowAlike)
		s.requireNeverTwice()
	})
}

// slowAlike is how long a fleet that is slow alike took before workers were
// given less for being slow, and a term more.
const slowAlike = 601*time.Second + 12*time.Second

// Poison tasks whose starts hang on every worker.
func TestT3_HangingPoisonMakesFewTermsLong(t *testing.T) {
	for _, test := range []struct{ workers, poison int }{{10, 1}, {64, 1}, {100, 1}, {40, 32}, {100, 32}} {
		t.Run(fmt.Sprintf("%d workers, %d poison", test.workers, test.poison), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := withHangingPoison(t, test.workers, test.poison)
				time.Sleep(2 * time.Minute) // until the pauses no longer grow
				s.requireShortTerms()
				require.Empty(t, s.quarantined())
				require.Equal(t, test.poison, s.missing(), "all others run")
			})
		})
	}
}

// A worker tries one start that hangs in a term, so that 32 on ten workers make
// four terms long in each round of tries.
func TestT3_HangingPoisonOnFewWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withHangingPoison(t, 10, 32)
		longs, _ := s.observe()
		require.LessOrEqual(t, longs, 50, "long terms")
		require.Empty(t, s.quarantined())
		require.Equal(t, 32, s.missing(), "all others run")
	})
}

// withHangingPoison starts a leader of healthy workers and tasks, and adds tasks
// whose starts hang.
func withHangingPoison(t *testing.T, workers, poison int) *service {
	t.Helper()
	s := newService(t, workers)
	s.expect(2 * workers)
	require.NoError(t, s.NextTerm(t.Context()))
	s.intercept(func(ctx context.Context, c call) error {
		if c.Op == orchestrator.OpAdd && strings.HasPrefix(c.Task, "poison") {
			return hang(ctx)
		}
		return nil
	})
	s.start(tick)
	s.addAtOnce(names("poison", poison))
	return s
}

// A worker that refused every start for a long time, and then recovers, gets its
// share again.
func TestT9_ARecoveredWorkerGetsItsShare(t *testing.T) {
	for _, broken := range []int{3, 20, 200} {
		for name, fault := range map[string]func(context.Context) error{
			"refuses": func(context.Context) error { return errRejected },
			"fails":   func(context.Context) error { return errBoom },
			"hangs":   hang,
		} {
			t.Run(fmt.Sprintf("%s for %d terms", name, broken), func(t *testing.T) {
				onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
					f := start(t, 4)
					f.intercept(on(orchestrator.OpAdd, "w3", "", fault))
					f.expect(100)
					for term := range broken {
						f.steadyTerm()
						if term > 0 {
							require.LessOrEqual(t, f.missing(), 1, "the one task that the worker is tried with")
						}
					}
					f.intercept(nil)
					terms := f.untilTerm(100, func() bool { return slices.Equal(f.loads(), []int{25, 25, 25, 25}) })
					t.Logf("its share after %d terms", terms)
					require.LessOrEqual(t, terms, 64)
					f.requireNeverTwice()
				})
			})
		}
	}
}

// A pause ends after a minute, even if that is one term. A worker that refused
// every start for hours has its share a few terms after it recovered.
func TestT9_PausesAreNoLongerThanAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, 4)
		s.expect(100)
		s.intercept(on(orchestrator.OpAdd, "w3", "", func(context.Context) error { return errRejected }))
		s.start(time.Minute)
		time.Sleep(4 * time.Hour)
		require.Zero(t, s.missing())
		s.intercept(nil)
		began := time.Now()
		for time.Since(began) < 2*time.Hour && spread(s.loads()) > 1 {
			time.Sleep(time.Minute)
		}
		t.Logf("its share after %v", time.Since(began))
		require.LessOrEqual(t, time.Since(began), 5*time.Minute)
	})
}
