package recruit

// The draw: a random number of a shard, and the job in whose range it is. The shards
// let many cores count and draw at the same time, without a shared cache line.

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"sort"
	"sync/atomic"
	"unsafe"
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

// counter is a sum in shards, each on separate cache lines. The address of a
// goroutine's stack selects its shard. Goroutines that run at the same time have
// different stacks, and a goroutine keeps its shard while its stack stays in place.
// So two cores rarely write to the same cache line.
//
// Rejected alternatives: one atomic counter, which costs several times as much as
// all of Enlist as soon as two cores count; a random shard, because another core has
// usually written its cache line last; sync.Pool, whose shards the garbage collector
// removes.
type counter struct {
	shards []shard
	shift  int // bits to drop from a 64-bit hash, to get the index of a shard
}

// shard is padded to two cache lines, because processors fetch them in pairs.
type shard struct {
	n    atomic.Uint64
	seed uint64
	_    [112]byte
}

// newCounter returns a counter with at least four shards per core, but at most 1024.
// With so many, a few goroutines that count at the same time rarely share a shard.
func newCounter() counter {
	b := min(bits.Len(uint(4*runtime.GOMAXPROCS(0)-1)), 10)
	c := counter{shards: make([]shard, 1<<b), shift: 64 - b}
	for i := range c.shards {
		c.shards[i].seed = rand.Uint64()
	}
	return c
}

// own returns the shard of the calling goroutine.
func (c *counter) own() *shard {
	var here byte
	// No stack is smaller than 2 KiB. The multiplication by golden spreads
	// neighbouring stacks over the shards.
	stack := uint64(uintptr(unsafe.Pointer(&here))) >> 11
	return &c.shards[stack*golden>>(c.shift&63)]
}

// inc adds one.
func (c *counter) inc() { c.own().n.Add(1) }

// draw adds one, and returns a random number; see shard.draw.
func (c *counter) draw() uint64 { return c.own().draw() }

// draw adds one to the count, and returns a random number. The count is the state of
// a SplitMix64 generator (Steele, Lea and Flood), which hashes its steps. So
// counting and drawing take a single write. A separate count and the runtime's
// generator would take almost twice as long.
func (s *shard) draw() uint64 {
	z := s.seed + s.n.Add(1)*golden
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// golden is 2⁶⁴ divided by the golden ratio.
const golden = 0x9e3779b97f4a7c15

// sum returns the count. It includes each call that has returned, and possibly some
// that have not.
func (c *counter) sum() uint64 {
	var n uint64
	for i := range c.shards {
		n += c.shards[i].n.Load()
	}
	return n
}
