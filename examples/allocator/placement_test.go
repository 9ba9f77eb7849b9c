package main

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/examples/allocator/api"
	"github.com/f8949c05/orchestrator/replica/etcd/embed"
)

// Items run where labels and limits allow it. An item whose rule changes moves, and stays where
// it is if no process fulfils the rule.
func TestP10_ItemsRunWhereTheyMay(t *testing.T) {
	server := startEtcd(t, embed.Config{})
	a := start(t, "a", "-etcd", server.Endpoint())
	a.line("msg=leads")
	b := start(t, "b", "-etcd", server.Endpoint(), "-labels", "gpu,disk=ssd", "-max-tasks", "2")
	b.line("has joined")
	shows := func(id string, workers []string, waiting ...api.Waiting) {
		t.Helper()
		var got struct {
			Workers []string
			Waiting []api.Waiting
		}
		a.until(func() bool {
			got.Workers, got.Waiting = nil, nil
			require.Equal(t, http.StatusOK, a.ask("GET", "/work/"+id, "", &got))
			return slices.Equal(got.Workers, workers) && slices.Equal(got.Waiting, waiting)
		}, func() string { return id + " is not where it should be" })
	}
	require.Equal(t, http.StatusCreated, a.ask("PUT", "/work/x?requires=gpu", "x", nil))
	require.Equal(t, http.StatusCreated, a.ask("PUT", "/work/y?requires=!gpu", "y", nil))
	require.Equal(t, http.StatusCreated, b.ask("PUT", "/work/z?requires=gpu,disk=ssd", "z", nil))
	shows("x", []string{"b"})
	shows("y", []string{"a"})
	shows("z", []string{"b"})
	require.Equal(t, http.StatusCreated, b.ask("PUT", "/work/full?requires=gpu", "full", nil))
	shows("full", []string{}, api.Waiting{Instances: 1, Reason: "no place", Detail: `of 2 open workers 1 lacks "gpu", 1 has no room`})

	require.Equal(t, http.StatusOK, a.ask("PUT", "/work/x?requires=", "", nil))
	shows("x", []string{"a"}) // it makes room
	shows("full", []string{"b"})
	require.Equal(t, http.StatusOK, a.ask("PUT", "/work/y?requires=tpu", "", nil))
	require.Equal(t, http.StatusCreated, a.ask("PUT", "/work/last?requires=tpu", "last", nil))
	shows("last", []string{}, api.Waiting{Instances: 1, Reason: "no place", Detail: `of 2 open workers 2 lack "tpu"`})
	shows("y", []string{"a"}) // it stays: nothing is stopped without another place
}
