package test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// T5: where too many are silent at once, nobody is lost.

func TestT5_MassLoss(t *testing.T) {
	maxLoss := orchestrator.WithMaxLoss
	for _, test := range []struct {
		name            string
		workers, silent int
		opts            []option
		lost            bool // after the grace period
	}{
		{"two of three", 3, 2, nil, false},
		{"one of three", 3, 1, nil, true},
		{"all of three", 3, 3, nil, false},
		{"two of four are not more than half", 4, 2, nil, true},
		{"three of four", 4, 3, nil, false},
		{"of two workers, one", 2, 1, nil, true},
		{"of two workers, both", 2, 2, nil, true},
		{"the only one", 1, 1, nil, true},
		{"a quarter is allowed, a quarter is silent", 4, 1, []option{maxLoss(0.25)}, true},
		{"a quarter is allowed, half is silent", 4, 2, []option{maxLoss(0.25)}, false},
		{"none is allowed", 3, 1, []option{maxLoss(0)}, false},
		{"one turns it off", 3, 3, []option{maxLoss(1)}, true},
		{"a third of three, in binary fractions", 3, 1, []option{maxLoss(1.0 / 3)}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, test.workers, test.opts...)
				f.expect(2 * test.workers)
				f.term()
				silent := f.workers[:test.silent]
				f.Cut(silent...)
				f.silentTerm(silent...)
				require.Equal(t, !test.lost, f.LastPlan().Stats.MassLoss)
				f.forget()
				time.Sleep(grace)
				f.silentTerm(silent...)
				stats := f.LastPlan().Stats
				require.Equal(t, !test.lost, stats.MassLoss)
				if test.lost {
					require.Equal(t, test.silent, stats.Workers.Lost)
				} else {
					require.Equal(t, test.silent, stats.Workers.Silent)
					require.Empty(t, f.writes())
				}
			})
		})
	}
}

func TestT5_ForFiveMinutesAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 5 * time.Minute
		f := newFleet(t, 4)
		f.expect(8)
		f.term()
		f.Cut("w1", "w2", "w3")
		time.Sleep(grace) // it begins when a term sees it
		f.silentTerm("w1", "w2", "w3")
		f.forget()
		time.Sleep(most - 1)
		f.silentTerm("w1", "w2", "w3")
		require.True(t, f.LastPlan().Stats.MassLoss)
		require.Empty(t, f.writes())
		time.Sleep(time.Nanosecond)
		f.silentTerm("w1", "w2", "w3")
		require.False(t, f.LastPlan().Stats.MassLoss)
		require.Equal(t, 3, f.LastPlan().Stats.Workers.Lost)
		require.Equal(t, 8, f.loads()[3])
	})
}

func TestT5_EachHasItsOwnFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		f.expect(8)
		f.term()
		for range 3 {
			f.Cut("w1", "w2", "w3")
			f.silentTerm("w1", "w2", "w3")
			time.Sleep(4 * time.Minute)
			f.silentTerm("w1", "w2", "w3")
			require.True(t, f.LastPlan().Stats.MassLoss)
			f.heal()
			time.Sleep(timeout) // it ends once everybody had time to answer
			f.term()
			require.False(t, f.LastPlan().Stats.MassLoss)
		}
		for _, name := range names("t", 8) {
			require.Equal(t, 1, f.Counts(name).Starts)
		}
	})
}

// When the network is back, a term that does not wait for those that were
// silent hears some of them and goes on: the others are about to answer.
func TestT5_NobodyIsLostAsTheNetworkReturns(t *testing.T) {
	for _, every := range []time.Duration{time.Second, time.Minute} {
		t.Run(every.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 4)
				f.expect(8)
				f.term()
				f.Cut("w1", "w2", "w3")
				f.silentTerm("w1", "w2", "w3")
				time.Sleep(2 * grace)
				f.silentTerm("w1", "w2", "w3")

				time.Sleep(every)
				f.Heal()
				f.Slow(time.Microsecond, "w4")
				f.Slow(time.Millisecond, "w2", "w3")
				f.forget()
				f.silentTerm("w2", "w3")
				require.Empty(t, f.writes())
				time.Sleep(every)
				f.term()
				require.Empty(t, f.writes())
				require.Equal(t, 4, f.LastPlan().Stats.Workers.Answering)
			})
		})
	}
}

// Those that were lost before do not count: what is left decides.
func TestT5_CountsWorkersNotYetLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 7)
		f.term()
		f.Cut("w1", "w2", "w3")
		time.Sleep(grace)
		f.silentTerm("w1", "w2", "w3")
		require.Equal(t, 3, f.LastPlan().Stats.Workers.Lost)

		f.Cut("w4", "w5", "w6")
		f.silentTerm("w1", "w2", "w3", "w4", "w5", "w6")
		require.True(t, f.LastPlan().Stats.MassLoss, "three of four, and not of seven")
		f.Heal("w6")
		for range 2 {
			_ = f.NextTerm(t.Context())
			time.Sleep(grace)
		}
		f.silentTerm("w1", "w2", "w3", "w4", "w5")
		require.False(t, f.LastPlan().Stats.MassLoss, "two of four")
		require.Equal(t, 5, f.LastPlan().Stats.Workers.Lost)
		f.Cut("w6", "w7")
		time.Sleep(grace)
		f.silentTerm(f.workers...)
		require.False(t, f.LastPlan().Stats.MassLoss, "only two are left")
	})
}

func TestT5_Loudly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l logs
		f := newFleet(t, 3, orchestrator.WithLogger(l.logger()))
		f.term()
		require.Empty(t, l.lines(`"level":"ERROR"`))
		f.Cut("w1", "w2")
		for range 3 {
			f.silentTerm("w1", "w2")
			require.Contains(t, f.LastPlan().String(), "too many workers silent at once")
		}
		require.Len(t, l.lines(`"level":"ERROR"`, `"silent":2`, `"answering":1`), 1, "it is no news")
		time.Sleep(time.Minute)
		f.silentTerm("w1", "w2")
		require.Len(t, l.lines(`"level":"ERROR"`, `"omitted":2`), 1)
		require.Empty(t, l.lines("no longer"))
		f.Heal()
		for range 2 {
			_ = f.NextTerm(t.Context()) // which need not wait for the answers
			synctest.Wait()
		}
		f.term()
		require.Len(t, l.lines("most workers answer again", `"level":"INFO"`), 1)
		f.Cut("w1", "w2")
		f.silentTerm("w1", "w2")
		require.Len(t, l.lines(`"level":"ERROR"`), 3, "that is news again")
	})
}

// Where nobody is given up anyway it says so to nobody that they are not.
func TestT5_LoudlyWhereNobodyIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l logs
		f := newFleet(t, 3, hold, orchestrator.WithLogger(l.logger()))
		f.term()
		f.Cut("w1", "w2")
		f.silentTerm("w1", "w2")
		require.True(t, f.LastPlan().Stats.MassLoss)
		require.Len(t, l.lines(`"level":"WARN"`, "this leader may be cut off", `"silent":2`), 1)
		require.Empty(t, l.lines("declared lost"))
	})
}
