package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

func TestTheStory(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	f := folder(filepath.Join(t.TempDir(), "data"))
	p := stagetest.Start(t, root, "-duration", "8s", "-data", string(f))
	out := p.Wait(t, 0)
	require.Empty(t, p.Stderr.String(), "no warnings")

	// The words of the same files, counted independently.
	documents := make(map[string]int)
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		documents[path] = len(strings.Fields(string(text)))
		return err
	}))
	requireCounts(t, out, f, documents)

	// Which worker has which tasks, and why.
	chapters := chaptersOf(t, out)
	require.Regexp(t, `\ds  joined: w1 \(process \d+\), w2 \(process \d+\), w3 \(process \d+\)\n`, chapters[0])
	require.GreaterOrEqual(t, changed(t, chapters[1], `start on w[123] \(missing\)`), len(documents), "each file was given to a worker")
	require.Equal(t, 6, changed(t, chapters[2], `start on w[123] \(missing\)`))
	require.Equal(t, 2, changed(t, chapters[3], `move  w2 → w[13] \(drain\)`), "its tasks, and no others")
	require.Equal(t, 2, changed(t, chapters[3], `move .*`))
	require.Regexp(t, `w1: (\w+ \w+), waiting for a slot: \w+; w3: (\w+ \w+), waiting for a slot: \w+\n`, chapters[3])
	require.Contains(t, chapters[3], "left: w2\n")
	require.Equal(t, 2, changed(t, chapters[4], `move  w[13] → w4 \(rebalance\)`), "its share, and nothing else")
	require.Equal(t, 2, changed(t, chapters[4], `move .*`))
	require.Regexp(t, `w1: \w+ \w+; w3: \w+ \w+; w4: \w+ \w+\n`, chapters[4])
	require.Contains(t, chapters[5], "left: w1, w3, w4\n")

	requireFollowedOnce(t, out, f, moves(t, chapters[3]+chapters[4]))

	// The store is left, but no record of a worker that has left.
	require.FileExists(t, f.state())
	for _, w := range storyWorkers() {
		require.NoFileExists(t, f.record(w))
	}
}

func TestAnotherFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	documents := make(map[string]int)
	for i := range 40 {
		name := fmt.Sprintf("sub%d/file %d.txt", i%3, i)
		write(t, dir, name, strings.Repeat("a word\n", i))
		documents[name] = 2 * i
	}
	f := folder(filepath.Join(t.TempDir(), "data"))
	p := stagetest.Start(t, ".", "-dir", dir, "-duration", "0s", "-data", string(f))
	out := p.Wait(t, 0)
	requireCounts(t, out, f, documents)
	require.Contains(t, out, "\n  and 28 more\n")
}

func TestInterruptedInTheMiddle(t *testing.T) {
	t.Parallel()
	p := stagetest.Start(t, filepath.Join("..", ".."))
	p.Until(t, `start on w3 \(missing\)`)
	require.NoError(t, p.Process.Signal(os.Interrupt))
	p.Wait(t, 130)
	require.Empty(t, p.Stderr.String(), "no warnings")
}

// No process is left, however the manager ends: wait returns when the last process
// with its standard error has ended.
func TestWorkersEndWithTheManager(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	p := stagetest.Start(t, filepath.Join("..", ".."), "-data", data)
	p.Until(t, `start on w3 \(missing\)`)
	require.NoError(t, p.Process.Kill())
	p.Wait(t, -1)
}

func TestBadInputIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	for want, args := range map[string][]string{
		`unexpected argument "x"`:                    {"x"},
		"-duration is -1s: must not be negative":     {"-duration", "-1s"},
		"-dir: no text files in " + empty:            {"-dir", empty},
		"-data: mkdir " + empty + ": file exists":    {"-dir", ".", "-data", empty},
		empty + " is not the root of the orchestrat": nil,
	} {
		dir := "."
		if args == nil {
			dir = empty
		}
		p := stagetest.Start(t, dir, args...)
		require.Empty(t, p.Wait(t, 1))
		require.True(t, strings.HasPrefix(p.Stderr.String(), "manager: "+want), p.Stderr.String())
	}
}

// requireCounts compares the workers' records and the summary with the actual
// counts.
func requireCounts(t *testing.T, out string, f folder, documents map[string]int) {
	t.Helper()
	recorded, err := gather(f.results("*"))
	require.NoError(t, err)
	total := 0
	got := make(map[string]int)
	for task, r := range recorded {
		got[strings.TrimPrefix(task, "count/")] = r.Words
		require.Contains(t, storyWorkers()[:3], r.Worker)
		require.Empty(t, r.Problem)
		total += r.Words
	}
	require.Equal(t, documents, got)

	rows := regexp.MustCompile(`(?m)^  (\S.{39}) +(\d+)  (w\d)$`).FindAllStringSubmatch(out, -1)
	require.Len(t, rows, min(len(documents), maxRows), out)
	for _, row := range rows {
		name := strings.TrimSpace(row[1])
		require.Equal(t, strconv.Itoa(documents[name]), row[2], name)
		require.Equal(t, recorded["count/"+name].Worker, row[3], name)
	}
	require.Regexp(t, fmt.Sprintf(`(?m)^  %d files +%d  w1 \d+, w2 \d+, w3 \d+$`, len(documents), total), out)
}

// requireFollowedOnce requires that each line of each file was followed once, and
// that the follower changed only when the task was moved. Two followers at the same
// time would both have recorded the added lines.
func requireFollowedOnce(t *testing.T, out string, f folder, moves map[string][]string) {
	t.Helper()
	for _, name := range storyFiles() {
		log, err := os.ReadFile(f.log(name))
		require.NoError(t, err)
		lines := strings.Count(string(log), "\n")
		require.Greater(t, lines, 20)
		entries, _, err := readEntries[followed](f.followed(name))
		require.NoError(t, err)
		var owners []string
		for i, e := range entries {
			require.Equal(t, i+1, e.Line, "%s: each line once, in order", name)
			if len(owners) == 0 || owners[len(owners)-1] != e.Worker {
				owners = append(owners, e.Worker)
			}
		}
		require.Len(t, entries, lines, "%s: every line", name)

		want := slices.Clone(owners[:1])
		for _, to := range moves[name] {
			if slices.Contains(owners[1:], to) { // otherwise it had no free slot, and followed nothing
				want = append(want, to)
			}
		}
		require.Equal(t, want, owners, "%s was moved to %v", name, moves[name])
		require.Regexp(t, fmt.Sprintf(`(?m)^  %s +%d +0 +0  w\d \d+`, name, lines), out)
	}
}

// chaptersOf returns the output before the first chapter, and that of each chapter,
// including the last.
func chaptersOf(t *testing.T, out string) []string {
	t.Helper()
	chapters := strings.Split(out, "\n\n")
	require.Len(t, chapters, 8, "with two tables:\n%s", out)
	for i := range chapters {
		chapters[i] += "\n"
	}
	return chapters[:6]
}

// changed counts the tasks with a kind of change.
func changed(t *testing.T, chapter, way string) int {
	t.Helper()
	n := 0
	for _, m := range regexp.MustCompile(`(?m)s  `+way+`: (.*)$`).FindAllStringSubmatch(chapter, -1) {
		names := m[len(m)-1]
		n += len(strings.Fields(names))
		if more := regexp.MustCompile(` \+(\d+)$`).FindStringSubmatch(names); more != nil {
			hidden, err := strconv.Atoi(more[1])
			require.NoError(t, err)
			n += hidden - 1
		}
	}
	return n
}

// moves returns the workers that each task was moved to, in order.
func moves(t *testing.T, said string) map[string][]string {
	t.Helper()
	to := make(map[string][]string)
	for _, m := range regexp.MustCompile(`(?m)s  move  w\d → (w\d) \(\w+\): (.*)$`).FindAllStringSubmatch(said, -1) {
		for name := range strings.FieldsSeq(m[2]) {
			to[name] = append(to[name], m[1])
		}
	}
	return to
}
