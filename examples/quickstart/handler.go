// The server side of the Communicator: a worker's HTTP handler.

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

// runner is the part of worker.Worker that a transport calls.
type runner interface {
	List(ctx context.Context) ([]endpoint, error)
	Add(ctx context.Context, e endpoint) error
	Remove(ctx context.Context, e endpoint) error
}

// newHandler serves the calls of a communicator below path. The worker keeps the
// contract. The handler only passes it the call's context, which carries the term
// and ends when the leader stops waiting, and returns its answer.
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
		_ = json.NewEncoder(w).Encode(out) // on an error the leader has gone, and will call again
	}
}

// decode reads a body to its end. net/http notices that a client has gone only after
// that.
func decode(body io.Reader, e *endpoint) error {
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, e)
}

// withTerm returns the request's context with the request's term, if it has one.
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
