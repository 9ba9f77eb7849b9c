package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// T2 and T3: whom a term asks, in which order, and for how long it waits.

func TestT2_AllWorkersAreAskedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 100)
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
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 30, orchestrator.WithConcurrency(n))
				f.expect(30)
				f.Slow(time.Millisecond, f.workers...)
				waves := (30 + n - 1) / n

				d, err := f.timedTerm()
				require.NoError(t, err)
				require.Equal(t, n, f.mostInFlight())
				require.Equal(t, time.Duration(waves)*time.Millisecond, f.LastPlan().Stats.Listing)
				require.Equal(t, time.Duration(2*waves)*time.Millisecond, d, "an Add for each worker after its List")
			})
		})
	}
}

func TestT2_ThoseThatAnsweredLastTermAreAskedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 6, orchestrator.WithConcurrency(1))
		f.term()
		require.Equal(t, []string{"list w1", "list w2", "list w3", "list w4", "list w5", "list w6"}, texts(f.lists()),
			"equals in the order in which they were added")

		f.Cut("w2")
		require.Error(t, f.NextTerm(t.Context()))
		f.forget()
		require.Error(t, f.NextTerm(t.Context()))
		synctest.Wait()
		require.Equal(t, []string{"list w1", "list w3", "list w4", "list w5", "list w6", "list w2"}, texts(f.lists()))

		f.Heal()
		require.Error(t, f.NextTerm(t.Context())) // w2 is asked once the others have answered
		synctest.Wait()
		f.forget()
		f.term()
		require.Equal(t, []string{"list w1", "list w2", "list w3", "list w4", "list w5", "list w6"}, texts(f.lists()))
	})
}

// With one healthy worker, six silent ones and n calls at a time, a term asks
// n of the silent ones beside the healthy one: those it asked longest ago.
func TestT2_ThenThoseAskedLongestAgo(t *testing.T) {
	for n := 1; n <= 7; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 7, orchestrator.WithConcurrency(n), orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved))
				silent := f.workers[1:]
				f.Cut(silent...)
				askedIn := make(map[string]int)
				for term := 1; term <= 20; term++ {
					f.forget()
					require.Error(t, f.NextTerm(t.Context()))
					synctest.Wait()
					var asked []string
					for _, c := range f.lists() {
						asked = append(asked, c.Worker)
					}
					require.Contains(t, asked, "w1")
					asked = slices.DeleteFunc(asked, func(w string) bool { return w == "w1" })
					if term > 1 { // in the first everyone is waited for
						require.Len(t, asked, min(n, 6))
					}
					for _, w := range asked {
						for _, other := range silent {
							if !slices.Contains(asked, other) {
								require.LessOrEqual(t, askedIn[w], askedIn[other], "term %d asked %s rather than %s", term, w, other)
							}
						}
					}
					for _, w := range asked {
						askedIn[w] = term
					}
				}
			})
		})
	}
}

func TestT2_EveryAnswerInTimeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const last = timeout - 2*time.Millisecond
		f := newFleet(t, 5)
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

// Who has no time left to be asked is not asked at all: a call whose context
// is over already says nothing about the worker.
func TestT2_NobodyIsAskedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 6, orchestrator.WithConcurrency(2))
		f.Hang("w1", "w2")
		f.intercept(func(ctx context.Context, c call) error {
			if ctx.Err() != nil {
				t.Errorf("%v is called with a context that is over", c)
			}
			return nil
		})
		_, err := f.timedTerm()
		require.Len(t, failures(t, err), 6)
		require.Len(t, f.lists(), 2)

		f.forget()
		require.Error(t, f.NextTerm(t.Context()))
		synctest.Wait()
		require.ElementsMatch(t, []string{"list w3", "list w4"}, texts(f.lists()), "never asked comes before asked once")
	})
}

func TestT3_ListingTakesOneTimeoutInAll(t *testing.T) {
	for _, workers := range []int{1, 2, 128, 1280} {
		for _, how := range []string{"hang", "stick"} {
			t.Run(fmt.Sprintf("%d workers %s", workers, how), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(t, workers)
					f.expect(10)
					if how == "hang" {
						f.Hang(f.workers...)
					} else {
						f.Stick(f.workers...)
					}
					d, err := f.timedTerm()
					require.LessOrEqual(t, d, timeout)
					require.Len(t, failures(t, err), workers)
					for range 3 {
						d, err = f.timedTerm()
						require.Zero(t, d, "nobody to wait for")
						require.Len(t, failures(t, err), workers)
					}
					require.Empty(t, f.writes())
				})
			})
		}
	}
}

func TestT3_OneDeadWorkerDelaysOneTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 5)
		f.expect(20)
		f.term()
		f.Hang("w3")
		d, err := f.timedTerm()
		require.Error(t, err)
		require.InDelta(t, timeout, d, float64(time.Millisecond))
		for range 10 {
			f.forget()
			d, err = f.timedTerm()
			require.ErrorIs(t, err, orchestrator.ErrSilent)
			require.Zero(t, d)
		}
		require.Equal(t, orchestrator.Silent, f.state("w3").State)

		f.Slow(2*time.Second, "w1")
		d, err = f.timedTerm()
		require.Error(t, err)
		require.Equal(t, 2*time.Second, d, "as long as for the others")
	})
}

func TestT3_SilentWorkerIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.term()
		f.Cut("w2")
		require.Error(t, f.NextTerm(t.Context()))
		f.Heal()
		f.Slow(2*time.Second, "w1")
		f.Slow(time.Second, "w2")
		f.term()
		require.Equal(t, orchestrator.Answering, f.state("w2").State, "it answered before the others did")
	})
}

func TestT3_LateAnswerEndsTheSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.expect(6)
		f.term()
		f.Cut("w2")
		require.Error(t, f.NextTerm(t.Context()))

		f.Heal()
		f.Slow(3*time.Second, "w2")
		d, err := f.timedTerm()
		require.ErrorIs(t, err, orchestrator.ErrSilent)
		require.Zero(t, d, "it is asked, and not waited for")
		require.Equal(t, orchestrator.Silent, f.state("w2").State)

		time.Sleep(3*time.Second + 1)
		d, err = f.timedTerm()
		require.NoError(t, err)
		require.Equal(t, 3*time.Second, d, "it is waited for again")
		require.Equal(t, orchestrator.Answering, f.state("w2").State)
		f.Heal()
		f.requireSettled()
	})
}

// Even an answer that comes after the call's own deadline counts.
func TestT3_AnswerAfterTheDeadlineEndsTheSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.term()
		f.Stick("w2")
		time.AfterFunc(timeout+time.Second, func() { f.Heal() })
		d, err := f.timedTerm()
		require.ErrorIs(t, err, orchestrator.ErrSilent)
		require.Equal(t, timeout, d)
		require.Equal(t, 1, f.LastPlan().Stats.Workers.Stuck)

		time.Sleep(time.Second + 1)
		f.Slow(2*time.Second, "w2")
		d, err = f.timedTerm()
		require.NoError(t, err)
		require.Equal(t, 2*time.Second, d, "it is waited for again")
		require.Zero(t, f.LastPlan().Stats.Workers.Stuck)
	})
}

func TestT3_TwoWorkersThatNeverReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 6, orchestrator.WithConcurrency(2), orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved))
		f.expect(12)
		f.term()

		f.Stick("w5", "w6") // ignores its context
		f.Slow(time.Second, "w1", "w2", "w3", "w4")
		require.NoError(t, f.AddTask("new"))
		d, err := f.timedTerm()
		require.Len(t, failures(t, err), 2)
		require.Equal(t, timeout+time.Second, d, "one timeout, and the write")
		require.Len(t, f.Running("new"), 1)

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
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.term()
		unstick := make(chan struct{})
		f.intercept(func(_ context.Context, c call) error {
			if c.Op == orchestrator.OpAdd && c.Worker == "w1" {
				<-unstick
				return errors.New("at last")
			}
			return nil
		})
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
