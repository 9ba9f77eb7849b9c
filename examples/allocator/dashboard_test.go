package main

import (
	"errors"
	"net/http"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/dashboard/api"
)

// Each process shows the whole fleet, and names the leader's dashboard. The command orchctl works on any
// of them, also when the leader has been killed.
func TestDashboard_EachProcessAnswers(t *testing.T) {
	f := newFleet(t, false)
	f.args = append(f.args, "-token-file", tokenFile(t))
	f.token = "secret"
	boards := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		boards[name] = f.start(name).address + "/dashboard/"
	}
	f.workers()
	for _, id := range []string{"1", "2", "3", "4", "5", "6"} {
		require.Equal(t, http.StatusCreated, f.any().ask("PUT", "/work/item"+id, "x", nil))
	}
	f.any().shares(2, 2, 2)
	program := filepath.Join(t.TempDir(), "orchctl")
	text, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", program, "github.com/f8949c05/orchestrator/cmd/orchctl").CombinedOutput()
	require.NoError(t, err, "%s", text)
	shows := func(name string, running int) {
		t.Helper()
		var status api.Status
		f.named(name).until(func() bool {
			status = api.Status{}
			code := f.named(name).ask("GET", "/dashboard/api/v1/status", "", &status)
			if code == http.StatusServiceUnavailable { // it has no lease and so no term, as on a busy machine
				return false
			}
			require.Equal(t, http.StatusOK, code)
			return status.Instances.Running == 6 && status.Workers.Answering == running
		}, func() string { return name + " does not show it" })
		for _, args := range [][]string{{"status"}, {"why", "item1"}, {"workers"}} {
			out, err := exec.CommandContext(t.Context(), program, append([]string{"-server", boards[name], "-token-file", tokenFile(t)}, args...)...).CombinedOutput()
			require.NoError(t, err, "%s", out)
		}
	}
	for name := range boards {
		shows(name, 3)
	}
	leader := f.pick(true)
	leader.signal(syscall.SIGKILL)
	f.forget(leader)
	_, isExit := errors.AsType[*exec.ExitError](leader.ended())
	require.True(t, isExit)
	delete(boards, leader.name)
	f.workers()
	for name := range boards {
		shows(name, 2)
	}
}
