//go:build unix

package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/backendtest"
	"github.com/f8949c05/orchestrator/replica/memory"
)

// serve serves a table until the test ends.
func serve(t *testing.T) (*memory.Table, remote) {
	t.Helper()
	table := memory.New()
	s := httptest.NewServer(server{table})
	t.Cleanup(s.Close)
	return table, remote(s.URL)
}

// A table behind HTTP keeps every clause of the contract.
func TestTable_Contract(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Store {
		table, b := serve(t)
		return backendtest.Store{
			Open:     func() replica.Backend { return b },
			Recreate: table.Truncate,
			Drop:     func(id uint64) { table.Edit(func(r *memory.Records) { clear(r.Members[id].Orders) }) },
		}
	})
}

func TestTable_ErrorsKeepTheirMeaning(t *testing.T) {
	table, b := serve(t)
	for _, want := range append(known, errors.New("disk full")) {
		err := fmt.Errorf("table t: %w", want)
		table.SetFaults(func(replica.Update) memory.Fault { return memory.Fault{Err: err} })
		_, err = b.Read(t.Context(), replica.Query{})
		require.ErrorContains(t, err, "table t: "+want.Error())
		for _, other := range known {
			require.Equal(t, errors.Is(want, other), errors.Is(err, other))
		}
	}
}

func TestTable_BadRequestsAreRefused(t *testing.T) {
	_, b := serve(t)
	_, err := (b + "/other").Read(t.Context(), replica.Query{})
	require.ErrorContains(t, err, "404 Not Found")
	resp, err := http.Post(string(b)+"/read", "", strings.NewReader("{}"))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
}
