package communicatortest

// The proof that the kit can test a transport over a real network: a reference
// behind net/http.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// request and response are the messages on the wire.
type request struct {
	Op           string
	Worker, Task string
	Term         *orchestrator.Term
	Pins         bool // the caller collects pins
}

type response struct {
	Tasks                    []string
	Pinned                   int
	Err                      string
	Rejected, Stale, Deposed bool
}

// overHTTP is the client.
type overHTTP struct {
	client *http.Client
	url    string
}

func (c overHTTP) List(ctx context.Context, worker string) ([]string, error) {
	return c.call(ctx, request{Op: "list", Worker: worker, Pins: orchestrator.Pin(ctx, 0)})
}

func (c overHTTP) Add(ctx context.Context, worker, task string) error {
	_, err := c.call(ctx, request{Op: "add", Worker: worker, Task: task})
	return err
}

func (c overHTTP) Remove(ctx context.Context, worker, task string) error {
	_, err := c.call(ctx, request{Op: "remove", Worker: worker, Task: task})
	return err
}

func (c overHTTP) call(ctx context.Context, q request) ([]string, error) {
	if term, ok := orchestrator.TermFromContext(ctx); ok {
		q.Term = &term
	}
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	answer, err := c.client.Do(post)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	var a response
	if err := json.NewDecoder(answer.Body).Decode(&a); err != nil {
		return nil, err
	}
	switch {
	case a.Deposed:
		return nil, fmt.Errorf("%w: %s", orchestrator.ErrDeposed, a.Err)
	case a.Stale:
		return nil, fmt.Errorf("%w: %s", orchestrator.ErrStale, a.Err)
	case a.Rejected:
		return nil, fmt.Errorf("%w: %s", orchestrator.ErrRejected, a.Err)
	case a.Err != "":
		return nil, errors.New(a.Err)
	}
	orchestrator.Pin(ctx, a.Pinned)
	return a.Tasks, nil
}

// handler is the server.
func handler(workers orchestrator.Communicator[string, string]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q request
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ctx := r.Context()
		if q.Term != nil {
			ctx = orchestrator.ContextWithTerm(ctx, *q.Term)
		}
		var a response
		var err error
		switch q.Op {
		case "list":
			if q.Pins {
				ctx = orchestrator.ContextWithPins(ctx, func(n int) { a.Pinned = n })
			}
			a.Tasks, err = workers.List(ctx, q.Worker)
		case "add":
			err = workers.Add(ctx, q.Worker, q.Task)
		default:
			err = workers.Remove(ctx, q.Worker, q.Task)
		}
		if err != nil {
			a.Err = err.Error()
			a.Rejected = errors.Is(err, orchestrator.ErrRejected)
			a.Stale = errors.Is(err, orchestrator.ErrStale)
			a.Deposed = errors.Is(err, orchestrator.ErrDeposed)
		}
		_ = json.NewEncoder(w).Encode(a) // an error means that the caller no longer waits
	}
}

// newOverHTTP returns a cluster behind its own server.
func newOverHTTP(t *testing.T, broken bug) Cluster[string, string] {
	c := newReference(broken)
	server := httptest.NewServer(handler(c.Communicator))
	t.Cleanup(server.Close)
	c.Communicator = overHTTP{server.Client(), server.URL}
	c.Timeout = time.Second
	return c
}

func TestRunOverHTTP(t *testing.T) {
	Run(t, func(t *testing.T) Cluster[string, string] { return newOverHTTP(t, "") })
}

func TestFindsOverHTTPWhatLandsLate(t *testing.T) {
	for _, c := range checks[string, string]() {
		if c.name() == "C7/DelayedPastList" {
			r := record(t.Context(), func(r tb) { c.run(r, newOverHTTP(t, fenceOnArrival)) })
			require.Contains(t, r.failure, "C7: ")
			require.Contains(t, r.failure, "must never land")
		}
	}
}
