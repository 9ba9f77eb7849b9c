package proctest

import (
	"bytes"
	"sync"
)

// Output keeps the last 8 KiB written to it. The zero value is empty.
type Output struct {
	mu   sync.Mutex
	text []byte
}

const keptOutput = 8 << 10

// Write appends p. It never fails.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	if len(o.text) > 2*keptOutput {
		o.text = bytes.Clone(o.text[len(o.text)-keptOutput:])
	}
	return len(p), nil
}

// Tail returns the text that is kept.
func (o *Output) Tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text[max(0, len(o.text)-keptOutput):])
}
