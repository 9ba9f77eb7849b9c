//go:build unix

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator/examples/internal/stage/stagetest"
	"github.com/f8949c05/orchestrator/internal/pgtest"
)

func TestMain(m *testing.M) {
	if stagetest.IsProgram() {
		main()
	}
	goleak.VerifyTestMain(m)
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	chapters := chaptersOf(t)
	require.Len(t, chapters, 8)
	requireStory(t, chapters)
	require.Regexp(t, `(?s)all tasks have stopped.*the table is back.*all tasks run again`, chapters[4])
}

func TestReplicas_OnPostgreSQL(t *testing.T) {
	t.Parallel()
	chapters := chaptersOf(t, "-backend", "postgres", "-url", pgtest.Start(t).URL(pgtest.User, "postgres"))
	require.Len(t, chapters, 7)
	requireStory(t, chapters)
}

// chaptersOf runs the program, and returns the parts of its output.
func chaptersOf(t *testing.T, args ...string) []string {
	t.Helper()
	p := stagetest.Start(t, ".", append(args, "-lease", "5s")...) // longer than by default: machines may be busy
	out := p.Wait(t, 0)
	t.Log(out)
	require.Empty(t, p.Stderr.String())
	stagetest.CheckWidth(t, out)
	return strings.Split(strings.ReplaceAll(out, "\n           ", " "), "\n\n") // without broken lines
}

// requireStory checks the chapters that do not depend on the backend.
func requireStory(t *testing.T, chapters []string) {
	t.Helper()
	requireShares(t, chapters[0], "r1", "r2", "r3")
	require.Regexp(t, `1/\d  r4 joins`, chapters[1])
	requireShares(t, chapters[1], "r1", "r2", "r3", "r4")
	require.Contains(t, chapters[1], "3 tasks moved", "its share, and no others")
	require.Contains(t, chapters[1], "9 never stopped")
	require.Contains(t, chapters[2], "3 tasks moved", "those of the killed replica, and no others")
	require.Contains(t, chapters[2], "9 never stopped")
	require.Contains(t, chapters[3], "4 tasks moved", "those of the replica that leaves, and no others")
	require.Contains(t, chapters[3], "8 never stopped")
	last := len(chapters) - 1
	require.Regexp(t, `(?s)its tasks run elsewhere.*\(SIGCONT\).*has its share again`, chapters[last-2])
	require.Contains(t, chapters[last], "none of them ever ran twice")
}

// requireShares requires that the named replicas run all tasks, evenly spread, at the
// end of a chapter.
func requireShares(t *testing.T, chapter string, names ...string) {
	t.Helper()
	var on []string
	n := 0
	for _, m := range regexp.MustCompile(`(?m)s  (r\d) runs (.*)$`).FindAllStringSubmatch(chapter, -1) {
		on = append(on, m[1])
		n += len(strings.Fields(m[2]))
		require.Len(t, strings.Fields(m[2]), len(tasks)/len(names), chapter)
	}
	require.Equal(t, names, on, chapter)
	require.Equal(t, len(tasks), n)
}

func TestInterruptedInTheMiddle(t *testing.T) {
	p := stagetest.Start(t, ".")
	p.Until(t, `r1 runs`)
	require.NoError(t, p.Process.Signal(os.Interrupt))
	p.Wait(t, 0)
	require.Equal(t, "replicas: interrupted\n", p.Stderr.String())
}

// No process is left if this one is killed: Wait returns when the last process with its
// standard error has ended.
func TestReplicasEndWithTheStory(t *testing.T) {
	p := stagetest.Start(t, ".")
	p.Until(t, `r1 runs`)
	require.NoError(t, p.Process.Kill())
	p.Wait(t, -1)
}

func TestInvalidArguments(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"now"}, "replicas: unexpected argument \"now\"\n"},
		{[]string{"-lease", "1ms"}, "replicas: -lease is 1ms: must be 1s or more\n"},
		{[]string{"-backend", "paper"}, "replicas: unknown backend \"paper\": want memory or postgres\n"},
		{[]string{"-backend", "postgres"}, "replicas: -backend postgres needs a -url\n"},
	} {
		p := stagetest.Start(t, ".", test.args...)
		p.Wait(t, 1)
		require.Equal(t, test.want, p.Stderr.String())
	}
}
