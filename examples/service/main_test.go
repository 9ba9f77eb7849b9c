package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/examples/internal/stage/stagetest"
	"github.com/f8949c05/orchestrator/internal/pgtest"
)

func TestMain(m *testing.M) {
	if stagetest.IsProgram() {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// get returns the status and the text of an answer; 0: the process does not listen yet.
func get(t *testing.T, address, path string) (int, string) {
	t.Helper()
	r, err := http.DefaultClient.Get("http://" + address + path)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, string(text)
}

// Three processes on a real database. Each shows the whole fleet, whoever leads.
func TestService(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	s := pgtest.Start(t)
	s.SQL("postgres", "create table tenants (id text primary key, active boolean not null); insert into tenants select 'tenant' || n, true from generate_series(1, 12) n")
	t.Setenv("DATABASE_URL", s.URL(pgtest.User, "postgres"))
	var addresses []string
	var programs []*stagetest.Program
	for range 3 {
		l, err := net.Listen("tcp", "localhost:0")
		require.NoError(t, err)
		addresses = append(addresses, l.Addr().String())
		require.NoError(t, l.Close())
		programs = append(programs, stagetest.Start(t, ".", "-listen", l.Addr().String()))
	}
	shows := func(address string, workers int) func() bool {
		return func() bool {
			code, text := get(t, address, "/dashboard/api/v1/status")
			var status api.Status
			return code == http.StatusOK && json.Unmarshal([]byte(text), &status) == nil &&
				status.Instances.Running == 12 && status.Workers.Answering == workers && status.ProblemsTotal == 0
		}
	}
	leading := 0
	for _, address := range addresses {
		require.Eventually(t, shows(address, 3), time.Minute, 50*time.Millisecond, address)
		for _, probe := range []string{"/livez", "/readyz"} {
			code, text := get(t, address, probe)
			require.Equal(t, http.StatusOK, code, text)
		}
		_, metrics := get(t, address, "/metrics")
		require.Contains(t, metrics, `orchestrator_replica_tasks{state="running"} 4`)
		require.Contains(t, metrics, "orchestrator_replica_members 3")
		for _, other := range addresses {
			_, page := get(t, address, "/dashboard/workers?q="+other)
			require.Contains(t, page, fmt.Sprintf(">%s#", other))
		}
		_, page := get(t, address, "/dashboard/")
		require.Contains(t, page, "All 12 instances run, evenly.")
		var now api.Current
		_, text := get(t, address, "/dashboard/api/v1/progress")
		require.NoError(t, json.Unmarshal([]byte(text), &now))
		if !now.Observed {
			leading++
		}
	}
	require.Equal(t, 1, leading)
	require.NoError(t, programs[0].Process.Signal(syscall.SIGTERM))
	programs[0].Wait(t, 0)
	for _, address := range addresses[1:] {
		require.Eventually(t, shows(address, 2), 30*time.Second, 50*time.Millisecond, address)
	}
	for _, p := range programs[1:] {
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	}
	for _, p := range programs[1:] {
		p.Wait(t, 0)
	}
}
