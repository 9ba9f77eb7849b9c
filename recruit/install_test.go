package recruit_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/recruit"
)

// unit is the smallest rate.
const unit = 1.0 / (1 << 40)

func TestS1_InstallErrorsNameTheJobAndTheValue(t *testing.T) {
	ok := recruit.JobFunc(nothing)
	for name, c := range map[string]struct {
		job  string
		rate float64
		do   recruit.Job
		says string
	}{
		"no name":        {"", 0.5, ok, `install job "" at rate 0.5: invalid: the name is empty`},
		"a name twice":   {"there", 0.125, ok, `install job "there" at rate 0.125: invalid: the name is already installed, at rate 0.2`},
		"no job":         {"gc", 0.5, nil, `install job "gc" at rate 0.5: invalid: the Job is nil`},
		"no func":        {"gc", 0.5, recruit.JobFunc(nil), `install job "gc" at rate 0.5: invalid: the Job is nil`},
		"not a number":   {"gc", math.NaN(), ok, `install job "gc" at rate NaN: invalid: the rate must be a number`},
		"infinite":       {"gc", math.Inf(1), ok, `install job "gc" at rate +Inf: invalid: the rate must be above 0 and at most 1`},
		"less than that": {"gc", math.Inf(-1), ok, `install job "gc" at rate -Inf: invalid: the rate must be above 0 and at most 1`},
		"zero":           {"gc", 0, ok, `install job "gc" at rate 0: invalid: the rate must be above 0 and at most 1`},
		"negative":       {"gc", -0.25, ok, `install job "gc" at rate -0.25: invalid: the rate must be above 0 and at most 1`},
		"above 1":        {"gc", 1.5, ok, `install job "gc" at rate 1.5: invalid: the rate must be above 0 and at most 1`},
		"just above 1":   {"gc", math.Nextafter(1, 2), ok, `install job "gc" at rate 1.0000000000000002: invalid: the rate must be above 0 and at most 1`},
		"too small":      {"gc", 9e-13, ok, `install job "gc" at rate 9e-13: invalid: the rate must be at least 2⁻⁴⁰ (9.094947017729282e-13)`},
		"a sum above 1":  {"gc", 0.9, ok, `install job "gc" at rate 0.9: invalid: the rates of all jobs must add up to at most 1, and only 0.8 is left`},
		"by the least":   {"gc", 0.8 + 2*unit, ok, `install job "gc" at rate 0.800000000001819: invalid: the rates of all jobs must add up to at most 1, and only 0.8 is left`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecruiter(t)
			require.NoError(t, r.Install("there", 0.2, ok))
			before := r.Jobs()

			err := r.Install(c.job, c.rate, c.do)
			require.ErrorIs(t, err, recruit.ErrInvalid)
			require.EqualError(t, err, c.says)
			require.Equal(t, before, r.Jobs(), "the refused job changed nothing")
			require.NoError(t, r.Install("another", 0.8, ok), "the refused job took none of the rate")
		})
	}
}

func TestS1_AHundredTimesAHundredthIsOne(t *testing.T) {
	r := newRecruiter(t)
	for i := range 100 {
		require.NoError(t, r.Install(fmt.Sprint("job ", i), 0.01, recruit.JobFunc(nothing)))
	}
	// Rounding down leaves less than a ten-billionth.
	require.ErrorContains(t, r.Install("one more", 1e-10, recruit.JobFunc(nothing)), "only 6.91215973347e-11 is left")

	jobs := r.Jobs()
	require.Len(t, jobs, 100)
	for i, j := range jobs {
		require.Equal(t, fmt.Sprint("job ", i), j.Name, "in the order of installation")
		require.InDelta(t, 0.01, j.Rate, 0, "the rate as given")
	}
}

// Rounding affects the sum, but not the rate that Jobs returns.
func TestS1_RatesAreRoundedDownToUnits(t *testing.T) {
	for rate, rounded := range map[float64]float64{
		unit:         unit,
		1.999 * unit: unit,
		2 * unit:     2 * unit,
		0.5:          0.5,
		1e-9:         1099 * unit,
		1 - unit/2:   1 - unit,
	} {
		r := newRecruiter(t)
		require.NoError(t, r.Install("x", rate, recruit.JobFunc(nothing)))
		require.InDelta(t, rate, job(t, r).Rate, 0)
		require.NoError(t, r.Install("the rest", 1-rounded, recruit.JobFunc(nothing)), "beside %v", rate)
		require.ErrorContains(t, r.Install("more", unit, recruit.JobFunc(nothing)), "only 0 is left", "beside %v", rate)
	}
}

// A job with the rate that the error reports as left can be installed, despite
// rounding.
func TestS1_TheRateReportedAsLeftFits(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	for range 2000 {
		rate := 1 - math.Pow(2, -39*random.Float64())
		r := newRecruiter(t)
		require.NoError(t, r.Install("x", max(rate, unit), recruit.JobFunc(nothing)))
		err := r.Install("y", 1, recruit.JobFunc(nothing))
		var left float64
		_, scanned := fmt.Sscanf(err.Error(), `install job "y" at rate 1: invalid: the rates of all jobs must add up to at most 1, and only %g is left`, &left)
		require.NoError(t, scanned, err.Error())
		require.NoError(t, r.Install("y", left, recruit.JobFunc(nothing)), "beside %v", rate)
		require.ErrorContains(t, r.Install("z", 3*unit, recruit.JobFunc(nothing)), " is left", "%v was not almost all of it", left)
	}
}

func TestS1_ARecruiterNotCreatedByNew(t *testing.T) {
	for _, r := range []*recruit.Recruiter{nil, {}} {
		err := r.Install("x", 0.5, recruit.JobFunc(nothing))
		require.ErrorIs(t, err, recruit.ErrInvalid)
		require.EqualError(t, err, `install job "x" at rate 0.5: invalid: the Recruiter was not created by New`)
	}
}

func TestS1_UninstallFreesTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := always(t, nothing)
		require.Equal(t, recruit.Done, r.Enlist(t.Context()))
		require.False(t, r.Uninstall("y"))
		require.True(t, r.Uninstall("x"))
		require.False(t, r.Uninstall("x"), "it was uninstalled before")
		require.Empty(t, r.Jobs())
		require.Equal(t, recruit.Dismissed, r.Enlist(t.Context()))

		require.NoError(t, r.Install("y", 0.5, recruit.JobFunc(nothing)))
		require.NoError(t, r.Install("x", 0.5, recruit.JobFunc(nothing)))
		require.Equal(t, "y", r.Jobs()[0].Name)
		require.Equal(t, recruit.JobStats{Name: "x", Rate: 0.5}, r.Jobs()[1], "installed again, its counts start over")
		require.EqualValues(t, 1, r.Dismissed(), "runs of the uninstalled x are not dismissals")
	})
}

func TestOptionsOutOfRange(t *testing.T) {
	r, err := recruit.New(recruit.WithBudget(0), nil, recruit.WithLimit(-1), recruit.WithSource(nil))
	require.Nil(t, r)
	require.ErrorIs(t, err, recruit.ErrInvalid)
	for _, says := range []string{"WithBudget(0s): must be positive", "an Option is nil", "WithLimit(-1): must not be negative", "WithSource(nil): must be a source"} {
		require.ErrorContains(t, err, says)
	}
}

func FuzzS1_Install(f *testing.F) {
	f.Add(0.01, 0.5, 0.49, uint8(0))
	f.Add(1.0, unit, unit, uint8(1))
	f.Add(0.7, 0.2, 0.1, uint8(2))
	f.Add(math.NaN(), math.Inf(1), math.Copysign(0, -1), uint8(3))
	f.Add(0.3333333333333333, 0.3333333333333333, 0.3333333333333334, uint8(4))
	f.Fuzz(func(t *testing.T, a, b, c float64, gone uint8) {
		r := newRecruiter(t)
		sum := 0.0 // exact: a multiple of a unit, at most 1
		kept, given := map[string]float64{}, map[string]float64{}
		for round, rates := range [][]float64{{a, b, c}, {c, a, b}} {
			for i, rate := range rates {
				name := fmt.Sprint(round, ".", i)
				rounded := math.Floor(rate/unit) * unit
				fits := rounded >= unit && rate <= 1 && sum+rounded <= 1
				err := r.Install(name, rate, recruit.JobFunc(nothing))
				require.Equal(t, fits, err == nil, "%v after %v: %v", rate, sum, err)
				if err != nil {
					require.ErrorIs(t, err, recruit.ErrInvalid)
					require.ErrorContains(t, err, fmt.Sprintf("%q", name))
					continue
				}
				sum += rounded
				kept[name], given[name] = rounded, rate
			}
			name := fmt.Sprint(round, ".", gone%4) // four names, at most three are installed
			require.Equal(t, kept[name] > 0, r.Uninstall(name))
			sum -= kept[name]
			delete(kept, name)
			delete(given, name)
		}
		got := map[string]float64{}
		for _, j := range r.Jobs() {
			got[j.Name] = j.Rate
		}
		require.Equal(t, given, got)
	})
}
