package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// A worker registers again and again, also if the leader is away at first.
func TestWorkersRegisterAgainAndAgain(t *testing.T) {
	arrived := make(chan member)
	failures := 2
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if failures > 0 { // the next one comes after the answer
			failures--
			http.Error(w, "no leader", http.StatusServiceUnavailable)
			return
		}
		var m member
		_ = json.NewDecoder(r.Body).Decode(&m)
		select {
		case arrived <- m:
		case <-r.Context().Done():
		}
	}))
	defer srv.Close()
	ctx, end := context.WithCancel(t.Context())
	first, ended := make(chan struct{}), make(chan struct{})
	m := member{Name: "w1", URL: "http://127.0.0.1:1/w1/1"}
	go func() {
		defer close(ended)
		keepRegistered(ctx, srv.URL, m, func() { close(first) }) // a second call would panic
	}()
	require.Equal(t, m, <-arrived)
	<-first
	for range 2 {
		require.Equal(t, m, <-arrived)
	}
	end()
	<-ended
	http.DefaultClient.CloseIdleConnections()
}
