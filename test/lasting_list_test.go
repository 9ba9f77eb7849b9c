package test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// T2, T3 and T4: Lists that are slow for ever, and ones that fail once.

// losses counts the workers that the last term saw as lost.
func (f *fleet) losses() int { return f.LastPlan().Stats.Workers.Lost }

// The whole fleet is slow: one round of Lists takes longer than the timeout,
// because calls wait for slots. Each call by itself is fast enough.
func TestT2_ASlowFleetLosesNoWorker(t *testing.T) {
	few := orchestrator.WithConcurrency(128)
	for _, test := range []struct {
		name    string
		workers int
		list    time.Duration
		healthy int // terms before the fleet turns slow
		terms   int
		opts    []option
	}{
		{"800 workers turn slow, 128 calls", 800, 1900 * time.Millisecond, 1, 100, []option{few}},
		{"800 workers are slow from the start, 128 calls", 800, 1900 * time.Millisecond, 0, 40, []option{few}},
		{"2,000 workers turn slow", 2000, time.Second, 1, 40, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, test.workers, test.opts...)
				f.expect(test.workers)
				for range test.healthy {
					f.term()
				}
				f.intercept(slowLists(func(string, int) time.Duration { return test.list }))
				lost := make(map[string]bool)
				for range test.terms {
					f.steadyTerm()
					if f.losses() == 0 {
						continue
					}
					for _, s := range f.LastActual() {
						if s.State == orchestrator.Lost {
							lost[s.Name] = true
						}
					}
				}
				doubled := 0
				for _, task := range f.ListExpectedTasks() {
					if f.Counts(task.Name).Most > 1 {
						doubled++
					}
				}
				t.Logf("%d workers lost, %d tasks doubled, %d missing, spread %d",
					len(lost), doubled, f.missing(), spread(f.loads()))
				require.Empty(t, slices.Sorted(maps.Keys(lost))[:min(3, len(lost))], "workers lost, the first three of them")
				require.Zero(t, doubled)
				require.Zero(t, f.missing())
				require.LessOrEqual(t, spread(f.loads()), 1)
			})
		})
	}
}

// Each List takes nine of the ten seconds that it may take.
func TestT3_ASlowListDelaysOnlyItsWorker(t *testing.T) {
	for _, workers := range []int{4, 20, 100} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t, workers)
				s.expect(2 * workers)
				s.intercept(slowLists(func(worker string, _ int) time.Duration {
					if worker == "w3" {
						return 9 * time.Second
					}
					return 0
				}))
				s.start(tick)
				s.requireShortTerms()
				s.requireNeverTwice()
				require.Zero(t, s.losses())
				require.NotEmpty(t, s.RunsOn("w3"), "it is slow, and takes part")
			})
		})
	}
}

// Every second List of one worker takes nine seconds.
func TestT3_AnAlternatingWorkerDelaysOnlyItself(t *testing.T) {
	for _, workers := range []int{4, 20} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t, workers)
				s.expect(2 * workers)
				s.intercept(slowLists(func(worker string, n int) time.Duration {
					if worker == "w3" && n%2 == 1 {
						return 9 * time.Second
					}
					return 0
				}))
				s.start(tick)
				s.requireShortTerms()
				s.requireNeverTwice()
				require.Zero(t, s.losses())
			})
		})
	}
}

// Of 100 workers each is slow once in a hundred Lists, so that most terms meet
// one slow worker.
func TestT3_RareSlownessOfManyWorkers(t *testing.T) {
	for name, slow := range map[string]func(worker, n int) bool{
		"in turn":   func(worker, n int) bool { return (worker+n)%100 == 0 },
		"at random": func(worker, n int) bool { return rand.New(rand.NewPCG(uint64(worker), uint64(n))).IntN(100) == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t, 100)
				s.expect(200)
				s.intercept(slowLists(func(worker string, n int) time.Duration {
					var i int
					_, err := fmt.Sscanf(worker, "w%d", &i)
					if err == nil && slow(i, n) {
						return 9 * time.Second
					}
					return 0
				}))
				s.start(tick)
				s.requireShortTerms()
				s.requireNeverTwice()
				require.Zero(t, s.losses())
			})
		})
	}
}

var errUnreachable = errors.New("connection refused")

// The workers come up after the first term. The second term has no other worker
// to wait for, so it waits for them.
func TestT3_WorkersUpAfterTheirLeaderCostNoTerm(t *testing.T) {
	for _, test := range []struct{ workers, up int }{{1, 1}, {3, 3}, {3, 1}} {
		t.Run(fmt.Sprintf("%d of %d workers", test.up, test.workers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, test.workers)
				f.expect(6)
				up := make(map[string]bool)
				f.intercept(func(ctx context.Context, c call) error {
					if !up[c.Worker] {
						return errUnreachable
					}
					return pass(ctx, 5*time.Millisecond)
				})
				require.ErrorIs(t, f.NextTerm(t.Context()), errUnreachable)
				for _, name := range f.workers[:test.up] {
					up[name] = true
				}
				time.Sleep(tick)

				err := f.NextTerm(t.Context())
				t.Logf("second term: %d missing, error %v", f.missing(), err)
				answering := 0
				for _, s := range f.LastActual() {
					if s.State == orchestrator.Answering {
						answering++
					}
				}
				require.Equal(t, test.up, answering, "the term knows the answers")
				if test.up < test.workers {
					require.Len(t, failures(t, err), test.workers-test.up)
					return
				}
				require.NoError(t, err)
				require.Zero(t, f.missing())
			})
		})
	}
}

// The ticker is slow and the grace period the default one, so a worker that
// misses one List keeps its tasks.
func TestT4_OneMissedListUnderASlowTickerLosesNoWorker(t *testing.T) {
	for name, fault := range map[string]func(context.Context) error{
		"fails": func(context.Context) error { return errUnreachable },
		"hangs": hang,
	} {
		for _, every := range []time.Duration{30 * time.Second, time.Minute, 10 * time.Minute} {
			t.Run(fmt.Sprint(name, ", ", every), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newService(t, 4)
					s.expect(20)
					s.start(every)
					time.Sleep(every / 2)
					s.intercept(on(orchestrator.OpList, "w2", "", fault))
					time.Sleep(every)
					s.intercept(nil)
					lost := s.losses()
					time.Sleep(3 * every)
					doubled := 0
					for _, task := range s.ListExpectedTasks() {
						if s.Counts(task.Name).Starts > 1 {
							doubled++
						}
					}
					t.Logf("%d workers lost, %d tasks started twice", lost, doubled)
					require.Zero(t, lost)
					require.Zero(t, doubled)
				})
			})
		}
	}
}

// Three missed Lists in a row still lose a worker.
func TestT4_TheDefaultGraceUnderASlowTickerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, 4)
		s.expect(20)
		s.start(time.Minute)
		time.Sleep(30 * time.Second)
		s.Kill("w2")
		time.Sleep(5 * time.Minute)
		require.Equal(t, 1, s.losses())
		require.Zero(t, s.missing())
	})
}

// An explicit grace period shorter than two ticks is a mistake that Run logs.
func TestT4_AGraceShorterThanTwoTicksIsLogged(t *testing.T) {
	for _, test := range []struct {
		name  string
		opts  []option
		warns bool
	}{
		{"default", nil, false},
		{"shorter than a tick", []option{orchestrator.WithGracePeriod(30 * time.Second)}, true},
		{"shorter than two ticks", []option{orchestrator.WithGracePeriod(2*time.Minute - 1)}, true},
		{"two ticks", []option{orchestrator.WithGracePeriod(2 * time.Minute)}, false},
		{"for ever", []option{hold}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log logs
				s := newService(t, 2, append(test.opts, orchestrator.WithLogger(log.logger()))...)
				s.start(time.Minute)
				time.Sleep(10 * time.Minute)
				found := log.lines(`"level":"WARN"`)
				if test.warns {
					require.Len(t, found, 1, "once, and not in each term")
				} else {
					require.Empty(t, found)
				}
			})
		})
	}
}
