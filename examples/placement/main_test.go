package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

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

// The story with real processes. The program itself checks that no rule is broken.
func TestPlacement(t *testing.T) {
	p := stagetest.Start(t, ".")
	out := p.Wait(t, 0)
	require.Empty(t, p.Stderr.String(), "no errors")
	stagetest.CheckWidth(t, out)

	chapters := strings.Split(out, "\n\n")
	require.Len(t, chapters, 6, out)
	for i := range chapters { // without the breaks of lines
		chapters[i] = strings.ReplaceAll(chapters[i], "\n           ", " ")
	}
	require.Contains(t, chapters[0], "front runs in east and west")
	require.Regexp(t, `(?m)start on e[123] \(lost\): .*$`, chapters[1])
	require.NotContains(t, chapters[1], "(missing)")
	requireStay(t, chapters[1])
	require.True(t, strings.HasSuffix(chapters[1], "front runs in east"))
	require.Regexp(t, `(?m)move  e[123] → w[123] \(rebalance\)`, chapters[2])
	require.Contains(t, chapters[2], "front runs in east and west")
	require.Regexp(t, `(?m)move  .*\(rebalance\)`, chapters[3], "a tenant that grows is given room")
	require.NotContains(t, chapters[3], "start", "a tenant that grows starts nothing anew")
	require.Contains(t, chapters[4], `train waits, no place: of 6 open workers 6 lack "tpu"`)
	require.Regexp(t, `(?m)w3 west gpu weighs \d+, level \d+: (front )?render-1 render-2 render-3 render-4`, chapters[4])
	require.Contains(t, chapters[5], "no rule was broken")
}

// requireStay checks that what runs in zone east stays when zone west is lost. The three leases
// may end in different terms, and a term knows only of those that have ended. So only if they
// ended in one is the number of tasks that stay judged; otherwise each term must have had a
// reason to move any.
func requireStay(t *testing.T, chapter string) {
	t.Helper()
	match := regexp.MustCompile(`(\d+) tasks stayed where they were, changes in (\d+) terms`).FindStringSubmatch(chapter)
	require.NotNil(t, match, chapter)
	if match[2] == "1" {
		require.Regexp(t, `^([7-9]|1\d)$`, match[1], chapter)
	}
	// The lines of a term are sorted, so its moves stand before its starts.
	changes := regexp.MustCompile(`(?m)(move|start) .*$`).FindAllString(chapter, -1)
	for i, change := range changes {
		if strings.HasPrefix(change, "move") {
			starts := slices.IndexFunc(changes[i:], func(c string) bool { return strings.HasPrefix(c, "start") })
			require.Positive(t, starts, "%q, and no lease has ended\n%s", change, chapter)
			require.True(t, slices.IsSorted(changes[i:i+starts]), "%q, and no lease has ended\n%s", change, chapter)
		}
	}
}
