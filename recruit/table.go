package recruit

// Which job a number draws. A table never changes: who installs a job makes
// another one.

import (
	"fmt"
	"math"
	"slices"
	"sort"
)

// Chances are counted in units of 2⁻⁴⁰, so that sums of them are exact.
const (
	unitBits = 40
	whole    = 1 << unitBits // a chance of one
)

// table has each job at a stretch of the numbers from 0 to whole, as long as its
// rate.
type table struct {
	jobs []*job   // in the order they were installed
	ends []uint64 // where the stretch of each ends and the next one's begins
	sum  uint64   // the end of the last; 0: no job
}

// pick returns the job at n, a number below whole, or nil where there is none.
func (t *table) pick(n uint64) *job {
	if n >= t.sum {
		return nil
	}
	return t.at(n)
}

// at is pick for a number below sum: apart, so that a caller who draws no job
// pays for a comparison only.
func (t *table) at(n uint64) *job {
	return t.jobs[sort.Search(len(t.ends), func(i int) bool { return n < t.ends[i] })]
}

// find returns where the job of this name is; -1: nowhere.
func (t *table) find(name string) int {
	return slices.IndexFunc(t.jobs, func(j *job) bool { return j.name == name })
}

// with returns a table that has j too, or an error that says why it cannot be.
func (t *table) with(j *job) (*table, error) {
	if i := t.find(j.name); i >= 0 {
		return nil, fmt.Errorf("%w: a job of this name is installed already, at rate %v", ErrInvalid, t.jobs[i].rate)
	}
	if left := whole - t.sum; j.units > left {
		// Twelve digits do not show what rounding has left over, and are off by less
		// than a unit: what is shown can be installed.
		return nil, fmt.Errorf("%w: the rates of all jobs must add up to at most 1, and only %.12g of it is left",
			ErrInvalid, rateOf(left))
	}
	return tableOf(append(slices.Clip(t.jobs), j)), nil
}

// without returns a table that lacks the i-th job.
func (t *table) without(i int) *table {
	return tableOf(slices.Concat(t.jobs[:i], t.jobs[i+1:]))
}

func tableOf(jobs []*job) *table {
	t := &table{jobs: jobs, ends: make([]uint64, len(jobs))}
	for i, j := range jobs {
		t.sum += j.units
		t.ends[i] = t.sum
	}
	return t
}

// unitsOf rounds a rate down to whole units: to the nearest, a hundred times
// 0.01 would be more than 1.
func unitsOf(rate float64) (uint64, error) {
	switch {
	case math.IsNaN(rate):
		return 0, fmt.Errorf("%w: the rate must be a number", ErrInvalid)
	case rate <= 0 || rate > 1:
		return 0, fmt.Errorf("%w: the rate must be above 0 and at most 1", ErrInvalid)
	}
	units := uint64(rate * whole) // exact but for the fraction that is cut off
	if units == 0 {
		return 0, fmt.Errorf("%w: the rate must be at least 2⁻⁴⁰ (%v)", ErrInvalid, rateOf(1))
	}
	return units, nil
}

func rateOf(units uint64) float64 { return float64(units) / whole }
