package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator/examples/internal/stage/stagetest"
)

func TestMain(m *testing.M) {
	if stagetest.IsProgram() {
		main()
	}
	goleak.VerifyTestMain(m)
}

func TestTheStory(t *testing.T) {
	t.Parallel()
	p := stagetest.Start(t, ".", "-duration", "0s")
	out := p.Wait(t, 0)

	// The changes of each chapter. 24 endpoints with two instances make 12 for each
	// of four workers.
	chapters := chaptersOf(t, out)
	require.Len(t, chapters, 6, out)
	for title, want := range map[string]counts{
		"an even start":                {starts: 48},
		"w2 is killed (SIGKILL)":       {starts: 12}, // and perhaps moves
		"w5 joins":                     {moves: 12},
		"w1 is drained, then stopped":  {moves: 12},
		"3 endpoints added, 2 removed": {starts: 6, stops: 4},
	} {
		got, ok := chapters[title]
		require.True(t, ok, "no chapter %q in:\n%s", title, out)
		require.Equal(t, want.starts, got.starts, title)
		require.Equal(t, want.stops, got.stops, title)
		if want.moves > 0 {
			require.Equal(t, want.moves, got.moves, title)
		}
		require.Equal(t, got.fewest, got.adds, "%s: more starts than necessary", title)
		require.Positive(t, got.longest, title)
		require.Less(t, got.longest, gracePeriod, "%s: no other worker probed in time", title)
	}

	// The result: the remaining workers and their tasks.
	workers := workersOf(t, out)
	require.Len(t, workers, 3, out)
	runs := make(map[string]int)
	for _, name := range []string{"w3", "w4", "w5"} {
		require.Contains(t, workers, name)
		require.InDelta(t, 50.0/3, len(workers[name]), 1, "the share of %s is not even", name)
		for _, e := range workers[name] {
			runs[e]++
		}
	}
	for e := range strings.FieldsSeq(storyNames + " " + storyAdded) {
		if !slices.Contains(strings.Fields(storyRemoved), e) {
			require.Equal(t, 2, runs[e], "workers that run %s", e)
			delete(runs, e)
		}
	}
	require.Empty(t, runs)
}

func TestTheUsersEndpoints(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	agents := make(map[string]map[string]bool) // by path
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if agents[r.URL.Path] == nil {
			agents[r.URL.Path] = make(map[string]bool)
		}
		agents[r.URL.Path][r.UserAgent()] = true
		if r.URL.Path == "/broken" {
			http.Error(w, "no", http.StatusServiceUnavailable)
		}
	}))
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "endpoints.csv")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "one,%[1]s/one,1\ntwo,%[1]s/two,2\nbroken,%[1]s/broken,2\n", srv.URL), 0o600))

	p := stagetest.Start(t, ".", "-tasks", file, "-workers", "3", "-duration", "0s", "-metrics", "127.0.0.1:0")
	url := p.Until(t, `(http://\S+/metrics)`)
	p.Until(t, `4/4 +w1 is drained`)
	require.Contains(t, get(t, url), `orchestrator_workers{state="answering"} 3`)
	p.Until(t, `continue until interrupted`)
	require.Contains(t, get(t, url), `orchestrator_instances{state="running"} 5`)
	require.NoError(t, p.Process.Signal(os.Interrupt))
	out := p.Wait(t, 0)

	require.Equal(t, 5, chaptersOf(t, out)["an even start"].starts)
	require.Len(t, workersOf(t, out), 2)
	require.Contains(t, out, "last failed: broken: 503 Service Unavailable")
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, agents, 3)
	for path, by := range agents {
		for agent := range by {
			require.Regexp(t, `^orchestrator-quickstart/w[1-4]$`, agent, path)
		}
	}
}

func TestInterruptedInTheMiddle(t *testing.T) {
	t.Parallel()
	p := stagetest.Start(t, ".")
	p.Until(t, `load is now w1: 12`)
	require.NoError(t, p.Process.Signal(os.Interrupt))
	p.Wait(t, 130)
}

// No process remains if the leader is killed: wait returns when the last process
// that has the leader's standard error has ended.
func TestWorkersDieWithTheLeader(t *testing.T) {
	t.Parallel()
	p := stagetest.Start(t, ".")
	p.Until(t, `load is now w1: 12`)
	require.NoError(t, p.Process.Kill())
	p.Wait(t, -1)
}

func TestBadInputIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "endpoints.csv")
	require.NoError(t, os.WriteFile(file, []byte("a,http://a/,2\nb,b,2\n"), 0o600))
	p := stagetest.Start(t, ".", "-tasks", file)
	require.Empty(t, p.Wait(t, 1))
	require.Equal(t, "quickstart: -tasks: "+file+`:2: the url is "b": want http:// or https:// and a host`+"\n", p.Stderr.String())
}

// counts is a row of the table of chapters.
type counts struct {
	starts, stops, moves, adds, fewest int
	longest                            time.Duration
}

func chaptersOf(t *testing.T, out string) map[string]counts {
	rows := make(map[string]counts)
	row := regexp.MustCompile(`(?m)^  (\S.{27}) *(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +([\d.]+) s \(\w+\)$`)
	for _, m := range row.FindAllStringSubmatch(out, -1) {
		var n [5]int
		for i := range n {
			var err error
			n[i], err = strconv.Atoi(m[i+2])
			require.NoError(t, err)
		}
		longest, err := time.ParseDuration(m[7] + "s")
		require.NoError(t, err)
		rows[strings.TrimSpace(m[1])] = counts{n[0], n[1], n[2], n[3], n[4], longest}
	}
	return rows
}

// workersOf returns the endpoints of each worker in the last table.
func workersOf(t *testing.T, out string) map[string][]string {
	rows := make(map[string][]string)
	row := regexp.MustCompile(`(?m)^  (w\d+) +(\d+) +\d+ +\d+  (.*(?:\n {32}\S.*)*)$`)
	for _, m := range row.FindAllStringSubmatch(out, -1) {
		endpoints, _, _ := strings.Cut(m[3], "last failed:")
		rows[m[1]] = strings.Fields(endpoints)
		require.Equal(t, m[2], strconv.Itoa(len(rows[m[1]])), m[0])
	}
	return rows
}

func get(t *testing.T, url string) string {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	http.DefaultClient.CloseIdleConnections()
	return string(body)
}
