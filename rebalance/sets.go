package rebalance

import (
	"math/bits"
	"slices"
)

// set is a set of small numbers, a bit for each.
type set []uint64

// emptied returns s for numbers below n, with none in it.
func (s set) emptied(n int) set { return sized(s, (n+63)/64) }

func (s set) has(i int32) bool { return s[uint32(i)/64]>>(uint32(i)%64)&1 != 0 }

func (s set) add(i int32) { s[uint32(i)/64] |= 1 << (uint32(i) % 64) }

func (s set) remove(i int32) { s[uint32(i)/64] &^= 1 << (uint32(i) % 64) }

// lacks returns how many numbers are not members. The bits beyond the last number must be set.
func (s set) lacks() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(^word)
	}
	return n
}

// members calls visit with each number, until it returns false.
func (s set) members(visit func(i int32) bool) {
	for k, word := range s {
		for ; word != 0; word &= word - 1 {
			if !visit(int32(k*64 + bits.TrailingZeros64(word))) {
				return
			}
		}
	}
}

// meets reports whether two sets for as many numbers have a common member.
func (s set) meets(o set) bool {
	for k, word := range s {
		if word&o[k] != 0 {
			return true
		}
	}
	return false
}

// isWithin reports whether o contains every member of s.
func (s set) isWithin(o set) bool {
	for k, word := range s {
		if word&^o[k] != 0 {
			return false
		}
	}
	return true
}

// sized returns s with length n and every element zero.
func sized[E any](s []E, n int) []E {
	s = roomy(s, n)
	clear(s)
	return s
}

// roomy returns s with length n. Its elements are what they happen to be.
func roomy[E any](s []E, n int) []E { return slices.Grow(s[:0], n)[:n] }

// mix returns a number that looks random, and depends on a and b only: the order in which equal
// ones have their turn.
func mix(a, b int32) uint32 {
	h := uint32(a)*0x9e3779b1 ^ uint32(b)*0x85ebca77
	h = (h ^ h>>15) * 0x2c1b3c6d
	h = (h ^ h>>12) * 0x297a2d39
	return h ^ h>>15
}
