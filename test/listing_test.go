package test

// T2 and T3: which workers a term lists, in which order, and for how long it waits.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

func TestT2_AllWorkersAreAskedAtOnce(t *testing.T) {
	inBubble(t, given{workers: 100}, func(t *testing.T, f *fleet) {
		f.Slow(time.Second, f.workers...)
		d, err := f.timedTerm()
		require.NoError(t, err)
		require.Equal(t, time.Second, d)
		require.Equal(t, 100, f.mostInFlight())
		require.Equal(t, 100, f.LastPlan().Stats.Workers.Answering)
	})
}

func TestT2_NoMoreCallsInFlightThanAllowed(t *testing.T) {
	for _, n := range []int{1, 2, 7, 30} {
		t.Run(fmt.Sprint(n), bubble(given{workers: 30, expected: 30, opts: options{orchestrator.WithConcurrency(n)}}, func(t *testing.T, f *fleet) {
			f.Slow(time.Millisecond, f.workers...)
			waves := (30 + n - 1) / n

			d, err := f.timedTerm()
			require.NoError(t, err)
			require.Equal(t, n, f.mostInFlight())
			require.Equal(t, time.Duration(waves)*time.Millisecond, f.LastPlan().Stats.Listing)
			require.Equal(t, time.Duration(2*waves)*time.Millisecond, d, "an Add for each worker after its List")
		}))
	}
}

func TestT2_WorkersListedLongestAgoComeFirst(t *testing.T) {
	inBubble(t, given{workers: 4, opts: options{orchestrator.WithConcurrency(1)}}, func(t *testing.T, f *fleet) {
		f.term()
		require.Equal(t, []string{"list w1", "list w2", "list w3", "list w4"}, texts(f.lists()),
			"equals in the order in which they were added")

		// The calls to w1 and w2 take all the time that there is.
		f.Slow(timeout/2+time.Second, "w1", "w2")
		f.forget()
		require.NoError(t, f.NextTerm(t.Context()), "late is not silent")
		require.Equal(t, []string{"list w1", "list w2"}, texts(f.lists()))

		time.Sleep(timeout)
		f.Heal()
		f.freshTerm()
		require.Equal(t, []string{"list w3", "list w4", "list w1"}, texts(f.lists()), "w2 has answered in the meantime")
	})
}

// Calls for which a term does not wait have as many slots as the others.
func TestT2_SlotsOfCallsThatAreNotAwaited(t *testing.T) {
	inBubble(t, given{workers: 9, opts: options{orchestrator.WithConcurrency(2), hold}}, func(t *testing.T, f *fleet) {
		f.term()
		f.Hang("w7", "w8", "w9")
		for _, silent := range []int{0, 2, 3} { // in the first of these terms there is no slot for w9
			_ = f.NextTerm(t.Context())
			require.Equal(t, silent, f.LastPlan().Stats.Workers.Silent)
			time.Sleep(timeout)
		}
		f.Slow(100*time.Millisecond, f.workers[:6]...)
		f.forget()
		d, err := f.timedTerm()
		require.Len(t, failures(t, err), 3)
		require.Equal(t, 300*time.Millisecond, d, "six Lists, two at a time")
		require.Equal(t, 4, f.mostInFlight())

		f.forget()
		d, err = f.timedTerm()
		require.Len(t, failures(t, err), 3)
		require.Equal(t, 300*time.Millisecond, d)
		require.Equal(t, 4, f.mostInFlight(), "two that hang keep the third from being asked")
		require.Len(t, f.lists(), 6)
	})
}

// With one healthy worker, six silent ones and n calls at a time, a term lists the
// healthy one and at least n of the silent ones: those listed longest ago.
func TestT2_SilentWorkersListedLongestAgoComeFirst(t *testing.T) {
	for n := 1; n <= 7; n++ {
		t.Run(fmt.Sprint(n), bubble(given{workers: 7, opts: options{orchestrator.WithConcurrency(n), hold}}, func(t *testing.T, f *fleet) {
			silent := f.workers[1:]
			f.Cut(silent...)
			askedIn := make(map[string]int)
			for term := 1; term <= 20; term++ {
				f.forget()
				require.Error(t, f.NextTerm(t.Context()))
				synctest.Wait()
				asked := make(map[string]bool)
				for _, c := range f.lists() {
					asked[c.Worker] = true
				}
				require.True(t, asked["w1"])
				require.Greater(t, len(asked), min(n, 6))
				for _, w := range silent {
					for _, other := range silent {
						if asked[w] && !asked[other] {
							require.LessOrEqual(t, askedIn[w], askedIn[other], "term %d asked %s rather than %s", term, w, other)
						}
					}
				}
				for w := range asked {
					askedIn[w] = term
				}
			}
		}))
	}
}

func TestT2_EveryAnswerInTimeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const last = timeout - 2*time.Millisecond
		f := newFleet(t, given{workers: 5})
		for i, d := range []time.Duration{last, 3 * time.Second, 0, 7 * time.Second, time.Nanosecond} {
			f.Slow(d, f.workers[i])
		}
		d, err := f.timedTerm()
		require.NoError(t, err)
		require.Equal(t, last, d)
		require.Equal(t, 5, f.LastPlan().Stats.Workers.Answering)
		require.Equal(t, 5, f.LastPlan().Stats.List.Done)
	})
}

// Each call has a timeout of its own, of which up to a sixteenth may have passed when the
// call begins. The end of the listing cancels no call.
func TestT2_EachCallHasItsOwnDeadline(t *testing.T) {
	inBubble(t, given{workers: 40, opts: options{orchestrator.WithConcurrency(2)}}, func(t *testing.T, f *fleet) {
		var mu sync.Mutex
		deadlines := make(map[time.Time]bool)
		f.intercept(func(ctx context.Context, _ call) error {
			deadline, ok := ctx.Deadline()
			if left := time.Until(deadline); !ok || left > timeout || left < timeout-timeout/16-timeout/1000 {
				t.Errorf("a call began with %v", left)
			}
			mu.Lock()
			deadlines[deadline] = true
			mu.Unlock()
			time.Sleep(600 * time.Millisecond)
			return ctx.Err()
		})
		d, err := f.timedTerm() // no call had the whole timeout
		require.Len(t, failures(t, err), 8, "of those that it never heard")
		require.Equal(t, timeout, d)
		require.Len(t, f.lists(), 34)
		synctest.Wait()
		mu.Lock()
		require.Len(t, deadlines, 9, "two waves each share one")
		mu.Unlock()
		time.Sleep(time.Second)
		require.Empty(t, f.calls(func(c call) bool { return c.Open || c.Err != nil }), "none was cancelled")
		f.freshTerm()
		require.NotContains(t, texts(f.lists()), "list w33", "it has answered in the meantime")
		require.Equal(t, orchestrator.Answering, f.state("w33").State)
	})
}

// A worker is not lost because its call could not begin, or had less than the whole
// timeout.
func TestT2_OnlyAWholeTimeoutIsAMiss(t *testing.T) {
	inBubble(t, given{workers: 8, opts: options{orchestrator.WithConcurrency(2), orchestrator.WithGracePeriod(0)}}, func(t *testing.T, f *fleet) {
		f.term()
		f.Hang("w6", "w7", "w8")
		began := time.Now()
		require.Error(t, f.NextTerm(t.Context()), "without a grace period no worker is late")
		require.Equal(t, orchestrator.Silent, f.state("w6").State)
		require.Equal(t, orchestrator.Silent, f.state("w8").State, "there was no slot for it")
		time.Sleep(time.Second)
		for {
			asked := time.Since(began)
			require.Error(t, f.NextTerm(t.Context()))
			if asked >= timeout {
				break
			}
			require.Equal(t, 3, f.LastPlan().Stats.Workers.Silent)
			time.Sleep(time.Second)
		}
		require.Equal(t, orchestrator.Lost, f.state("w6").State)
		require.Equal(t, orchestrator.Lost, f.state("w7").State)
		require.Equal(t, orchestrator.Silent, f.state("w8").State, "its call began two seconds later")
		time.Sleep(2 * time.Second)
		require.Error(t, f.NextTerm(t.Context()))
		require.Equal(t, orchestrator.Lost, f.state("w8").State)
	})
}

// A fleet that is slow as a whole loses no worker.
func TestT2_ASlowFleetIsWaitedFor(t *testing.T) {
	for _, workers := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(workers), bubble(given{workers: workers}, func(t *testing.T, f *fleet) {
			f.expect(2 * workers)
			f.Slow(9*time.Second, f.workers...)
			for range 5 {
				f.freshTerm()
				require.Equal(t, 9*time.Second, f.LastPlan().Stats.Listing)
				require.Len(t, f.lists(), workers)
			}
			f.Heal()
			f.requireSettled()
		}))
	}
}

// The whole fleet is slow: one round of Lists takes longer than the timeout, because
// calls wait for slots. Each call alone would be fast enough.
func TestT2_ASlowFleetLosesNoWorker(t *testing.T) {
	few := orchestrator.WithConcurrency(128)
	for _, test := range []struct {
		name    string
		workers int
		list    time.Duration
		healthy int // terms before the fleet turns slow
		terms   int
		opts    options
	}{
		{"800 workers turn slow, 128 calls", 800, 1900 * time.Millisecond, 1, 100, options{few}},
		{"800 workers are slow from the start, 128 calls", 800, 1900 * time.Millisecond, 0, 40, options{few}},
		{"2,000 workers turn slow", 2000, time.Second, 1, 40, nil},
	} {
		t.Run(test.name, bubble(given{workers: test.workers, expected: test.workers, opts: test.opts}, func(t *testing.T, f *fleet) {
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
		}))
	}
}

// losses counts the workers that the last term saw as lost.
func (f *fleet) losses() int { return f.LastPlan().Stats.Workers.Lost }

// If all workers are silent, a term waits for them.
func TestT3_ListingTakesOneTimeoutInAll(t *testing.T) {
	for _, workers := range []int{1, 2, 128, 1280} {
		for _, how := range []string{"hang", "stick"} {
			t.Run(fmt.Sprintf("%d workers %s", workers, how), bubble(given{workers: workers, expected: 10}, func(t *testing.T, f *fleet) {
				if how == "hang" {
					f.Hang(f.workers...)
				} else {
					f.Stick(f.workers...)
				}
				for term := range 4 {
					d, err := f.timedTerm()
					require.Len(t, failures(t, err), workers)
					require.LessOrEqual(t, d, timeout)
					if how == "stick" && term*1024 >= workers {
						require.Zero(t, d, "no worker can be asked")
					} else {
						require.Greater(t, d, timeout-timeout/1000)
					}
				}
				require.Empty(t, f.writes())
			}))
		}
	}
}

func TestT3_TwoWorkersThatNeverReturn(t *testing.T) {
	inBubble(t, given{workers: 6, running: 12, opts: options{orchestrator.WithConcurrency(2), hold}}, func(t *testing.T, f *fleet) {
		f.Stick("w5", "w6") // ignores its context
		f.Slow(time.Second, "w1", "w2", "w3", "w4")
		require.NoError(t, f.AddTask("new"))
		d, err := f.timedTerm()
		require.NoError(t, err, "they are late")
		require.Equal(t, 9*time.Second, d, "four times the two seconds in which half answered, and the write")
		require.Len(t, f.Running("new"), 1)
		time.Sleep(timeout)

		f.forget()
		for range 1000 {
			d, err = f.timedTerm()
			require.Len(t, failures(t, err), 2)
			require.Equal(t, 2*time.Second, d, "four Lists, two at a time: no slot is taken for ever")
		}
		stuck := goroutines()
		require.Equal(t, 2, f.LastPlan().Stats.Workers.Stuck)
		require.Empty(t, f.calls(func(c call) bool { return c.Worker == "w5" || c.Worker == "w6" }),
			"no further call until that one returns")

		f.Heal()
		require.Equal(t, stuck-2, goroutines(), "two goroutines were stuck, not two thousand")
		f.term()
		require.Zero(t, f.LastPlan().Stats.Workers.Stuck)
		require.Equal(t, orchestrator.Answering, f.state("w5").State)
	})
}

func TestT3_StuckWriteKeepsTheWorkerFromFurtherCalls(t *testing.T) {
	inBubble(t, given{workers: 3}, func(t *testing.T, f *fleet) {
		f.term()
		unstick := make(chan struct{})
		f.intercept(on(orchestrator.OpAdd, "w1", "", func(context.Context) error {
			<-unstick
			return errors.New("at last")
		}))
		f.expect(3)
		d, err := f.timedTerm()
		require.Len(t, failures(t, err), 1)
		require.Equal(t, timeout, d)
		for range 100 {
			f.forget()
			d, err = f.timedTerm()
			require.ErrorIs(t, err, orchestrator.ErrSilent)
			require.Zero(t, d)
			require.Equal(t, []string{"list w2", "list w3"}, slices.Sorted(slices.Values(texts(f.lists()))))
			require.Equal(t, 1, f.LastPlan().Stats.Workers.Stuck)
		}
		close(unstick)
		synctest.Wait()
		f.intercept(nil)
		f.Slow(time.Millisecond, "w2", "w3")
		f.term()
		require.Zero(t, f.LastPlan().Stats.Workers.Stuck)
		require.Equal(t, orchestrator.Answering, f.state("w1").State)
	})
}

// A worker is replaced by another one of its name again and again. No two calls to that
// name are under way at the same time.
func TestC1_RemovedAndAddedAgain(t *testing.T) {
	inBubble(t, given{workers: 2, running: 4}, func(t *testing.T, f *fleet) {
		for range 3 {
			f.RemoveWorker("w2")
			require.NoError(t, f.AddWorker("w2"))
			_ = f.NextTerm(t.Context())
		}
		f.Stick("w2")
		_ = f.NextTerm(t.Context())
		time.Sleep(timeout)
		_ = f.NextTerm(t.Context())
		require.Equal(t, 1, f.LastPlan().Stats.Workers.Stuck)
		f.RemoveWorker("w2")
		require.NoError(t, f.AddWorker("w2"))
		_ = f.NextTerm(t.Context()) // the wire fails the test where a second call sets out
	})
}
