package orchestrator_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// Plan: what the next term would do, and nothing done.

// stripped returns changes without what came of them.
func stripped(changes []change) []change {
	plain := make([]change, len(changes))
	for i, c := range changes {
		plain[i] = change{Kind: c.Kind, Task: c.Task, From: c.From, To: c.To}
	}
	return plain
}

// later is when every silent worker is lost.
func later() { time.Sleep(time.Minute) }

// Plan decides what the next term decides, whatever the situation.
func TestPlan_DecidesAsTheNextTerm(t *testing.T) {
	for name, prepare := range map[string]func(*fleet){
		"nothing runs":    func(*fleet) {},
		"nothing changes": func(f *fleet) { _ = f.NextTerm(f.t.Context()) },
		"a worker joins": func(f *fleet) {
			_ = f.NextTerm(f.t.Context())
			f.join("w5")
		},
		"a worker drains": func(f *fleet) {
			_ = f.NextTerm(f.t.Context())
			_ = f.DrainWorker("w2")
		},
		"a worker is removed": func(f *fleet) {
			_ = f.NextTerm(f.t.Context())
			f.RemoveWorker("w1")
		},
		"a worker is silent": func(f *fleet) {
			_ = f.NextTerm(f.t.Context())
			f.Cut("w2")
			f.RemoveTask("t1")
		},
		"a worker is lost": func(f *fleet) {
			_ = f.NextTerm(f.t.Context())
			f.Cut("w2")
			later()
		},
		"a worker was never heard": func(f *fleet) { f.Cut("w2") },
		"tasks come and go": func(f *fleet) {
			_ = f.NextTerm(f.t.Context())
			f.RemoveTask("t1")
			_ = f.AddTask("t2", orchestrator.WithTaskInstances(3))
			_ = f.AddTask("new")
		},
		"a worker is avoided": func(f *fleet) {
			f.failAdds(errRejected, "w2")
			_ = f.NextTerm(f.t.Context())
		},
		"a start that failed is listed": func(f *fleet) {
			f.intercept(func(_ context.Context, c call) error {
				if c.Op == orchestrator.OpAdd && c.Worker == "w2" {
					f.LoseAnswers("w2")
				}
				return nil
			})
			_ = f.NextTerm(f.t.Context())
			f.intercept(nil)
			f.Heal()
			f.expect(25)
		},
		"a worker is on probation": func(f *fleet) {
			f.failAdds(errRejected, "w2")
			_ = f.NextTerm(f.t.Context())
			_ = f.NextTerm(f.t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
				f := start(t, 4)
				f.expect(18)
				prepare(f)
				f.forget()
				p, errPlan := f.Plan(t.Context())
				require.Empty(t, f.writes())
				for _, c := range p.Changes {
					require.Equal(t, orchestrator.OutcomePlanned, c.Outcome)
					require.NoError(t, c.Err)
				}
				errTerm := f.NextTerm(t.Context())
				done := f.LastPlan()
				require.Equal(t, stripped(done.Changes), stripped(p.Changes))
				require.Equal(t, done.Waiting, p.Waiting)
				require.Equal(t, done.Stats.Changes, p.Stats.Changes)
				require.Equal(t, done.Stats.Adds, p.Stats.Adds)
				require.Equal(t, done.Stats.LowerBound, p.Stats.LowerBound)
				if errPlan != nil { // what Plan met, the term met too
					require.ErrorContains(t, errTerm, failures(t, errPlan)[0].Error())
				}
			})
		})
	}
}

// Plan changes nothing: whoever looks afterwards sees what was there before.
func TestPlan_ChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reported := 0
		f := newFleet(t, 3, orchestrator.WithStats(func(orchestrator.TermStats) { reported++ }))
		f.expect(9)
		_, err := f.Plan(t.Context())
		require.NoError(t, err)
		require.Nil(t, f.LastActual())
		require.Zero(t, f.LastPlan())
		f.term()

		actual, last := f.LastActual(), f.LastPlan()
		f.join("w4")
		f.RemoveTask("t1")
		f.forget()
		for range 3 {
			p, err := f.Plan(t.Context())
			require.NoError(t, err)
			require.NotEmpty(t, p.Changes)
		}
		require.Equal(t, actual, f.LastActual())
		require.Equal(t, last, f.LastPlan())
		require.Equal(t, 1, reported)
		require.Empty(t, f.writes())

		f.term()
		require.Equal(t, last.Stats.Term.Number+1, f.termNumber(), "a Plan is no term")
	})
}

// What is held against a task is forgotten by a term in which it is expected no more,
// and not by a Plan.
func TestPlan_ForgetsNoTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		f.refusePoison()
		f.expect(1)
		require.NoError(t, f.AddTask("poison"))
		f.failingTerm()
		held := f.LastPlan().Avoided
		require.NotEmpty(t, held)
		f.RemoveTask("poison")
		p, err := f.Plan(t.Context())
		require.NoError(t, err)
		require.Empty(t, p.Avoided)
		require.NoError(t, f.AddTask("poison"))
		p, err = f.Plan(t.Context())
		require.NoError(t, err)
		require.Equal(t, held, p.Avoided)
	})
}

// A worker that misses a Plan has not missed a term: the next one waits for it.
func TestPlan_SilenceDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.expect(9)
		f.term()
		f.Hang("w2")
		p, err := f.Plan(t.Context())
		require.Len(t, failures(t, err), 1)
		require.ErrorIs(t, err, orchestrator.ErrSilent)
		require.Equal(t, orchestrator.Silent, p.Workers[1].State)
		require.Equal(t, orchestrator.Answering, f.state("w2").State)

		f.Heal()
		f.Slow(time.Second, "w2")
		took, err := f.timedTerm()
		require.NoError(t, err)
		require.Equal(t, time.Second, took)
	})
}

// An answer that came too late for its term ends the silence: the next term
// waits for that worker again, and so does a Plan in its stead.
func TestPlan_WaitsForWhomTheTermWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		f.expect(20)
		f.term()
		f.Stick("w2")
		f.failingTerm()
		f.Heal()
		synctest.Wait() // its answer is here
		f.Slow(time.Second, "w2")
		f.join("w5")
		waited := took(func() {
			p, err := f.Plan(t.Context())
			require.NoError(t, err)
			require.Len(t, p.Changes, 4)
		})
		require.Equal(t, time.Second, waited)
		f.term()
		f.requireSettled()
	})
}

// However often somebody looks at a Plan, a worker that comes back from silence
// is heard in the next terms.
func TestPlan_KeepsNobodySilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.expect(9)
		f.term()
		f.Cut("w2")
		f.failingTerm()
		f.Slow(time.Second, "w2") // it is back, and slower than the others
		for range 5 {
			_, _ = f.Plan(t.Context())
			_ = f.NextTerm(t.Context())
			time.Sleep(2 * time.Second)
		}
		require.Equal(t, orchestrator.Answering, f.state("w2").State)
	})
}

// A Plan that is cancelled is no plan.
func TestPlan_Cancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.expect(2)
		errStop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		f.intercept(func(context.Context, call) error { cancel(errStop); return nil })
		p, err := f.Plan(ctx)
		require.ErrorIs(t, err, errStop)
		require.Zero(t, p)
		_, err = f.Plan(ctx)
		require.ErrorIs(t, err, errStop)
	})
}
