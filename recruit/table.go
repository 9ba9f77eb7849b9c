package recruit

// The mapping from numbers to jobs. A table is immutable: Install and Uninstall
// replace it.

import (
	"fmt"
	"math"
	"slices"
	"sort"
)

// Probabilities are counted in units of 2⁻⁴⁰, so that their sums are exact.
const (
	unitBits = 40
	whole    = 1 << unitBits // probability 1
)

// table assigns to each job a range of the numbers from 0 to whole, as long as its
// rate.
type table struct {
	jobs []*job   // in the order of installation
	ends []uint64 // the end of each job's range, which is the start of the next
	sum  uint64   // the end of the last range; 0: no jobs
}

// pick returns the job for n, which must be below whole, or nil if n draws no job.
func (t *table) pick(n uint64) *job {
	if n >= t.sum {
		return nil
	}
	return t.at(n)
}

// at is pick for n below sum. It is a separate function, so that a draw of no job
// costs only a comparison.
func (t *table) at(n uint64) *job {
	return t.jobs[sort.Search(len(t.ends), func(i int) bool { return n < t.ends[i] })]
}

// find returns the index of the job with this name, or -1.
func (t *table) find(name string) int {
	return slices.IndexFunc(t.jobs, func(j *job) bool { return j.name == name })
}

// with returns a table with j added, or an error if j cannot be added.
func (t *table) with(j *job) (*table, error) {
	if i := t.find(j.name); i >= 0 {
		return nil, fmt.Errorf("%w: the name is already installed, at rate %v", ErrInvalid, t.jobs[i].rate)
	}
	if left := whole - t.sum; j.units > left {
		// Twelve digits hide what rounding has left over, and are off by less than a
		// unit, so a job with the rate shown can be installed.
		return nil, fmt.Errorf("%w: the rates of all jobs must add up to at most 1, and only %.12g is left",
			ErrInvalid, rateOf(left))
	}
	return tableOf(append(slices.Clip(t.jobs), j)), nil
}

// without returns a table without the job at index i.
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

// unitsOf rounds a rate down to whole units. Rounded to the nearest unit, a hundred
// times 0.01 would exceed 1.
func unitsOf(rate float64) (uint64, error) {
	switch {
	case math.IsNaN(rate):
		return 0, fmt.Errorf("%w: the rate must be a number", ErrInvalid)
	case rate <= 0 || rate > 1:
		return 0, fmt.Errorf("%w: the rate must be above 0 and at most 1", ErrInvalid)
	}
	units := uint64(rate * whole) // exact, apart from the fraction cut off
	if units == 0 {
		return 0, fmt.Errorf("%w: the rate must be at least 2⁻⁴⁰ (%v)", ErrInvalid, rateOf(1))
	}
	return units, nil
}

func rateOf(units uint64) float64 { return float64(units) / whole }
