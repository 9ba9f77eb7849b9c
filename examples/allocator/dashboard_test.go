package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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

// The command works on a fleet while its leader is killed, or says what is wrong.
func TestOrchctl_WhileTheLeaderIsKilled(t *testing.T) {
	server := startEtcd(t, embed.Config{})
	fleet := map[string]*process{}
	var servers []string
	for _, name := range []string{"a", "b", "c"} {
		p, address := startBoard(t, name, server)
		fleet[name] = p
		servers = append(servers, address)
	}
	for _, p := range fleet {
		for name := range fleet {
			p.line(name + " joined")
		}
	}
	for _, id := range []string{"1", "2", "3", "4", "5", "6"} {
		require.Equal(t, http.StatusCreated, fleet["a"].ask("PUT", "/work/item"+id, "x", nil))
	}
	fleet["a"].shares(2, 2, 2)
	var before workers
	require.Equal(t, http.StatusOK, fleet["a"].ask("GET", "/workers", "", &before))
	leader := fleet[before.Leader]
	delete(fleet, before.Leader)
	var drained, stays *process
	for _, p := range fleet {
		drained, stays = stays, p
	}

	program := filepath.Join(t.TempDir(), "orchctl")
	text, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", program, "github.com/f8949c05/orchestrator/cmd/orchctl").CombinedOutput()
	require.NoError(t, err, "%s", text)
	orchctl := func(ctx context.Context, args ...string) (code int, out, errs string) {
		cmd := exec.CommandContext(ctx, program, append([]string{"-server", strings.Join(servers, ",")}, args...)...)
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Error(err)
		}
		return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
	}
	commands := [][]string{{"status"}, {"why", "item1"}, {"what-if", "-lose", stays.name}}
	for _, args := range commands {
		code, _, errs := orchctl(t.Context(), args...)
		require.Zero(t, code, errs)
	}

	leader.signal(syscall.SIGKILL)
	ended := make(chan string, 1)
	go func() {
		pause := time.NewTicker(interval / 10)
		defer pause.Stop()
		for deadline := time.Now().Add(timeout); ; <-pause.C {
			code, out, errs := orchctl(t.Context(), "drain", "-yes", "-wait", timeout.String(), drained.name)
			if code != 4 || time.Now().After(deadline) { // 4: nobody leads yet
				ended <- out + errs
				return
			}
		}
	}()
	pause := time.NewTicker(interval / 10)
	defer pause.Stop()
	for works := false; !works; <-pause.C {
		works = true
		for _, args := range commands {
			began := time.Now()
			code, _, errs := orchctl(t.Context(), args...)
			require.Less(t, time.Since(began), timeout, args)
			if works = works && code == 0; code != 0 {
				require.Equal(t, 4, code, errs)
				require.Equal(t, 1, strings.Count(errs, "\n"), errs)
			}
		}
	}
	require.Contains(t, <-ended, "empty")
	require.Empty(t, drained.runs())
	require.Len(t, stays.runs(), 6)

	// The drain outlives its leader: the next one finds it in etcd.
	code, out, errs := orchctl(t.Context(), "worker", drained.name)
	require.Zero(t, code, errs)
	require.Contains(t, out, "draining")
	code, _, errs = orchctl(t.Context(), "undrain", drained.name)
	require.Zero(t, code, errs)
	stays.shares(3, 3)
}
