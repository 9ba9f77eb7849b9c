//go:build unix

package main

// The table of the replicas behind HTTP: for each call a POST, in the encoding of package
// gob, which keeps every byte of a name.

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
)

// known has the errors that a replica must recognize.
var known = []error{replica.ErrEvicted, orchestrator.ErrRejected, orchestrator.ErrInvalid}

// answer is what a call returns.
type answer struct {
	View  replica.View
	Err   string // empty: none
	Known int    // the index in known of the error that Err wraps; -1: none
}

// server serves a table.
type server struct{ *memory.Table }

// ServeHTTP makes one call. The body has its arguments as an Update, of which Read and Wait
// use only the Query.
func (s server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var u replica.Update
	err := gob.NewDecoder(http.MaxBytesReader(w, r.Body, 4*replica.MaxBatchBytes)).Decode(&u)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var a answer
	switch r.URL.Path {
	case "/sync":
		a.View, err = s.Sync(r.Context(), u)
	case "/read":
		a.View, err = s.Read(r.Context(), u.Query)
	case "/wait":
		err = s.Wait(r.Context(), u.Query)
	default:
		http.NotFound(w, r)
		return
	}
	if err != nil {
		a.Err, a.Known = err.Error(), slices.IndexFunc(known, func(k error) bool { return errors.Is(err, k) })
	}
	_ = gob.NewEncoder(w).Encode(a) // fails if the client has gone
}

// remote is a table that a server serves at a URL.
type remote string

var _ interface {
	replica.Backend
	replica.Waiter
} = remote("")

// Sync implements [replica.Backend].
func (r remote) Sync(ctx context.Context, u replica.Update) (replica.View, error) {
	return r.call(ctx, "/sync", u)
}

// Read implements [replica.Backend].
func (r remote) Read(ctx context.Context, q replica.Query) (replica.View, error) {
	return r.call(ctx, "/read", replica.Update{Query: q})
}

// Wait implements [replica.Waiter].
func (r remote) Wait(ctx context.Context, q replica.Query) error {
	_, err := r.call(ctx, "/wait", replica.Update{Query: q})
	return err
}

func (r remote) call(ctx context.Context, path string, u replica.Update) (replica.View, error) {
	var body bytes.Buffer
	if err := gob.NewEncoder(&body).Encode(u); err != nil {
		return replica.View{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, string(r)+path, &body)
	if err != nil {
		return replica.View{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return replica.View{}, err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return replica.View{}, err
	}
	var a answer
	if err := gob.NewDecoder(bytes.NewReader(text)).Decode(&a); err != nil {
		return replica.View{}, fmt.Errorf("the table answers %s: %w", resp.Status, err)
	}
	switch {
	case a.Err == "":
		return a.View, nil
	case a.Known < 0:
		return replica.View{}, errors.New(a.Err)
	}
	return replica.View{}, fmt.Errorf("%w: the table answers %q", known[a.Known], a.Err)
}
