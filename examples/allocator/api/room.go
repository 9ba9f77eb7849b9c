package api

// Limits: how much memory all requests hold together, and how long a client may
// take.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
)

// Reservations of a request in Limits.Memory. gRPC holds a message twice for a short
// time, encoded and decoded.
const (
	contentRoom = 2 << 20  // to read an item; only its content is held afterwards
	storeRoom   = 4 << 20  // to read an item and to send another
	workersRoom = 16 << 20 // to collect the names of a hundred thousand tasks
	metricsRoom = 2 << 20  // for compression
)

// errBusy reports that other requests hold all the memory.
var errBusy = errors.New("no memory left for the request")

// take waits for room. It returns a function that releases all but the given number
// of bytes.
func take(ctx context.Context, from *semaphore.Weighted, room int64) (keep func(bytes int64), err error) {
	if from.Acquire(ctx, room) != nil {
		return nil, errBusy
	}
	return func(bytes int64) {
		if bytes < room {
			from.Release(room - bytes)
			room = bytes
		}
	}, nil
}

// within calls f with a timeout and with room for what it reads. It returns a
// function that releases the room, like that of take. If within fails, it holds no
// room.
func (a *api) within(r *http.Request, room int64, f func(context.Context) error) (keep func(bytes int64), err error) {
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	if keep, err = take(ctx, a.read, room); err != nil {
		return nil, err
	}
	if err := f(ctx); err != nil {
		keep(0)
		return nil, err
	}
	return keep, nil
}

// receive reads the content of a request, or answers with a problem. The content is
// nil if it is empty. receive holds room for the content until free is called.
func (a *api) receive(w http.ResponseWriter, r *http.Request) (content []byte, free func(), ok bool) {
	refuse := func(status int, detail string) ([]byte, func(), bool) {
		w.Header().Set("Connection", "close") // the rest of the content is not read
		a.problem(w, r, status, detail)
		return nil, nil, false
	}
	tooLarge := fmt.Sprintf("content may have at most %d bytes", MaxContent)
	size := r.ContentLength
	switch coding := r.Header.Get("Content-Encoding"); {
	case coding != "" && !strings.EqualFold(coding, "identity"):
		return refuse(http.StatusUnsupportedMediaType, "Content-Encoding is not supported")
	case size > MaxContent:
		return refuse(http.StatusRequestEntityTooLarge, tooLarge)
	case size == 0:
		return nil, func() {}, true
	case size < 0:
		size = MaxContent + 1 // one more than allowed
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	keep, err := take(ctx, a.received, size)
	cancel()
	if err != nil {
		w.Header().Set("Connection", "close")
		a.failed(w, r, err)
		return nil, nil, false
	}
	content, err = a.readAll(w, r, make([]byte, size))
	switch {
	case err == nil && len(content) == 0:
		keep(0)
		return nil, func() {}, true
	case err == nil && len(content) <= MaxContent:
		return content, func() { keep(0) }, true
	}
	keep(0)
	switch {
	case err == nil:
		return refuse(http.StatusRequestEntityTooLarge, tooLarge)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(http.StatusRequestTimeout, "the content took too long to arrive")
	default:
		return refuse(http.StatusBadRequest, "the content ended early")
	}
}

// readAll reads a body until it ends or buffer into is full.
func (a *api) readAll(w http.ResponseWriter, r *http.Request, into []byte) ([]byte, error) {
	control := http.NewResponseController(w)
	end := time.Now().Add(a.Limits.Body)
	for n := 0; ; {
		if n == len(into) {
			return into, nil
		}
		// Set the deadline before each read, because the server removes it at the end
		// of the body.
		_ = control.SetReadDeadline(earlier(time.Now().Add(a.Limits.Stall), end)) // a test recorder has no deadline
		m, err := r.Body.Read(into[n:])
		n += m
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, err
		case errors.Is(err, io.EOF):
			return into[:n], nil
		case err != nil:
			return nil, err
		}
	}
}

// pacedWriter disconnects a client that stalls.
type pacedWriter struct {
	http.ResponseWriter
	limits Limits
	end    time.Time // of the whole answer; zero until it begins
}

// piece is the number of bytes that share a deadline.
const piece = 16 << 10

// Write writes p in pieces, each with its own deadline.
func (w *pacedWriter) Write(p []byte) (written int, err error) {
	if w.end.IsZero() {
		w.end = time.Now().Add(w.limits.Answer)
	}
	control := http.NewResponseController(w.ResponseWriter)
	for {
		_ = control.SetWriteDeadline(earlier(time.Now().Add(w.limits.Stall), w.end)) // a test recorder has no deadline
		n, err := w.ResponseWriter.Write(p[:min(len(p), piece)])
		written, p = written+n, p[n:]
		if err != nil || len(p) == 0 {
			return written, err
		}
	}
}

// Unwrap supports http.ResponseController.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
