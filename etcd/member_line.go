package etcd

import (
	"context"
	"sync/atomic"
)

// line limits the volume of contents that a member reads at a time. Keepalives and
// writes share the connection, so unlimited reads could delay them past the lease.
// The size of a content is unknown before it arrives, so a line assumes the largest
// recent size.
type line struct {
	room  chan struct{} // holds one token for each part in use
	turn  chan struct{} // held while taking parts, so that two calls cannot block each other
	parts atomic.Int64  // number of parts of the next read
}

const (
	// lineBytes is the total size of all parts.
	lineBytes = 2 << 20
	// lineParts is the number of parts, and so the maximum number of reads.
	lineParts = 64
	// mostParts is the maximum number of parts of a read, and the number if no size
	// is known. Two such reads fit.
	mostParts = lineParts / 2
)

func newLine() *line {
	l := &line{room: make(chan struct{}, lineParts), turn: make(chan struct{}, 1)}
	l.parts.Store(mostParts)
	return l
}

// enter waits until another content may be read, in the order of the calls. The
// caller calls leave once, after the read.
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

// learn records the size of a content. A larger size counts immediately; a smaller
// one reduces the number of parts by one.
func (l *line) learn(size int) {
	parts := int64(min(1+size*lineParts/lineBytes, mostParts))
	for {
		known := l.parts.Load()
		if l.parts.CompareAndSwap(known, max(parts, known-1)) {
			return
		}
	}
}
