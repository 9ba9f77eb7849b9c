package simulator

// Chance: every draw is a function of the seed and of what is drawn for, never
// of what was drawn before.

import "time"

// dice is a generator for one purpose. It is made anew for each: two draws for
// different purposes have nothing to do with one another, so that a run that
// leaves one of them out changes nothing else.
type dice struct{ state uint64 }

// throw returns the dice of a seed for a purpose.
func throw(seed uint64, purpose string, numbers ...uint64) dice {
	d := dice{seed}
	d.next()
	d.text(purpose)
	for _, n := range numbers {
		d.state ^= n
		d.next()
	}
	return d
}

// text mixes in a name.
func (d *dice) text(s string) {
	const prime = 0x100000001b3
	h := uint64(0xcbf29ce484222325)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * prime
	}
	d.state ^= h
	d.next()
}

// next returns 64 random bits, by splitmix64.
func (d *dice) next() uint64 {
	d.state += 0x9e3779b97f4a7c15
	z := d.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	d.state ^= z << 1
	return z
}

// upTo returns a number from 0 to n-1.
func (d *dice) upTo(n int) int { return int(d.next() % uint64(n)) }

// oneTo returns a number from 1 to n.
func (d *dice) oneTo(n int) int { return 1 + d.upTo(n) }

// unit returns a number in [0, 1).
func (d *dice) unit() float64 { return float64(d.next()>>11) / (1 << 53) }

// chance is true with probability p.
func (d *dice) chance(p float64) bool { return d.unit() < p }

// between returns a duration from least up to most.
func (d *dice) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.unit()*float64(most-least))
}

// among returns one of the choices.
func among[V any](d *dice, choices ...V) V { return choices[d.upTo(len(choices))] }
