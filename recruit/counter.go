package recruit

// Counting and drawing on many cores at once, without a line of memory that they
// share.

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// counter is a sum in shards, each on lines of its own. A goroutine counts on
// the shard that the place of its stack says. Goroutines that run at the same
// time have different stacks, and one that goes on counts on where it did, so
// cores rarely meet on a line.
//
// What was rejected: one atomic, which costs several times as much as the whole
// of Enlist as soon as two cores count; a shard at random, since its line was
// mostly written by another core last; sync.Pool, whose shards the garbage
// collector takes away.
type counter struct {
	shards []shard
	shift  int // of a hash of 64 bits, to leave the number of a shard
}

// shard is padded to two lines, because processors fetch them in pairs.
type shard struct {
	n    atomic.Uint64
	seed uint64
	_    [112]byte
}

// newCounter returns a counter with four shards for each core, so that of a few
// goroutines that count at the same time two rarely have the same.
func newCounter() counter {
	b := min(bits.Len(uint(4*runtime.GOMAXPROCS(0)-1)), 10)
	c := counter{shards: make([]shard, 1<<b), shift: 64 - b}
	for i := range c.shards {
		c.shards[i].seed = rand.Uint64()
	}
	return c
}

// own returns the shard of this goroutine.
func (c *counter) own() *shard {
	var here byte
	// No stack is smaller than 2 KiB. Multiplied by 2⁶⁴ over the golden ratio,
	// neighbours are far apart.
	stack := uint64(uintptr(unsafe.Pointer(&here))) >> 11
	return &c.shards[stack*golden>>(c.shift&63)]
}

// inc adds one.
func (c *counter) inc() { c.own().n.Add(1) }

// draw adds one, and returns a random number.
func (c *counter) draw() uint64 { return c.own().draw() }

// draw adds one, and returns a random number: the count is the state of a
// generator (SplitMix64, of Steele, Lea and Flood), whose numbers are a hash of
// its steps. So to count and to draw is one write, where the runtime's generator
// beside the count takes nearly twice as long in all.
func (s *shard) draw() uint64 {
	z := s.seed + s.n.Add(1)*golden
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// golden is 2⁶⁴ over the golden ratio.
const golden = 0x9e3779b97f4a7c15

// sum returns what was counted: each call that has returned, and perhaps some
// that have not.
func (c *counter) sum() uint64 {
	var n uint64
	for i := range c.shards {
		n += c.shards[i].n.Load()
	}
	return n
}
