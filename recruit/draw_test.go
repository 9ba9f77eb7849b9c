package recruit

// White-box tests of the draw. Through Enlist, millions of draws would be millions
// of runs.

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var draws = flag.Int("recruit.draws", 1_000_000, "number of draws of the tests of shares")

// fixed seeds the default generators with fixed values, and draws from each in turn,
// because a test cannot choose the generator of a goroutine.
func fixed(r *Recruiter) func() *job {
	seeds := rand.NewPCG(1, 0)
	for i := range r.calls.shards {
		r.calls.shards[i].seed = seeds.Uint64()
	}
	i := 0
	return func() *job {
		i++
		n := r.calls.shards[i%len(r.calls.shards)].draw()
		return r.table.Load().pick(n >> (64 - unitBits))
	}
}

// seeded draws as with WithSeed.
func seeded(r *Recruiter) func() *job {
	r.cfg.source = rand.NewPCG(1, 0)
	return r.draw
}

// rated returns a recruiter with one job per rate, named by its index.
func rated(t testing.TB, rates []float64) *Recruiter {
	t.Helper()
	r, err := New()
	require.NoError(t, err)
	for i, rate := range rates {
		require.NoError(t, r.Install(fmt.Sprint(i), rate, JobFunc(func(context.Context) error { return nil })))
	}
	return r
}

// count draws, counts the draws of each job, and returns how many drew no job.
func count(draw func() *job) (nobody int) {
	for range *draws {
		if j := draw(); j != nil {
			j.stats.Recruited++
		} else {
			nobody++
		}
	}
	return nobody
}

// checkShare requires that a count is within five standard deviations.
func checkShare(t *testing.T, what string, p float64, n, got int) {
	t.Helper()
	mean := p * float64(n)
	require.InDelta(t, mean, got, 5*math.Sqrt(mean*(1-p)), "%s: %d of %d draws at a rate of %v", what, got, n, p)
}

func TestS2_SharesOfMillionsOfDraws(t *testing.T) {
	same := make([]float64, 100)
	for i := range same {
		same[i] = 0.01
	}
	// Multiples of a unit, all different, with a sum that is exactly 1.
	exact := make([]float64, 100)
	left := uint64(whole)
	for i := range exact {
		units := uint64(whole) / 5050 * uint64(i+1)
		if i == len(exact)-1 {
			units = left
		}
		left -= units
		exact[i] = rateOf(units)
	}
	for name, c := range map[string]struct {
		rates []float64
		draw  func(*Recruiter) func() *job
	}{
		"from large to small":           {[]float64{0.5, 0.25, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6, 1e-9, 1e-9}, fixed},
		"a hundred, the same":           {same, fixed},
		"a hundred, sum 1":              {exact, fixed},
		"a hundred, sum 1, by WithSeed": {exact, seeded},
	} {
		t.Run(name, func(t *testing.T) {
			r := rated(t, c.rates)
			nobody, sum := count(c.draw(r)), 0.0
			for _, j := range r.table.Load().jobs {
				checkShare(t, j.name, rateOf(j.units), *draws, int(j.stats.Recruited))
				sum += rateOf(j.units)
			}
			checkShare(t, "none", 1-sum, *draws, nobody)
			if sum == 1 {
				require.Zero(t, nobody, "with rates that add up to 1 every call draws a job")
			}
		})
	}
}

// At a rate of one in a billion, millions of draws rarely hit. So this test installs
// 900 such jobs and draws only from the lowest 2⁻²⁰ of the numbers, of which the
// jobs cover 94%.
func TestS2_SharesAtABillionth(t *testing.T) {
	rates := make([]float64, 900)
	for i := range rates {
		rates[i] = 1e-9
	}
	const low = 1 << (unitBits - 20)
	r := rated(t, rates)
	random := rand.New(rand.NewPCG(1, 0))
	nobody, sum := count(func() *job { return r.table.Load().pick(random.Uint64N(low)) }), 0.0
	for _, j := range r.table.Load().jobs {
		require.InEpsilon(t, 1e-9, rateOf(j.units), 5e-4)
		checkShare(t, j.name, rateOf(j.units)*whole/low, *draws, int(j.stats.Recruited))
		sum += rateOf(j.units)
	}
	checkShare(t, "none", 1-sum*whole/low, *draws, nobody)
}

// Unlike the tests of shares, this test is exact: each number has the job whose
// range it is in, and each range is as long as the rate.
func TestS2_EachNumberHasItsJob(t *testing.T) {
	rates := []float64{0.25, rateOf(1), 0.01, rateOf(2), 1e-9, 0.5}
	r := rated(t, rates)
	at := uint64(0)
	for i, rate := range rates {
		units, err := unitsOf(rate)
		require.NoError(t, err)
		for _, n := range []uint64{at, at + units/2, at + units - 1} {
			require.Equal(t, fmt.Sprint(i), r.table.Load().pick(n).name)
		}
		at += units
	}
	require.Nil(t, r.table.Load().pick(at))
	require.Nil(t, r.table.Load().pick(whole-1))
}

// In each default generator every bit is set half of the time, and changes half of
// the time.
func TestS2_BitsOfTheDefaultGenerator(t *testing.T) {
	r := rated(t, []float64{0.5})
	fixed(r)
	const n = 20_000
	for s := range r.calls.shards {
		var set, same [64]int
		last := uint64(0)
		for range n {
			v := r.calls.shards[s].draw()
			for bit := range 64 {
				set[bit] += int(v >> bit & 1)
				same[bit] += int((v ^ last) >> bit & 1)
			}
			last = v
		}
		for bit := range 64 {
			checkShare(t, fmt.Sprint("bit ", bit), 0.5, n, set[bit])
			checkShare(t, fmt.Sprint("change of bit ", bit), 0.5, n, same[bit])
		}
	}
}

func TestS2_TwoRecruitersDrawDifferently(t *testing.T) {
	a, b := newCounter(), newCounter()
	same := 0
	for range 1000 {
		if a.draw()>>60 == b.draw()>>60 {
			same++
		}
	}
	require.Less(t, same, 200, "of 1000 draws with a chance of one in sixteen")
}

// The generators of one recruiter take the same steps, but start far apart.
func TestS2_NoTwoShardsDrawTheSame(t *testing.T) {
	c := newCounter()
	drawn := make(map[uint64]int)
	for s := range c.shards {
		for range 1000 {
			n := c.shards[s].draw()
			other, again := drawn[n]
			require.False(t, again, "shards %d and %d", other, s)
			drawn[n] = s
		}
	}
}

// Two goroutines on the same shard draw different numbers.
func TestS2_NoTwoGoroutinesDrawTheSame(t *testing.T) {
	c := newCounter()
	var numbers [4][10_000]uint64
	var wg sync.WaitGroup
	for g := range numbers {
		wg.Go(func() {
			for i := range numbers[g] {
				numbers[g][i] = c.shards[0].draw()
			}
		})
	}
	wg.Wait()
	drawn := make(map[uint64]bool)
	for g := range numbers {
		for _, n := range numbers[g] {
			require.False(t, drawn[n])
			drawn[n] = true
		}
	}
}

func TestS2_EveryCallIsCounted(t *testing.T) {
	c := newCounter()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for i := range 10_000 {
				if i%2 == 0 {
					c.inc()
				} else {
					c.draw()
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 200_000, c.sum())
	used := 0
	for i := range c.shards {
		if c.shards[i].n.Load() > 0 {
			used++
		}
	}
	require.Greater(t, used, 1, "twenty goroutines used one shard")
}

// Between turnedAway and begin, another run may begin.
func TestS3_BeginChecksAgain(t *testing.T) {
	r := rated(t, []float64{0.5, 0.5})
	r.cfg.limit = 1
	jobs := r.table.Load().jobs
	begin := func(j *job) (*run, string) {
		require.Empty(t, r.turnedAway(t.Context(), j)) // no reason yet
		return r.begin(j)
	}
	first, reason := begin(jobs[0])
	require.Empty(t, reason)
	_, reason = r.begin(jobs[1])
	require.Equal(t, reasonLimit, reason)

	_, left := r.abandon(first, time.Now())
	require.True(t, left)
	_, reason = r.begin(jobs[0])
	require.Equal(t, reasonBehind, reason)
	second, reason := begin(jobs[1])
	require.Empty(t, reason, "a run left behind does not count towards the limit")

	r.end(t.Context(), first, result{})
	r.end(t.Context(), second, result{})
	require.NoError(t, r.Close(t.Context()))
	_, reason = begin(jobs[0])
	require.Equal(t, reasonClosed, reason)
	require.EqualValues(t, 2, r.begun)
}

func TestS2_ADismissedCallAllocatesNothing(t *testing.T) {
	r := rated(t, []float64{1e-9})
	require.Zero(t, testing.AllocsPerRun(1000, func() { r.Enlist(t.Context()) }))

	full := rated(t, []float64{1})
	full.cfg.limit = 1
	full.running.Store(1)
	require.Zero(t, testing.AllocsPerRun(1000, func() { full.Enlist(t.Context()) }), "at the limit")
	require.EqualValues(t, 1001, full.Jobs()[0].Dismissed)

	behind := rated(t, []float64{1})
	behind.table.Load().jobs[0].behind.Store(1)
	require.Zero(t, testing.AllocsPerRun(1000, func() { behind.Enlist(t.Context()) }), "with a run left behind")
}
