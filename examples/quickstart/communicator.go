// The Communicator: how the leader calls a worker. handler.go is the server.

package main

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

	"github.com/f8949c05/orchestrator"
)

// The protocol of both sides. Any other status means that the outcome is unknown,
// which is always a safe answer.
const (
	epochHeader  = "Orchestrator-Epoch"
	numberHeader = "Orchestrator-Term"

	statusStopping = http.StatusAccepted
	statusStale    = http.StatusConflict
	statusDeposed  = http.StatusPreconditionFailed
	statusRejected = http.StatusUnprocessableEntity
	maxMessage     = 1 << 20 // bytes
)

// member is a worker. The last element of its URL is different for every process, so
// a call for an ended process never reaches another process on the same port.
type member struct{ Name, URL string }

func (m member) String() string { return m.Name }

// communicator calls workers over HTTP, in JSON.
type communicator struct{ client *http.Client }

var _ orchestrator.Communicator[member, endpoint] = communicator{}

func (c communicator) List(ctx context.Context, m member) ([]endpoint, error) {
	var tasks []endpoint
	err := c.call(ctx, m, "list", nil, &tasks)
	return tasks, err
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
		return err // may be done
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
	return errors.New(http.StatusText(status))
}
