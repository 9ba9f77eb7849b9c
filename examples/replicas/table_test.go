package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
	"github.com/f8949c05/orchestrator/replica/replicatest"
)

// open returns a client of a table that is served until the test ends.
func open(t *testing.T, server *httptest.Server) *tableClient {
	c := newTableClient(server.URL)
	t.Cleanup(c.client.CloseIdleConnections)
	return c
}

// A backend behind HTTP keeps every clause of the contract.
func TestTable_Conformance(t *testing.T) {
	replicatest.Run(t, func(t *testing.T) replicatest.Store {
		inner := memory.New()
		server := httptest.NewServer(&table{backend: inner})
		t.Cleanup(server.Close)
		return replicatest.Store{
			Open:     func() replica.Backend { return open(t, server) },
			Recreate: func() { inner.Restore(memory.New().Backup()) },
		}
	})
}

// failing is a backend whose Sync fails.
type failing struct{ err error }

func (f failing) Sync(context.Context, replica.Update) (replica.View, error) {
	return replica.View{}, f.err
}

var update = replica.Update{Self: replica.Member{ID: 1, Heartbeat: 1, Lease: time.Second}}

func TestTable_ErrorsKeepTheirMeaning(t *testing.T) {
	known := []error{replica.ErrRetired, replica.ErrForeign, orchestrator.ErrInvalid}
	for _, want := range append(known, errors.New("disk full")) {
		server := httptest.NewServer(&table{backend: failing{fmt.Errorf("table t: %w", want)}})
		_, err := open(t, server).Sync(t.Context(), update)
		require.ErrorContains(t, err, "table t: "+want.Error())
		for _, other := range known {
			require.Equal(t, errors.Is(want, other), errors.Is(err, other))
		}
		server.Close()
	}
}

func TestTable_LongUpdatesAreRefused(t *testing.T) {
	rec := httptest.NewRecorder()
	body := strings.NewReader(`{"Left":[` + strings.Repeat("1,", maxUpdate) + `1]}`)
	newTable().ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/", body))
	require.Equal(t, http.StatusBadRequest, rec.Code)
}

func TestTable_AwayAndBack(t *testing.T) {
	table := newTable()
	server := httptest.NewServer(table)
	defer server.Close()
	c := open(t, server)
	table.away.Store(true)
	_, err := c.Sync(t.Context(), update)
	require.Error(t, err)
	table.away.Store(false)
	v, err := c.Sync(t.Context(), update)
	require.NoError(t, err)
	require.Len(t, v.Members, 1)
}
