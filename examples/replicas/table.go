package main

// The table of the replicas behind HTTP: for each Sync a POST, with an Update as JSON that
// a View answers.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
)

const (
	maxUpdate = 1 << 20
	maxView   = 16 << 20
)

// The errors that a replica must recognize, by the status that stands for each.
var statuses = map[int]error{
	http.StatusBadRequest: orchestrator.ErrInvalid,
	http.StatusConflict:   replica.ErrForeign,
	http.StatusGone:       replica.ErrRetired,
}

// table serves a backend.
type table struct {
	backend replica.Backend
	away    atomic.Bool // every call is cut off
}

func newTable() *table { return &table{backend: memory.New()} }

// ServeHTTP carries out a Sync.
func (t *table) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if t.away.Load() {
		panic(http.ErrAbortHandler) //nolint:forbidigo // so net/http closes the connection
	}
	var u replica.Update
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxUpdate)).Decode(&u); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	v, err := t.backend.Sync(r.Context(), u)
	if err != nil {
		status := http.StatusInternalServerError
		for s, known := range statuses {
			if errors.Is(err, known) {
				status = s
			}
		}
		http.Error(w, err.Error(), status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // fails if the client has gone
}

// tableClient is a [replica.Backend] that calls a table.
type tableClient struct {
	url    string
	client *http.Client
}

var _ replica.Backend = (*tableClient)(nil)

func newTableClient(url string) *tableClient {
	return &tableClient{url: url, client: &http.Client{Transport: &http.Transport{}}}
}

// Sync implements [replica.Backend].
func (c *tableClient) Sync(ctx context.Context, u replica.Update) (v replica.View, err error) {
	if err := u.Check(); err != nil { // JSON would repair text that is not UTF-8
		return replica.View{}, fmt.Errorf("sync: %w", err)
	}
	body, err := json.Marshal(u)
	if err != nil {
		return replica.View{}, fmt.Errorf("sync: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return replica.View{}, fmt.Errorf("sync: %w", err)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return replica.View{}, fmt.Errorf("sync: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxView))
	if err != nil {
		return replica.View{}, fmt.Errorf("sync: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		text := strings.TrimSpace(string(answer))
		if known, ok := statuses[resp.StatusCode]; ok {
			return replica.View{}, fmt.Errorf("sync: %w: the table answers %q", known, text)
		}
		return replica.View{}, fmt.Errorf("sync: the table answers %s: %q", resp.Status, text)
	}
	if err := json.Unmarshal(answer, &v); err != nil {
		return replica.View{}, fmt.Errorf("sync: %w", err)
	}
	return v, nil
}
