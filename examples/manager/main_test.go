package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/examples/internal/stage/stagetest"
)

func TestMain(m *testing.M) {
	if stagetest.IsProgram() {
		main()
	}
	goleak.VerifyTestMain(m)
}

func TestManager(t *testing.T) {
	p := stagetest.Start(t, ".")
	out := p.Wait(t, 0)
	require.Empty(t, p.Stderr.String(), "no warnings")
	stagetest.CheckWidth(t, out)

	chapters := strings.Split(out, "\n\n")
	require.Len(t, chapters, 7, out)
	require.GreaterOrEqual(t, tasks(chapters[1], `start on w[123] \(missing\)`), texts, "each text was given to a worker")
	require.Contains(t, out, "w1 follows ", "and a log")
	require.Equal(t, 6, tasks(chapters[2], `start on w[123] \(missing\)`))
	require.Equal(t, 2, tasks(chapters[3], `move  w2 → w[13] \(drain\)`), "its tasks")
	require.Equal(t, 2, tasks(chapters[3], `move .*`), "and no others")
	require.Regexp(t, `(?m)w1 follows \w+ \w+; waiting for a slot: \w+$`, chapters[3])
	require.Contains(t, chapters[3], "w2 has left\n")
	require.Equal(t, 2, tasks(chapters[4], `move  w[13] → w4 \(rebalance\)`), "its share")
	require.Equal(t, 2, tasks(chapters[4], `move .*`), "and nothing else")
	require.Regexp(t, `(?m)w4 follows \w+ \w+$`, chapters[4])
	for _, w := range []string{"w1", "w3", "w4"} {
		require.Contains(t, chapters[5], w+" has left")
	}
	require.Contains(t, chapters[6], "each line once")
	left, err := filepath.Glob(filepath.Join(filepath.Dir(t.TempDir()), "*", "manager-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// tasks counts the tasks with a kind of change.
func tasks(chapter, change string) int {
	n := 0
	chapter = strings.ReplaceAll(chapter, "\n           ", " ") // broken lines
	for _, m := range regexp.MustCompile(`(?m)s  `+change+`: (.*)$`).FindAllStringSubmatch(chapter, -1) {
		n += len(strings.Fields(m[1]))
	}
	return n
}

// requireInterrupted checks that a program was interrupted after all texts were counted, and
// that stderr has nothing but the interruption. On a busy machine a worker may be late, which
// the manager reports as a warning.
func requireInterrupted(t *testing.T, out, stderr string) {
	t.Helper()
	require.GreaterOrEqual(t, tasks(out, `start on w[123] \(missing\)`), texts, "each text was given to a worker")
	require.Contains(t, out, "w1 follows ", "and a log")
	lines := slices.DeleteFunc(strings.SplitAfter(stderr, "\n"), func(line string) bool {
		return strings.Contains(line, "level=WARN") && (strings.Contains(line, "no answer in time") || strings.Contains(line, "worker never answered"))
	})
	require.Equal(t, "manager: interrupted\n", strings.Join(lines, ""), "no warnings")
}

func TestDashboard(t *testing.T) {
	p := stagetest.Start(t, ".", "-dashboard", "127.0.0.1:0")
	address := p.Until(t, `the dashboard is at (.*)`)
	p.Until(t, `w1 follows`)
	r, err := http.NewRequestWithContext(t.Context(), "GET", address+"api/v1/worker?name=w1", nil)
	require.NoError(t, err)
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	var w1 api.WorkerDetail
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&w1))
	require.Len(t, w1.Running, 2)
	for _, task := range w1.Running {
		require.Equal(t, "running", task.State)
	}
	require.NoError(t, p.Process.Signal(os.Interrupt))
	requireInterrupted(t, p.Wait(t, 0), p.Stderr.String())
}

func TestInterruptedInTheMiddle(t *testing.T) {
	p := stagetest.Start(t, ".")
	p.Until(t, `w1 follows`)
	require.NoError(t, p.Process.Signal(os.Interrupt))
	requireInterrupted(t, p.Wait(t, 0), p.Stderr.String())
}

// No process is left, however the manager ends: Wait returns when the last process
// with its standard error has ended.
func TestWorkersEndWithTheManager(t *testing.T) {
	p := stagetest.Start(t, ".")
	p.Until(t, `start on w3 \(missing\)`)
	require.NoError(t, p.Process.Kill())
	p.Wait(t, -1)
}

func TestCount_WritesNoResultUnlessItCompletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		c := content{From: filepath.Join(dir, "text"), To: filepath.Join(dir, "count")}
		require.NoError(t, os.WriteFile(c.From, []byte("one two\nthree\n\nfour"), 0o600))
		ctx, cancel := context.WithCancelCause(t.Context())
		moved := errors.New("moved")
		time.AfterFunc(perLine, func() { cancel(moved) })
		require.ErrorIs(t, count(ctx, c), moved)
		require.NoFileExists(t, c.To)

		for range 2 { // the worker may end before it has reported the completion
			require.NoError(t, count(t.Context(), c))
			got, err := os.ReadFile(c.To)
			require.NoError(t, err)
			require.Equal(t, "4", string(got))
		}
	})
}

func TestFollow_ContinuesWhereTheLastRunEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		c := content{From: filepath.Join(dir, "log"), To: filepath.Join(dir, "followed")}
		log, err := os.Create(c.From)
		require.NoError(t, err)
		defer log.Close()
		var want string
		moved := errors.New("moved")
		for _, text := range []string{"a line\nhalf", " a line\n", strings.Repeat("long", 50_000)} {
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := make(chan error)
			go func() { ended <- follow(ctx, c) }()
			_, err := log.WriteString(text)
			require.NoError(t, err)
			want += text
			time.Sleep(time.Second)
			cancel(moved)
			require.ErrorIs(t, <-ended, moved)
			got, err := os.ReadFile(c.To)
			require.NoError(t, err)
			require.Equal(t, want, string(got))
		}
	})
}

func TestAccept_RefusesTasksThatCannotRun(t *testing.T) {
	item := content{From: "/a", To: "/b"}.item("count/a")
	require.NoError(t, accept(t.Context(), "count/a", item.Content))
	require.NoError(t, accept(t.Context(), "follow/a", item.Content))
	require.EqualError(t, accept(t.Context(), "a", item.Content), "task name must begin with count/ or follow/")
	require.EqualError(t, accept(t.Context(), "count/a", []byte(`{}`)), `content "{}": from and to are required`)
	require.ErrorContains(t, accept(t.Context(), "count/a", nil), `content ""`)
}
