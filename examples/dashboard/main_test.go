package main

import (
	"encoding/json"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/examples/internal/stage/stagetest"
)

func TestMain(m *testing.M) {
	if stagetest.IsProgram() {
		main()
		return
	}
	os.Exit(m.Run())
}

// With short intervals, each fault appears on the dashboard and goes away again.
func TestDashboard(t *testing.T) {
	p := stagetest.Start(t, ".", "-every=20ms", "-tasks=60")
	url := p.Until(t, `^(http://127\.0\.0\.1:\d+/)\n$`)
	answer, err := http.Get(url)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Contains(t, answer.Header.Get("Content-Type"), "text/html")

	unseen := map[api.ProblemKind]bool{
		api.ProblemSilent: true, api.ProblemLost: true, api.ProblemQuarantined: true, api.ProblemFailing: true,
	}
	drained, running := false, 0
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); len(unseen) > 0 || !drained || running < 20; {
		require.True(t, time.Now().Before(deadline), "not seen: %v", unseen)
		<-tick.C
		s := status(t, url)
		for _, problem := range s.Problems {
			delete(unseen, problem.Kind)
		}
		drained = drained || s.Workers.Draining > 0
		if s.Instances.Wanted > 0 && s.Instances.Running == s.Instances.Wanted {
			running++
		}
	}

	require.NoError(t, p.Process.Signal(syscall.SIGINT))
	require.Equal(t, url+"\n", p.Wait(t, 0), "one line")
}

func status(t *testing.T, url string) (s api.Status) {
	t.Helper()
	answer, err := http.Get(url + "api/v1/status")
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&s))
	return s
}
