package etcd

// How many contents a member reads at a time.

import (
	"context"
	"sync/atomic"
)

// line bounds how much is on its way to a member at once, whatever it reads:
// what keeps its lease alive, and what it writes, is answered over the same
// connection. How large a content is shows only when it is here: a line goes by
// the largest of late.
type line struct {
	room  chan struct{} // holds a token for each part of lineBytes that is taken
	turn  chan struct{} // held by whoever takes parts, so that they do not share the last ones
	parts atomic.Int64  // how many parts the next read takes
}

const (
	// lineBytes is how much may be on its way.
	lineBytes = 2 << 20
	// lineParts is how many reads may be, however small.
	lineParts = 64
	// mostParts is what a read takes of which nothing is known, and at most: two
	// of them fit.
	mostParts = lineParts / 2
)

func newLine() *line {
	l := &line{room: make(chan struct{}, lineParts), turn: make(chan struct{}, 1)}
	l.parts.Store(mostParts)
	return l
}

// enter waits until one more content may be read, in the order of the calls.
// What it returns is called once, when the read is over.
func (l *line) enter(ctx context.Context) (leave func(), err error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	taken := 0
	leave = func() {
		for range taken {
			<-l.room
		}
	}
	for parts := int(l.parts.Load()); taken < parts; taken++ {
		select {
		case l.room <- struct{}{}:
		case <-ctx.Done():
			leave()
			return nil, context.Cause(ctx)
		}
	}
	return leave, nil
}

// learn takes in how large a content was. A large one counts at once, and is
// forgotten slowly.
func (l *line) learn(size int) {
	parts := int64(min(1+size*lineParts/lineBytes, mostParts))
	for {
		known := l.parts.Load()
		if l.parts.CompareAndSwap(known, max(parts, known-1)) {
			return
		}
	}
}
