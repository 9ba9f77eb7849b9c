package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/etcd/embed"
)

// startBoard starts a process with a dashboard, and returns the address of that too.
func startBoard(t *testing.T, name string, server *embed.Server) (p *process, address string) {
	p = start(t, name, "-etcd", server.Endpoint(), "-dashboard", "127.0.0.1:0")
	return p, strings.TrimPrefix(p.line("the dashboard is at "), "the dashboard is at ")
}

func TestD20_ADashboardRefersToTheLeader(t *testing.T) {
	server := startEtcd(t, embed.Config{})
	a, leader := startBoard(t, "a", server)
	a.line("a leads")
	b, other := startBoard(t, "b", server)
	b.line("a joined")
	b.line("a leads")
	ask := func(address string) (int, api.Error) {
		answer, err := b.client.Get(address + "api/v1/status")
		require.NoError(t, err)
		defer answer.Body.Close()
		var problem api.Error
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&problem))
		return answer.StatusCode, problem
	}
	code, _ := ask(leader)
	require.Equal(t, http.StatusOK, code)
	code, problem := ask(other)
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, leader, problem.Leader)
}
