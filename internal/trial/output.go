package trial

import (
	"bytes"
	"sync"
)

// Output keeps the end of what is written to it. The zero value is empty.
type Output struct {
	mu   sync.Mutex
	text []byte
}

const keptOutput = 8 << 10

// Write takes more. It never fails.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	if len(o.text) > 2*keptOutput {
		o.text = bytes.Clone(o.text[len(o.text)-keptOutput:])
	}
	return len(p), nil
}

// Tail returns the end.
func (o *Output) Tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text[max(0, len(o.text)-keptOutput):])
}
