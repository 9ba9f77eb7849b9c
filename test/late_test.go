package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// T3: one slow worker delays only what concerns it.

// slowList makes each List of a worker take a time.
func (f *fleet) slowList(d time.Duration, worker string) {
	f.intercept(func(_ context.Context, c call) error {
		if c.Op == orchestrator.OpList && c.Worker == worker {
			time.Sleep(d)
		}
		return nil
	})
}

// A term goes on after four times as long as half of the workers took, and not
// before a tenth of the timeout.
func TestT3_WhenATermGoesOn(t *testing.T) {
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
		t.Run(fmt.Sprint(c.workers, c.half), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, c.workers)
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
			})
		})
	}
}

// An answer that comes later serves the next term, which does not ask again.
func TestT3_ALateAnswerServesTheNextTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.expect(6)
		f.term()
		f.Slow(3*time.Second, "w2")
		f.forget()
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

// A worker that took long is not waited for next time; one that was only asked
// late is, and so is one that answers in time again.
func TestT3_WhichWorkersAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 5)
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
		f := newFleet(t, 4, orchestrator.WithConcurrency(1))
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

// A late worker becomes silent when its call fails, or when the grace period is
// over without an answer.
func TestT3_LateBecomesSilent(t *testing.T) {
	for _, c := range []struct {
		name    string
		silence func(*fleet)
		opts    []option
		after   time.Duration
		asked   string
	}{
		{"its call fails", func(f *fleet) { f.Hang("w3") }, nil, timeout, ""},
		{"its call never returns", func(f *fleet) { f.Stick("w3") }, nil, timeout, ""},
		{"the grace period is over", func(f *fleet) { f.Hang("w3") }, []option{orchestrator.WithGracePeriod(4 * time.Second)}, 4 * time.Second, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 3, c.opts...)
				f.expect(6)
				f.term()
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
			})
		})
	}
}

// A worker that takes nine tenths of the timeout delays no term, and gets its share
// all the same.
func TestT3_AWorkerThatIsAlwaysLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		f.term()
		f.slowList(timeout-time.Second, "w3")
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

// Workers that are slow now and then make no term long, and nothing move.
func TestT3_WorkersThatAreSlowNowAndThen(t *testing.T) {
	for name, slow := range map[string]func(term int, worker string) bool{
		"one every other term":      func(term int, worker string) bool { return worker == "w7" && term%2 == 1 },
		"each once in twenty terms": func(int, string) bool { return rand.IntN(20) == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 20)
				f.expect(100)
				f.term()
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
			})
		})
	}
}

// Even an answer that comes after the call's own deadline ends a silence.
func TestT3_AnswerAfterTheDeadlineEndsTheSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.term()
		f.Stick("w2")
		f.term()
		time.Sleep(timeout)
		f.silentTerm("w2")
		require.Equal(t, 1, f.LastPlan().Stats.Workers.Stuck)

		f.Heal()
		synctest.Wait()
		f.forget()
		f.term()
		require.NotContains(t, texts(f.lists()), "list w2")
		require.Zero(t, f.LastPlan().Stats.Workers.Stuck)
		require.Equal(t, orchestrator.Answering, f.state("w2").State)
	})
}

func TestT3_OneDeadWorkerDelaysOneTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 5)
		f.expect(20)
		f.term()
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

// While a call to a worker is under way, another worker of that name is not asked,
// and what comes of the call says nothing of it.
func TestC1_RemovedAndAddedWhileAListIsUnderWay(t *testing.T) {
	for _, outcome := range []error{nil, errBoom} {
		t.Run(fmt.Sprint(outcome), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 3)
				f.expect(6)
				f.term()
				f.requireSettled() // so that w2 has listed what was started there
				over := make(chan struct{})
				end := sync.OnceFunc(func() { close(over) })
				defer end()
				f.intercept(func(_ context.Context, c call) error {
					if c.Op == orchestrator.OpList && c.Worker == "w2" {
						<-over
						return outcome
					}
					return nil
				})
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
				f.slowList(time.Millisecond, "w1")
				f.forget()
				f.term()
				require.Contains(t, texts(f.lists()), "list w2")
				require.Equal(t, []int{2, 2, 2}, f.loads())
				f.requireSettled()
			})
		})
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
