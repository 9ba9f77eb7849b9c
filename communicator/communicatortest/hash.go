package communicatortest

// The hash that derives random numbers from a call. Unlike hash/maphash, it is the
// same in every process.

import "fmt"

// hash is a 64-bit FNV-1a of its input, and a splitmix64 generator that starts from
// it. FNV alone does not suffice: its upper bits hardly depend on the last bytes.
type hash struct{ state uint64 }

// newHash returns a hash that begins with a seed.
func newHash(seed uint64) *hash {
	h := &hash{0xcbf29ce484222325}
	h.number(seed)
	return h
}

// number adds a number to the input.
func (h *hash) number(n uint64) {
	for range 8 {
		h.octet(byte(n))
		n >>= 8
	}
}

// name adds the text that fmt prints for v, and its length, so that consecutive
// names do not run together.
func (h *hash) name(v any) {
	text := fmt.Append(nil, v)
	for _, b := range text {
		h.octet(b)
	}
	h.number(uint64(len(text)))
}

func (h *hash) octet(b byte) {
	h.state = (h.state ^ uint64(b)) * 0x100000001b3
}

// next returns 64 random bits.
func (h *hash) next() uint64 {
	h.state += 0x9e3779b97f4a7c15
	z := h.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// draw returns a random number in [0, 1).
func (h *hash) draw() float64 { return float64(h.next()>>11) / (1 << 53) }
