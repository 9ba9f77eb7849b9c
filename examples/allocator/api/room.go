package api

// Room and time: how much memory requests hold together, and how long a client
// may take for its part.

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

// What a request holds of Limits.Memory. gRPC has a message twice for a short
// time: as it is on the wire, and as what it says.
const (
	contentRoom = 2 << 20  // to read an item; afterwards it holds its content alone
	storeRoom   = 4 << 20  // to read an item, and to send another one
	workersRoom = 16 << 20 // to collect the names of a hundred thousand tasks
	metricsRoom = 2 << 20  // to compress
)

// errBusy reports that other requests hold all the memory there is.
var errBusy = errors.New("no room for the request")

// take waits for room. It returns a function that gives back all but the bytes
// that it is called with.
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

// within calls f with a limited time, and with room for what it reads. It returns
// a function that gives the room back, as that of take does; if it fails, none is
// held.
func (a *api) within(r *http.Request, room int64, f func(context.Context) error) (keep func(bytes int64), err error) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
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

// receive reads the content of a request, which is nil if it has no bytes, or
// answers what is wrong with it. It holds room for the content until free is
// called.
func (a *api) receive(w http.ResponseWriter, r *http.Request) (content []byte, free func(), ok bool) {
	refuse := func(status int, detail string) ([]byte, func(), bool) {
		w.Header().Set("Connection", "close") // what comes of the content is not read
		a.problem(w, r, status, detail)
		return nil, nil, false
	}
	tooLarge := fmt.Sprintf("content has at most %d bytes", MaxContent)
	size := r.ContentLength
	switch coding := r.Header.Get("Content-Encoding"); {
	case coding != "" && !strings.EqualFold(coding, "identity"):
		return refuse(http.StatusUnsupportedMediaType, "content is taken as it is: send it without Content-Encoding")
	case size > MaxContent:
		return refuse(http.StatusRequestEntityTooLarge, tooLarge)
	case size == 0:
		return nil, func() {}, true
	case size < 0:
		size = MaxContent + 1 // one more than there may be
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
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

// readAll reads a body until it ends or into is full.
func (a *api) readAll(w http.ResponseWriter, r *http.Request, into []byte) ([]byte, error) {
	control := http.NewResponseController(w)
	end := time.Now().Add(a.Limits.Body)
	for n := 0; ; {
		if n == len(into) {
			return into, nil
		}
		// Before each read: at the end of the body, the server takes the deadline away.
		_ = control.SetReadDeadline(earlier(time.Now().Add(a.Limits.Stall), end)) // a recorder has none
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

// pacedWriter is an answer to a client that is cut off when it stalls.
type pacedWriter struct {
	http.ResponseWriter
	limits Limits
	end    time.Time // of the whole answer; zero until it begins
}

// piece is how much of an answer has one deadline.
const piece = 16 << 10

// Write writes piece by piece, each with a deadline of its own.
func (w *pacedWriter) Write(p []byte) (written int, err error) {
	if w.end.IsZero() {
		w.end = time.Now().Add(w.limits.Answer)
	}
	control := http.NewResponseController(w.ResponseWriter)
	for {
		_ = control.SetWriteDeadline(earlier(time.Now().Add(w.limits.Stall), w.end)) // a recorder has none
		n, err := w.ResponseWriter.Write(p[:min(len(p), piece)])
		written, p = written+n, p[n:]
		if err != nil || len(p) == 0 {
			return written, err
		}
	}
}

// Unwrap is for http.ResponseController.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
