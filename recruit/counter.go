package recruit

// Counting and drawing on many cores at the same time, without a shared cache line.

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"unsafe"
)

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
