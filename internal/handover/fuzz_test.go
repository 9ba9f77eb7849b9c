package handover_test

import (
	"math/rand/v2"
	"testing"
)

// FuzzMachine is TestRandom with its choices read out of bytes.
func FuzzMachine(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("some changes, and answers to them in some order"))
	f.Add([]byte{255, 0, 255, 0, 128, 64, 32, 16, 8, 4, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		newModel(t, rand.New(&choices{data: data, then: rand.NewPCG(1, 1)}), 0).run()
	})
}

// choices is a source whose first numbers are bytes, so that to change one
// byte changes one choice.
type choices struct {
	data []byte
	then rand.Source
}

// Uint64 implements rand.Source. Numbers below n are made of the upper bits.
func (c *choices) Uint64() uint64 {
	if len(c.data) == 0 {
		return c.then.Uint64()
	}
	b := c.data[0]
	c.data = c.data[1:]
	return uint64(b)<<56 | 1<<55
}
