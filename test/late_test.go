package test

// T3 and T11: a slow worker delays only changes that involve it, and what a term reports
// about workers that have not answered.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// A listing ends after four times as long as half of the workers took, but not before a
// tenth of the timeout.
func TestT3_WhenAListingEnds(t *testing.T) {
	for _, c := range []struct {
		workers int
		half    time.Duration
		listing time.Duration
	}{
		{4, 0, time.Second},
		{4, 200 * time.Millisecond, time.Second},
		{4, 300 * time.Millisecond, 1200 * time.Millisecond},
		{5, 2 * time.Second, 8 * time.Second},
		{5, 3 * time.Second, timeout - time.Millisecond}, // the calls end a millisecond before the timeout
	} {
		t.Run(fmt.Sprint(c.workers, c.half), bubble(given{workers: c.workers}, func(t *testing.T, f *fleet) {
			f.expect(2 * c.workers)
			f.term()
			prompt, rest := f.workers[:(c.workers+1)/2], f.workers[(c.workers+1)/2:]
			f.Slow(c.half, prompt...)
			f.Hang(rest...)
			_ = f.NextTerm(t.Context())
			require.Equal(t, c.listing, f.LastPlan().Stats.Listing)
			if c.listing < timeout-time.Millisecond {
				require.Equal(t, rest, f.late())
			}
		}))
	}
}

// A late answer serves the next term, which does not list that worker again.
func TestT3_ALateAnswerServesTheNextTerm(t *testing.T) {
	inBubble(t, given{workers: 3, running: 6}, func(t *testing.T, f *fleet) {
		f.Slow(3*time.Second, "w2")
		f.term()
		require.Len(t, f.lists(), 3)
		require.Equal(t, []string{"w2"}, f.late())
		time.Sleep(3 * time.Second)

		f.Heal()
		f.RemoveTask(f.RunsOn("w2")[0])
		f.forget()
		began := time.Now()
		f.term()
		require.Zero(t, time.Since(began))
		require.ElementsMatch(t, []string{"list w1", "list w3"}, texts(f.lists()))
		require.Len(t, f.writes(), 1, "its answer is as good as those of the others")
		require.Empty(t, f.late())
		f.requireSettled()
	})
}

// The next term does not wait for a worker whose call took long. It waits for one whose
// call only began late, and for one that has answered in time again.
func TestT3_WhichWorkersAreWaitedFor(t *testing.T) {
	inBubble(t, given{workers: 5}, func(t *testing.T, f *fleet) {
		f.term()
		const slow = 700 * time.Millisecond
		f.Slow(3*time.Second, "w4")
		f.Hang("w5")
		f.term()
		require.Equal(t, []string{"w4", "w5"}, f.late())
		time.Sleep(timeout)

		f.Heal()
		f.Slow(slow, "w4", "w5")
		require.Error(t, f.NextTerm(t.Context()), "w5 has not answered")
		require.Zero(t, f.LastPlan().Stats.Listing, "w4 has answered, and w5 is not waited for")
		time.Sleep(time.Second)
		require.NoError(t, f.NextTerm(t.Context()))
		require.Zero(t, f.LastPlan().Stats.Listing, "w4 took long")
		time.Sleep(time.Second)
		for range 3 {
			f.term()
			require.Equal(t, slow, f.LastPlan().Stats.Listing, "both answered promptly")
		}
	})
	synctest.Test(t, func(t *testing.T) { // with one slot
		f := newFleet(t, given{workers: 4, opts: options{orchestrator.WithConcurrency(1)}})
		f.term()
		f.Slow(900*time.Millisecond, "w3")
		f.Slow(300*time.Millisecond, "w4")
		f.term()
		require.Equal(t, []string{"w4"}, f.late(), "its call began late")
		time.Sleep(time.Second)
		f.term() // which its answer serves
		f.term()
		require.Equal(t, 1200*time.Millisecond, f.LastPlan().Stats.Listing)
	})
}

// A late worker becomes silent when its call fails, or when the grace period has ended
// without an answer.
func TestT3_LateBecomesSilent(t *testing.T) {
	for _, c := range []struct {
		name    string
		silence func(*fleet)
		opts    options
		after   time.Duration
		asked   string
	}{
		{"its call fails", func(f *fleet) { f.Hang("w3") }, nil, timeout, ""},
		{"its call never returns", func(f *fleet) { f.Stick("w3") }, nil, timeout, ""},
		{"the grace period is over", func(f *fleet) { f.Hang("w3") }, options{orchestrator.WithGracePeriod(4 * time.Second)}, 4 * time.Second, ""},
	} {
		t.Run(c.name, bubble(given{workers: 3, running: 6, opts: c.opts}, func(t *testing.T, f *fleet) {
			began := time.Now()
			c.silence(f)
			for time.Since(began) < c.after-time.Second {
				f.term()
				require.Equal(t, []string{"w3"}, f.late())
				require.Equal(t, 2, f.LastPlan().Stats.Instances.Held)
				time.Sleep(time.Second)
			}
			time.Sleep(time.Second)
			f.silentTerm("w3")
			require.Equal(t, orchestrator.Silent, f.state("w3").State)
			require.Empty(t, f.late())
			require.Equal(t, 2, f.LastPlan().Stats.Instances.Held)
		}))
	}
}

// A worker that takes nine tenths of the timeout delays no term, and still gets its
// share.
func TestT3_AWorkerThatIsAlwaysLate(t *testing.T) {
	inBubble(t, given{workers: 4}, func(t *testing.T, f *fleet) {
		f.term()
		f.intercept(on(orchestrator.OpList, "w3", "", takes(timeout-time.Second)))
		f.expect(40)
		for range 30 {
			d, err := f.timedTerm()
			require.NoError(t, err)
			require.LessOrEqual(t, d, timeout/10)
			time.Sleep(time.Second)
		}
		require.Equal(t, []int{10, 10, 10, 10}, f.loads())
	})
}

// Workers that are slow now and then make no term long, and no task moves.
func TestT3_WorkersThatAreSlowNowAndThen(t *testing.T) {
	for name, slow := range map[string]func(term int, worker string) bool{
		"one every other term":      func(term int, worker string) bool { return worker == "w7" && term%2 == 1 },
		"each once in twenty terms": func(int, string) bool { return rand.IntN(20) == 0 },
	} {
		t.Run(name, bubble(given{workers: 20, running: 100}, func(t *testing.T, f *fleet) {
			term := 0
			var mu sync.Mutex // of term
			f.intercept(func(_ context.Context, c call) error {
				mu.Lock()
				dawdles := slow(term, c.Worker)
				mu.Unlock()
				if dawdles {
					time.Sleep(timeout / 2)
				}
				return nil
			})
			f.forget()
			for range 200 {
				mu.Lock()
				term++
				mu.Unlock()
				d, err := f.timedTerm()
				require.NoError(t, err)
				require.LessOrEqual(t, d, timeout/10)
				time.Sleep(timeout / 5)
			}
			require.Empty(t, f.writes())
		}))
	}
}

// Even an answer that arrives after the deadline of its call ends the silence.
func TestT3_AnswerAfterTheDeadlineEndsTheSilence(t *testing.T) {
	inBubble(t, given{workers: 3}, func(t *testing.T, f *fleet) {
		f.term()
		f.Stick("w2")
		f.term()
		time.Sleep(timeout)
		f.silentTerm("w2")
		require.Equal(t, 1, f.LastPlan().Stats.Workers.Stuck)

		f.Heal()
		synctest.Wait()
		f.freshTerm()
		require.NotContains(t, texts(f.lists()), "list w2")
		require.Zero(t, f.LastPlan().Stats.Workers.Stuck)
		require.Equal(t, orchestrator.Answering, f.state("w2").State)
	})
}

func TestT3_OneDeadWorkerDelaysOneTerm(t *testing.T) {
	inBubble(t, given{workers: 5, running: 20}, func(t *testing.T, f *fleet) {
		f.Hang("w3")
		d, err := f.timedTerm()
		require.NoError(t, err)
		require.Equal(t, timeout/10, d)
		for range 20 {
			d, _ = f.timedTerm()
			require.Zero(t, d)
			time.Sleep(time.Second)
		}
		f.silentTerm("w3")

		f.Slow(2*time.Second, "w1")
		d, err = f.timedTerm()
		require.Error(t, err)
		require.Equal(t, timeout/10, d, "w1 is late")
	})
}

// Some calls of List take nine of ten seconds. They delay only their workers, which still
// get tasks.
func TestT3_ASlowListDelaysOnlyItsWorker(t *testing.T) {
	everyList := func(worker, _ int) bool { return worker == 3 }
	everySecond := func(worker, n int) bool { return worker == 3 && n%2 == 1 }
	for _, test := range []struct {
		name    string
		workers int
		slow    func(worker, n int) bool
	}{
		{"every List of one of 4 workers", 4, everyList},
		{"every List of one of 20 workers", 20, everyList},
		{"every List of one of 100 workers", 100, everyList},
		{"every second List of one of 4 workers", 4, everySecond},
		{"every second List of one of 20 workers", 20, everySecond},
		{"one in a hundred, in turn", 100, func(worker, n int) bool { return (worker+n)%100 == 0 }},
		{"one in a hundred, at random", 100, func(worker, n int) bool {
			return rand.New(rand.NewPCG(uint64(worker), uint64(n))).IntN(100) == 0
		}},
	} {
		t.Run(test.name, bubble(given{workers: test.workers, expected: 2 * test.workers}, func(t *testing.T, f *fleet) {
			f.intercept(slowLists(func(worker string, n int) time.Duration {
				if test.slow(slices.Index(f.workers, worker)+1, n) {
					return 9 * time.Second
				}
				return 0
			}))
			f.start(tick)
			f.requireShortTerms()
			f.requireNeverTwice()
			require.Zero(t, f.losses())
			require.NotEmpty(t, f.RunsOn("w3"))
		}))
	}
}

var errUnreachable = errors.New("connection refused")

// The workers start after the first term. The second term has no other worker to wait
// for, so it waits for them.
func TestT3_WorkersUpAfterTheirLeaderCostNoTerm(t *testing.T) {
	for _, test := range []struct{ workers, up int }{{1, 1}, {3, 3}, {3, 1}} {
		t.Run(fmt.Sprintf("%d of %d workers", test.up, test.workers), bubble(given{workers: test.workers, expected: 6}, func(t *testing.T, f *fleet) {
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
		}))
	}
}

// While a call to a worker is under way, a new worker of the same name is not listed, and
// the result of the call does not count for it.
func TestC1_RemovedAndAddedWhileAListIsUnderWay(t *testing.T) {
	for _, outcome := range []error{nil, errBoom} {
		t.Run(fmt.Sprint(outcome), bubble(given{workers: 3, running: 6}, func(t *testing.T, f *fleet) {
			f.requireSettled() // so that w2 has listed what was started there
			over := make(chan struct{})
			end := sync.OnceFunc(func() { close(over) })
			defer end()
			f.intercept(on(orchestrator.OpList, "w2", "", func(context.Context) error {
				<-over
				return outcome
			}))
			f.term()
			require.Equal(t, []string{"w2"}, f.late())

			f.RemoveWorker("w2")
			f.Kill("w2")
			f.join("w2") // it runs nothing
			f.forget()
			for range 2 {
				f.silentTerm("w2")
				require.Empty(t, f.state("w2").Tasks)
				require.Empty(t, f.waitingFor(orchestrator.ReasonHeld))
				time.Sleep(timeout)
			}
			require.Empty(t, f.calls(func(c call) bool { return c.Worker == "w2" }))
			require.Equal(t, []int{3, 0, 3}, f.loads(), "the first w2 is gone")

			f.intercept(nil)
			end()
			synctest.Wait()
			f.intercept(on(orchestrator.OpList, "w1", "", takes(time.Millisecond)))
			f.freshTerm()
			require.Contains(t, texts(f.lists()), "list w2")
			require.Equal(t, []int{2, 2, 2}, f.loads())
			f.requireSettled()
		}))
	}
}

// late returns the workers that were late for the last term.
func (f *fleet) late() (names []string) {
	for _, w := range f.LastPlan().Workers {
		if w.Late {
			require.Equal(f.t, orchestrator.Answering, w.State)
			names = append(names, w.Name)
		}
	}
	return names
}

// A late worker counts as answering. It is frozen, and its instances are held.
func TestT3_ALateWorkersInstancesAreHeld(t *testing.T) {
	onBothWires(t, given{workers: 4, running: 12}, func(t *testing.T, f *fleet) {
		has := f.RunsOn("w2")
		f.Slow(3*time.Second, "w2")
		require.NoError(t, f.DrainWorker("w2"))
		f.RemoveTask(has[0])
		require.Equal(t, timeout/10, took(f.term))
		require.Empty(t, f.writes())
		require.Equal(t, []string{"w2"}, f.late())
		require.Equal(t, orchestrator.Answering, f.state("w2").State)
		require.ElementsMatch(t, has, f.state("w2").Tasks)
		s := f.LastPlan().Stats
		require.Equal(t, orchestrator.WorkerStats{Answering: 4, Draining: 1, Late: 1}, s.Workers)
		require.Equal(t, orchestrator.InstanceStats{Wanted: 11, Running: 9, Held: 2}, s.Instances)
		held := f.waitingFor(orchestrator.ReasonHeld)
		holds := func(task string) waiting {
			return waiting{Task: task, Instances: 1, Reason: orchestrator.ReasonHeld, Worker: "w2", Named: true}
		}
		require.ElementsMatch(t, []waiting{holds(has[1]), holds(has[2])}, held)

		time.Sleep(3 * time.Second) // its answer comes, and serves the next term
		synctest.Wait()
		f.Slow(0, "w2")
		f.freshTerm()
		require.NotContains(t, texts(f.lists()), "list w2")
		require.Empty(t, f.late())
		require.Empty(t, f.RunsOn("w2"))
		f.requireSettled()
	})
}

// What is missing starts at once on the others. The late worker gets its share when it answers.
func TestT3_WhatIsMissingStartsBesideALateWorker(t *testing.T) {
	onBothWires(t, given{workers: 4, running: 8}, func(t *testing.T, f *fleet) {
		f.Slow(9*time.Second, "w2")
		f.expect(40)
		f.term()
		require.Equal(t, []string{"w2"}, f.late())
		f.requireAllRun()
		require.Len(t, f.RunsOn("w2"), 2)
		s := f.LastPlan().Stats
		require.Zero(t, s.Instances.Missing)
		require.Equal(t, 32, s.Adds)
		require.Equal(t, 32, s.LowerBound)

		time.Sleep(timeout)
		f.Slow(0, "w2")
		f.term()
		require.Equal(t, []int{10, 10, 10, 10}, f.loads())
		f.requireNeverTwice()
	})
}

// refusesLate makes every List of w2 fail two seconds after the call, when the listing
// has ended.
func refusesLate(f *fleet) {
	n := 0
	f.intercept(func(_ context.Context, c call) error {
		if c.Op != orchestrator.OpList || c.Worker != "w2" {
			return nil
		}
		n++
		time.Sleep(2 * time.Second)
		return fmt.Errorf("refused %d times", n)
	})
}

// A late worker whose call fails in the end is silent. While the call of this term is
// under way, the error includes the failure of the previous one.
func TestT11_HowTheLastCallFailed(t *testing.T) {
	inBubble(t, given{workers: 3, running: 3}, func(t *testing.T, f *fleet) {
		refusesLate(f)
		why := func() string {
			t.Helper()
			failed := failures(t, f.NextTerm(t.Context()))
			require.Len(t, failed, 1)
			require.Equal(t, "w2", failed[0].Worker)
			return failed[0].Err.Error()
		}
		f.term()
		require.Equal(t, []string{"w2"}, f.late())
		time.Sleep(2 * time.Second) // the call fails after its term
		synctest.Wait()
		require.Equal(t, "no answer in time, and the last call failed: refused 1 times", why())
		require.Equal(t, orchestrator.Silent, f.state("w2").State)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, "no answer in time, and the last call failed: refused 2 times", why())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		f.intercept(nil)
		f.anyTerm() // it need not wait for its answer
		synctest.Wait()
		f.term()
		f.Stick("w2")
		f.term()
		require.Equal(t, []string{"w2"}, f.late(), "it has answered since")
		time.Sleep(timeout)
		require.Equal(t, "no answer in time: an earlier call has not returned", why())
		require.Equal(t, 1, f.LastPlan().Stats.Workers.Stuck)
	})
}

// The failure of the previous call is only text: errors.Is does not find its ErrRejected.
func TestT11_HowTheLastCallFailedIsOnlyText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		earlier := fmt.Errorf("%w: another incarnation", orchestrator.ErrRejected)
		f := newFleet(t, given{workers: 3})
		f.term()
		f.intercept(on(orchestrator.OpList, "w2", "", fails(earlier)))
		require.ErrorIs(t, f.NextTerm(t.Context()), earlier)
		f.intercept(nil)
		f.Stick("w2")
		defer f.Heal()
		err := f.NextTerm(t.Context())
		require.ErrorIs(t, err, orchestrator.ErrSilent)
		require.ErrorContains(t, err, earlier.Error())
		require.NotErrorIs(t, err, earlier)
	})
}

// A call that the leader cancelled does not count as a failure of its worker.
func TestT11_ACancelledCallIsNotAFailure(t *testing.T) {
	over := errors.New("this leader is over")
	for name, end := range map[string]func(f *fleet, ctx context.Context) error{
		"a term":             (*fleet).NextTerm,
		"the terms of a Run": func(f *fleet, ctx context.Context) error { return f.Run(ctx, time.Hour) },
	} {
		t.Run(name, bubble(given{workers: 3}, func(t *testing.T, f *fleet) {
			f.term()
			f.Cut("w2")
			f.silentTerm("w2")
			f.Heal()
			f.Slow(5*time.Second, "w2") // which NextTerm does not wait for
			if name == "a term" {
				f.Slow(5*time.Second, "w1", "w3")
			}
			ctx := cancelledAfter(t, time.Second, over)
			require.ErrorIs(t, end(f, ctx), over)
			f.Slow(0, "w1", "w3")
			err := f.NextTerm(t.Context())
			require.ErrorIs(t, err, orchestrator.ErrSilent)
			require.NotContains(t, err.Error(), over.Error())
			require.ErrorContains(t, err, "the worker is cut off")
		}))
	}
}

// An unusable answer counts as a failure too.
func TestT11_AnAnswerThatCannotBeUsedIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &unusable{}
		o, err := orchestrator.New[string, any](c)
		require.NoError(t, err)
		require.NoError(t, o.AddWorker("w1"))
		require.NoError(t, o.AddWorker("w2"))
		require.ErrorContains(t, o.NextTerm(t.Context()), "unusable answer")
		c.slow = true
		err = o.NextTerm(t.Context())
		require.ErrorContains(t, err, "no answer in time, and the last call failed: unusable answer")
		time.Sleep(time.Second) // the call returns
	})
}

// unusable makes one worker list a name that cannot be compared.
type unusable struct{ slow bool }

func (c *unusable) List(_ context.Context, worker string) ([]any, error) {
	if worker == "w1" {
		return nil, nil
	}
	if c.slow {
		time.Sleep(time.Second)
	}
	return []any{[]int{1}}, nil
}

func (c *unusable) Add(context.Context, string, any) error { return nil }

func (c *unusable) Remove(context.Context, string, any) error { return nil }
