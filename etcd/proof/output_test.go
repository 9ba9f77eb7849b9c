package proof_test

import (
	"bytes"
	"sync"
)

// lastLines keeps the end of what is written to it.
type lastLines struct {
	mu   sync.Mutex
	text []byte
}

const keptOutput = 8 << 10

func (l *lastLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if len(l.text) > 2*keptOutput {
		l.text = bytes.Clone(l.text[len(l.text)-keptOutput:])
	}
	return len(p), nil
}

func (l *lastLines) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text[max(0, len(l.text)-keptOutput):])
}
