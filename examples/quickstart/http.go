package main

// The transport: the leader's Communicator, and the worker's handler. To use it, copy
// this file and replace endpoint by your type of tasks. It needs only net/http. It has
// no authentication: add TLS and a token before it leaves a trusted network.
//
// Five rules make a transport correct:
//
//   - An answer means what it says. An error whose outcome is unknown is not
//     ErrRejected, because the leader then starts the task elsewhere. An error is never
//     an empty list, because the leader then starts all of the worker's tasks elsewhere.
//   - The leader's term travels with each call, so that a worker can refuse the calls
//     of a deposed leader. worker.Worker compares the terms.
//   - The context of the call ends the handler's work: it ends when the leader stops
//     waiting. The orchestrator sets the timeout.
//   - A call for an ended process never reaches its successor.
//   - The pins of a list travel with it: jobs that run must not be moved. The leader's end
//     says whether it collects them, so that a worker knows.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/f8949c05/orchestrator"
)

// The protocol. Any other status means that the outcome is unknown, which is always a
// safe answer.
const (
	epochHeader  = "Orchestrator-Epoch"
	numberHeader = "Orchestrator-Term"

	statusStopping = http.StatusAccepted
	statusStale    = http.StatusConflict
	statusDeposed  = http.StatusPreconditionFailed
	statusRejected = http.StatusUnprocessableEntity

	maxMessage  = 1 << 20 // bytes; a longer list of tasks is an error
	readTimeout = 10 * time.Second
)

// member is a worker. The last element of its URL is different for each process.
type member struct{ Name, URL string }

func (m member) String() string { return m.Name }

// communicator calls workers over HTTP, in JSON.
type communicator struct{ client *http.Client }

var _ orchestrator.Communicator[member, endpoint] = communicator{}

// newCommunicator returns a communicator that uses no proxy and follows no redirect:
// a call goes to its worker or fails. net/http never repeats a POST that may have
// arrived.
func newCommunicator() communicator {
	return communicator{client: &http.Client{
		Transport:     &http.Transport{IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// list is the answer to a call of List. The last Pinned tasks must not be moved.
type list struct {
	Tasks  []endpoint
	Pinned int
}

func (c communicator) List(ctx context.Context, m member) ([]endpoint, error) {
	var answer list
	collects := orchestrator.Pin(ctx, 0)
	if err := c.call(ctx, m, "list", collects, &answer); err != nil {
		return nil, err
	}
	if answer.Tasks == nil {
		return nil, errors.New("the answer has no list") // not an empty one
	}
	orchestrator.Pin(ctx, answer.Pinned)
	return answer.Tasks, nil
}

func (c communicator) Add(ctx context.Context, m member, e endpoint) error {
	return c.call(ctx, m, "add", e, nil)
}

func (c communicator) Remove(ctx context.Context, m member, e endpoint) error {
	return c.call(ctx, m, "remove", e, nil)
}

func (c communicator) call(ctx context.Context, m member, method string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL+"/"+method, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if term, ok := orchestrator.TermFromContext(ctx); ok {
		req.Header.Set(epochHeader, strconv.FormatUint(term.Epoch, 10))
		req.Header.Set(numberHeader, strconv.FormatUint(term.Number, 10))
	}
	resp, err := c.client.Do(req)
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return fmt.Errorf("%w: %w", orchestrator.ErrRejected, err) // never sent, so certainly not done
	} else if err != nil {
		return err // the worker may have done it
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, maxMessage))
	switch {
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%w: %s", errorOf(resp.StatusCode), bytes.TrimSpace(answer))
	case err != nil || out == nil:
		return err
	}
	return json.Unmarshal(answer, out)
}

func errorOf(status int) error {
	switch status {
	case statusStopping:
		return orchestrator.ErrStopping
	case statusStale:
		return orchestrator.ErrStale
	case statusDeposed:
		return orchestrator.ErrDeposed
	case statusRejected:
		return orchestrator.ErrRejected
	}
	return fmt.Errorf("answer with status %d", status)
}

// runner is the part of worker.Worker that a transport calls.
type runner interface {
	List(ctx context.Context) ([]endpoint, error)
	Add(ctx context.Context, e endpoint) error
	Remove(ctx context.Context, e endpoint) error
}

// newHandler serves the calls of a communicator below path. tasks keeps the contract.
func newHandler(path string, tasks runner) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+path+"/list", handle(func(ctx context.Context, collects bool) (any, error) {
		var answer list
		var err error
		if collects {
			ctx = orchestrator.ContextWithPins(ctx, func(n int) { answer.Pinned = n })
		}
		answer.Tasks, err = tasks.List(ctx)
		return answer, err
	}))
	mux.HandleFunc("POST "+path+"/add", handle(func(ctx context.Context, e endpoint) (any, error) {
		return nil, tasks.Add(ctx, e)
	}))
	mux.HandleFunc("POST "+path+"/remove", handle(func(ctx context.Context, e endpoint) (any, error) {
		return nil, tasks.Remove(ctx, e)
	}))
	return mux
}

func handle[In any](call func(context.Context, In) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout)) // net/http removes it at the end of the body
		ctx, err := withTerm(r)
		if err == nil {
			err = decode(http.MaxBytesReader(w, r.Body, maxMessage), &in)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		out, err := call(ctx, in)
		if err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
		_ = json.NewEncoder(w).Encode(out) // if it fails, the leader has gone, and calls again
	}
}

// decode reads a body to its end. net/http notices that a client has gone only after
// that.
func decode(body io.Reader, in any) error {
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, in)
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
