// The other end of the Communicator: a worker's HTTP handler.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/f8949c05/orchestrator"
)

// runner is what a worker.Worker does for its transport.
type runner interface {
	List(ctx context.Context) ([]endpoint, error)
	Add(ctx context.Context, e endpoint) error
	Remove(ctx context.Context, e endpoint) error
}

// newHandler answers the calls of a communicator below path. What makes the
// contract hold is the worker's doing; all that is left to do here is to hand it
// the call's context, which ends when the leader stops waiting, with the term in
// it, and to hand back what it says.
func newHandler(path string, tasks runner) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+path+"/list", handle(func(ctx context.Context, _ endpoint) (any, error) {
		return tasks.List(ctx)
	}))
	mux.HandleFunc("POST "+path+"/add", handle(func(ctx context.Context, e endpoint) (any, error) {
		return nil, tasks.Add(ctx, e)
	}))
	mux.HandleFunc("POST "+path+"/remove", handle(func(ctx context.Context, e endpoint) (any, error) {
		return nil, tasks.Remove(ctx, e)
	}))
	return mux
}

func handle(call func(context.Context, endpoint) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var e endpoint
		ctx, err := withTerm(r)
		if err == nil {
			err = decode(http.MaxBytesReader(w, r.Body, maxMessage), &e)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		out, err := call(ctx, e)
		if err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
		_ = json.NewEncoder(w).Encode(out) // the leader is gone: it will ask again
	}
}

// decode reads a body to its end, which is what net/http waits for before it
// looks out for a caller that has gone away.
func decode(body io.Reader, e *endpoint) error {
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, e)
}

// withTerm returns the request's context with the term that it carries. A
// request without one is none of a term's.
func withTerm(r *http.Request) (context.Context, error) {
	if r.Header.Get(epochHeader) == "" {
		return r.Context(), nil
	}
	epoch, err1 := strconv.ParseUint(r.Header.Get(epochHeader), 10, 64)
	number, err2 := strconv.ParseUint(r.Header.Get(numberHeader), 10, 64)
	term := orchestrator.Term{Epoch: epoch, Number: number}
	return orchestrator.ContextWithTerm(r.Context(), term), errors.Join(err1, err2)
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, orchestrator.ErrStopping):
		return statusStopping
	case errors.Is(err, orchestrator.ErrStale): // before ErrRejected, which it wraps
		return statusStale
	case errors.Is(err, orchestrator.ErrDeposed):
		return statusDeposed
	case errors.Is(err, orchestrator.ErrRejected):
		return statusRejected
	}
	return http.StatusInternalServerError
}
