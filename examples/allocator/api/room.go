package api

// How much memory all requests hold together.

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// Reservations of a request. gRPC holds a message twice for a short
// time, encoded and decoded.
const (
	itemRoom  = 2 << 20  // to read an item, of which only the content is held afterwards; or for a page
	storeRoom = 4 << 20  // to read an item and to send another
	fleetRoom = 16 << 20 // for the names of a hundred thousand tasks
	adminRoom = 2 << 20  // to compress metrics
)

// freeBytes of a content take no room, so contents that are never finished do not keep out short
// ones. The number of connections bounds what they take.
const freeBytes = 32 << 10

// quantum is how long a client may send or read while its request holds room for which others wait.
const quantum = 100 * time.Millisecond

var (
	// errBusy reports that other requests hold all the memory.
	errBusy = errors.New("no memory left for the request")
	// errSlow reports that a request has given way.
	errSlow = errors.New("client too slow while other requests wait for memory")
)

// room is memory that requests share. If a request waits for some, those give way that wait for
// their clients, longest first.
type room struct {
	free *semaphore.Weighted
	mu   sync.Mutex
	slow []*hold // they wait for their clients, longest first
}

func newRoom(bytes int64) *room { return &room{free: semaphore.NewWeighted(bytes)} }

// hold is room that a request holds.
type hold struct {
	of    *room
	bytes int64
	since time.Time // when the request began to wait for its client
	cut   func()    // ends that wait
}

// take waits for room, at most for the timeout of a request.
func (x *exchange) take(of *room, bytes int64) (*hold, error) {
	ctx, cancel := context.WithTimeout(x.r.Context(), timeout)
	defer cancel()
	if !of.free.TryAcquire(bytes) {
		go func() {
			tick := time.NewTicker(quantum / 2)
			defer tick.Stop()
			for ctx.Err() == nil {
				of.cut(bytes)
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		}()
		if of.free.Acquire(ctx, bytes) != nil {
			return nil, errBusy
		}
	}
	h := &hold{of: of, bytes: bytes}
	x.holds = append(x.holds, h)
	return h, nil
}

// cut makes requests give way until they hold the given number of bytes.
func (r *room) cut(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.slow) > 0 && bytes > 0 && time.Since(r.slow[0].since) >= quantum {
		bytes -= r.slow[0].bytes
		r.slow[0].cut() // under the lock: later it could meet the next request of the connection
		r.slow = r.slow[1:]
	}
}

// waits records that the request waits for its client, until shrink. cut must end that wait, and not block.
func (h *hold) waits(cut func()) {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	if h.bytes > 0 {
		h.since, h.cut = time.Now(), cut
		h.of.slow = append(h.of.slow, h)
	}
}

// shrink releases all but the given number of bytes.
func (h *hold) shrink(bytes int64) {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	h.of.slow = slices.DeleteFunc(h.of.slow, func(other *hold) bool { return other == h })
	if bytes < h.bytes {
		h.of.free.Release(h.bytes - bytes)
		h.bytes = bytes
	}
}

// release releases the room of the request.
func (x *exchange) release() {
	for _, h := range x.holds {
		h.shrink(0)
	}
	x.holds = nil
}

// within calls f with a timeout and with room for what it reads. f returns how many bytes the
// request holds until it ends.
func (x *exchange) within(bytes int64, f func(context.Context) (held int, err error)) error {
	ctx, cancel := context.WithTimeout(x.r.Context(), timeout)
	defer cancel()
	h, err := x.take(x.api.read, bytes)
	if err != nil {
		return err
	}
	held, err := f(ctx)
	if h.shrink(int64(held)); x.begun {
		h.waits(x.giveWay)
	}
	return err
}

// receive reads the content of a request. It is nil if it is empty.
func (x *exchange) receive() (content []byte, err error) {
	defer func() {
		if err != nil {
			x.Header().Set("Connection", "close") // the rest of the content is not read, also by the server
			_ = http.NewResponseController(x).SetReadDeadline(time.Now())
		}
	}()
	size := x.r.ContentLength
	tooLarge := refuse(http.StatusRequestEntityTooLarge, "content may have at most %d bytes", MaxContent)
	switch coding := x.r.Header.Get("Content-Encoding"); {
	case coding != "" && !strings.EqualFold(coding, "identity"):
		return nil, refuse(http.StatusUnsupportedMediaType, "Content-Encoding is not supported")
	case size > MaxContent:
		return nil, tooLarge
	case size < 0:
		size = MaxContent + 1 // one more than allowed
	}
	b := &body{Reader: x.r.Body, control: http.NewResponseController(x), end: time.Now().Add(bodyTime)}
	if content, err = b.fill(make([]byte, 0, min(size, freeBytes))); err == nil && size > freeBytes {
		var h *hold
		if h, err = x.take(x.api.received, size); err != nil {
			return nil, err
		}
		h.waits(b.giveWay)
		content, err = b.fill(append(make([]byte, 0, size), content...))
		h.shrink(size)
	}
	switch {
	case b.late.Load() || errors.Is(err, os.ErrDeadlineExceeded):
		return nil, refuse(http.StatusRequestTimeout, "the content took too long to arrive")
	case err != nil && !errors.Is(err, io.EOF):
		return nil, refuse(http.StatusBadRequest, "the content ended early")
	case len(content) > MaxContent:
		return nil, tooLarge
	case len(content) == 0:
		return nil, nil
	}
	return content, nil
}

// body is a content as its client sends it.
type body struct {
	io.Reader
	control *http.ResponseController
	end     time.Time
	late    atomic.Bool // it gives way
}

// fill appends to content until its capacity is used or the body ends, with io.EOF.
func (b *body) fill(content []byte) ([]byte, error) {
	for len(content) < cap(content) {
		// Set the deadline before each read, because the server removes it at the end
		// of the body.
		_ = b.control.SetReadDeadline(time.Now().Add(min(stallTime, time.Until(b.end)))) // a test recorder has no deadline
		if b.late.Load() {
			return content, errSlow
		}
		n, err := b.Read(content[len(content):cap(content)])
		if content = content[:len(content)+n]; err != nil {
			return content, err
		}
	}
	return content, nil
}

// giveWay ends the reads of the body.
func (b *body) giveWay() {
	b.late.Store(true)
	_ = b.control.SetReadDeadline(time.Now())
}
