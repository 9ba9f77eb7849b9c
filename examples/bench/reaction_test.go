//go:build peers

package main

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReactions(t *testing.T) {
	for _, over := range short().reaction.over {
		t.Run(over.name, func(t *testing.T) {
			t.Parallel()
			cfg := short()
			cfg.log = t.Logf
			cfg.reaction.over = []transport{over}
			cfg.reaction.over[0].size = size{40, 4, 1}
			cfg.reaction.over[0].restarts = 1
			cfg.reaction.rounds = 1
			all, err := measureReactions(t.Context(), cfg)
			require.NoError(t, err)
			require.Len(t, all, 1)
			r := all[0]
			for _, times := range []samples{r.added.took, r.joined.took, r.freed.took, r.restarts} {
				require.Len(t, times, 1)
				require.Positive(t, times[0])
			}
			require.NotEmpty(t, r.steady)
			require.Less(t, r.freed.took[0], 10*time.Second, "the lease is not included")

			require.Equal(t, over.name+", 40 × 4", all.tables()[0].Columns[0])
			require.Len(t, all.goals(), 3)
		})
	}
}

// It is an error if a task of a worker process also starts on another worker.
func TestWorkerProcess_RunsNothingTwice(t *testing.T) {
	var l taskLog
	l.init()
	require.NoError(t, l.start("a", "w1"))
	failed := make(chan error, 1)
	g := workerProcess{taskLog: &l, spec: workerSpec{Name: "w2"}, fail: func(err error) { failed <- err }}
	require.NoError(t, g.follow(strings.NewReader("1 start b\n2 start a\n3 stop b\n"), nil))
	require.ErrorContains(t, <-failed, "a runs on w1 and on w2")
	require.Equal(t, map[string]int{"w1": 1}, l.loads)
	require.ErrorContains(t, g.follow(strings.NewReader("panic: oops\n"), nil), "panic: oops")
}

// A worker process ends with its standard input, however its parent ended.
func TestWorkerProcess_EndsWithItsParent(t *testing.T) {
	var l taskLog
	l.init()
	failed := make(chan error, 1)
	g := workerProcess{lease: 2 * time.Second, taskLog: &l, fail: func(err error) { failed <- err }}
	_, err := g.join(t.Context(), workerSpec{Name: "w1", Manager: "127.0.0.1:1"})
	require.NoError(t, err)
	require.NoError(t, g.stdin.Close())
	<-g.ended
	var exit *exec.ExitError
	require.ErrorAs(t, <-failed, &exit)
	require.Equal(t, 1, exit.ExitCode())
}

func TestWorkerProcess_IsKilled(t *testing.T) {
	var l taskLog
	l.init()
	g := workerProcess{lease: 2 * time.Second, taskLog: &l, fail: func(err error) { t.Error(err) }}
	_, err := g.join(t.Context(), workerSpec{Name: "w1", Manager: "127.0.0.1:1"})
	require.NoError(t, err)
	require.NoError(t, l.start("a", "w1"))
	require.NoError(t, g.close())
	require.Empty(t, l.running, "its tasks ended with it")
	require.NoError(t, g.close(), "twice")
}

func TestLedger_Until(t *testing.T) {
	var l taskLog
	l.init()
	at := time.Now()
	require.NoError(t, l.startAt(at, "a", "w1"))
	got, err := l.waitFor(t.Context(), "w1", 1)
	require.NoError(t, err)
	require.Equal(t, at, got)
	l.stop("a", "w2")
	require.Equal(t, map[string]string{"a": "w1"}, l.running, "a late stop of an earlier run")
	l.killed("w1")
	require.Empty(t, l.running)
	require.Empty(t, l.loads)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.wait(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
}

func TestTaskLog_TwiceIsAnError(t *testing.T) {
	var l taskLog
	l.init()
	require.NoError(t, l.start("a", "x"))
	require.ErrorContains(t, l.start("a", "y"), "a runs on x and on y")
	l.stop("a", "x")
	require.NoError(t, l.start("a", "y"))
}
