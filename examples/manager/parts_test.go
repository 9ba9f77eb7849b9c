package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWordsAreWhatStandsBetweenSpaces(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "one", " one\n", "one two", "one\ttwo\r\n\r\nthree ", "a\u00a0b\u2028c", "größer als 本 語", "\xff\xfe \xff",
		strings.Repeat("long", 50_000) + " end",
	} {
		got, err := countWords(iotest.OneByteReader(strings.NewReader(text)))
		require.NoError(t, err)
		require.Equal(t, len(strings.Fields(text)), got, "%.40q", text)
	}
	broken := errors.New("broken")
	_, err := countWords(iotest.ErrReader(broken))
	require.ErrorIs(t, err, broken)
}

func TestSlowlyTakesItsTimeAndEndsWithItsTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text := strings.Repeat("word ", 200)
		began := time.Now()
		got, err := countWords(slowly(t.Context(), strings.NewReader(text), 100))
		require.NoError(t, err)
		require.Equal(t, 200, got)
		require.Equal(t, 10*time.Second, time.Since(began))

		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("moved")
		time.AfterFunc(time.Second, func() { cancel(cause) })
		_, err = countWords(slowly(ctx, strings.NewReader(text), 100))
		require.ErrorIs(t, err, cause)
		require.Equal(t, 11*time.Second, time.Since(began))
	})
}

func TestAFileIsCountedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, dir, "a.txt", "one two three")
	path := filepath.Join(dir, "w1.jsonl")
	to, err := openResults(path)
	require.NoError(t, err)
	one := result{Task: "count/a.txt", Version: 7, Worker: "w1"}
	require.NoError(t, count(t.Context(), file, 0, one, to))
	require.NoError(t, to.close())

	// The process ends here, before it has reported the completion. The next one is
	// given the task again.
	require.NoError(t, os.Remove(file))
	to, err = openResults(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, to.close()) }()
	require.NoError(t, count(t.Context(), file, 0, one, to))
	newer := one
	newer.Version = 8
	require.NoError(t, count(t.Context(), file, 0, newer, to))

	entries, _, err := readEntries[result](path)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	require.Equal(t, result{Task: "count/a.txt", Version: 7, Worker: "w1", Words: 3}, entries[0])
	require.Contains(t, entries[1].Problem, "a.txt", "a read error is the result")
}

func TestACountThatWasCutOffLeavesNoResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		to, err := openResults(filepath.Join(dir, "w1.jsonl"))
		require.NoError(t, err)
		defer func() { require.NoError(t, to.close()) }()
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("moved")
		time.AfterFunc(time.Second, func() { cancel(cause) })
		one := result{Task: "count/a.txt", Worker: "w1"}
		require.ErrorIs(t, count(ctx, write(t, dir, "a.txt", strings.Repeat("word ", 200)), 100, one, to), cause)
		require.False(t, to.has(one))
	})
}

func TestGatherTakesWhatSaysTheSameOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "w1.jsonl", `{"task":"count/a","version":1,"worker":"w1","words":3}
{"task":"count/b","version":2,"worker":"w1","words":4}
{"task":"count/c","ver`) // the worker was killed during a write
	write(t, dir, "w2.jsonl", `{"task":"count/a","version":1,"worker":"w2","words":3}
{"task":"count/b","version":3,"worker":"w2","words":5}
`)
	all, err := gather(filepath.Join(dir, "*.jsonl"))
	require.NoError(t, err)
	require.Equal(t, map[string]result{
		"count/a": {Task: "count/a", Version: 1, Worker: "w1", Words: 3},
		"count/b": {Task: "count/b", Version: 3, Worker: "w2", Words: 5},
	}, all)

	write(t, dir, "w3.jsonl", `{"task":"count/a","version":1,"worker":"w3","words":2}`+"\n")
	_, err = gather(filepath.Join(dir, "*.jsonl"))
	require.EqualError(t, err, "count/a: 3 words by w1, but 2 by w3: was the file changed?")
}

func TestAJournalForgetsHalfAnEntryAndNothingElse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	j, before, err := openJournal[followed](path)
	require.NoError(t, err)
	require.Empty(t, before)
	a, b, c := followed{1, 10, "w1"}, followed{2, 20, "w1"}, followed{3, 30, "w2"}
	require.NoError(t, j.append(a, b))
	require.NoError(t, j.close())
	require.Error(t, j.append(c), "closed already")

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, append(text, `{"line":3,"end":30,"worker":"w`...), 0o600))
	j, before, err = openJournal[followed](path)
	require.NoError(t, err)
	require.Equal(t, []followed{a, b}, before)
	require.NoError(t, j.append(c))
	require.NoError(t, j.close())
	all, size, err := readEntries[followed](path)
	require.NoError(t, err)
	require.Equal(t, []followed{a, b, c}, all)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, info.Size(), size)

	require.NoError(t, os.WriteFile(path, []byte("{}\nno\n{}\n"), 0o600))
	_, _, err = openJournal[followed](path)
	require.ErrorContains(t, err, path+":2:")
}

func TestTheNextFollowerContinuesWhereTheLastStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := folder(t.TempDir())
		require.NoError(t, f.make())
		g, err := startGrowth(f, []string{"a"}, 10*time.Millisecond)
		require.NoError(t, err)
		moved := errors.New("moved")
		for _, worker := range []string{"w1", "w2", "w1"} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, moved)
			require.ErrorIs(t, follow(ctx, f.log("a"), f.followed("a"), worker), moved)
			cancel()
			time.Sleep(time.Second) // without a follower
		}
		require.NoError(t, g.stop())
		require.NoError(t, g.stop(), "again")

		// An incomplete line waits for its rest.
		n := g.files[0].lines
		require.Greater(t, n, 1100)
		log, err := os.OpenFile(f.log("a"), os.O_APPEND|os.O_WRONLY, 0)
		require.NoError(t, err)
		defer log.Close()
		_, err = log.WriteString("half")
		require.NoError(t, err)
		done := make(chan error)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { done <- follow(ctx, f.log("a"), f.followed("a"), "w3") }()
		time.Sleep(time.Second)
		require.Equal(t, n, followedBy(t, f, "a")["w1"]+followedBy(t, f, "a")["w2"]+followedBy(t, f, "a")["w3"])
		_, err = log.WriteString(" a line\n")
		require.NoError(t, err)
		time.Sleep(time.Second)
		cancel(moved)
		require.ErrorIs(t, <-done, moved)

		entries, _, err := readEntries[followed](f.followed("a"))
		require.NoError(t, err)
		for i, e := range entries {
			require.Equal(t, i+1, e.Line)
		}
		all := tallyOf("a", n+1, entries)
		require.Zero(t, all.lost+all.twice)
		require.Greater(t, all.by["w1"], 500)
		require.Greater(t, all.by["w2"], 250)
		text, err := os.ReadFile(f.log("a"))
		require.NoError(t, err)
		require.Equal(t, int64(len(text)), entries[n].End)
		require.Equal(t, n+1, bytes.Count(text, []byte{'\n'}))
	})
}

func TestTallyCountsWhatWasLostAndWhatWasTwice(t *testing.T) {
	t.Parallel()
	require.Equal(t, tally{name: "a", lines: 4, by: map[string]int{"w1": 2, "w2": 2}, lost: 1, twice: 1},
		tallyOf("a", 4, []followed{{Line: 1, Worker: "w1"}, {Line: 2, Worker: "w1"}, {Line: 2, Worker: "w2"}, {Line: 4, Worker: "w2"}}))
}

func TestTheSummaryComplainsOfWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := &summary{
		words: []result{{Task: "count/a.md", Worker: "w1", Words: 3}, {Task: "count/docs/" + strings.Repeat("ö", 40), Worker: "w2", Words: 10}, {Task: "count/b.md", Worker: "w2", Problem: "no such file"}},
		files: []tally{{name: "east", lines: 4, by: map[string]int{"w1": 2, "w2": 2}, lost: 1, twice: 1}},
	}
	var out strings.Builder
	require.EqualError(t, s.write(&out), "b.md: no such file\neast: 1 lines lost, 1 followed more than once")
	require.Equal(t, `
                                               words  counted by
  a.md                                             3  w1
  …`+strings.Repeat("ö", 39)+`        10  w2
  b.md                                             0  w2
  3 files                                         13  w1 1, w2 2

                 lines    lost   twice  followed by
  east               4       1       1  w1 2, w2 2
`, out.String())
}

func TestDocumentsAreTheTextFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "b.txt", "b")
	write(t, dir, "a", strings.Repeat("ö", 300)) // byte 512 is within a character
	write(t, dir, "sub/deep/c.go", "package c")
	write(t, dir, "empty", "")
	write(t, dir, ".hidden", "no")
	write(t, dir, ".git/config", "no")
	write(t, dir, "binary", "a\x00b")
	write(t, dir, "latin", "gr\xf6\xdfer")
	require.NoError(t, os.Symlink("b.txt", filepath.Join(dir, "link")))
	all, err := documents(dir)
	require.NoError(t, err)
	var names []string
	for _, d := range all {
		names = append(names, d.name)
		require.Equal(t, filepath.Join(dir, d.name), d.path)
	}
	require.Equal(t, []string{"a", "b.txt", "empty", "sub/deep/c.go"}, names)
	require.Equal(t, int64(600), all[0].size)

	for _, none := range []string{"none", "binary"} {
		_, err = documents(filepath.Join(dir, none))
		require.ErrorContains(t, err, "-dir: ")
	}
	odd := t.TempDir()
	write(t, odd, "gr\xf6\xdfer.txt", "b")
	_, err = documents(odd)
	require.ErrorContains(t, err, "not UTF-8")
	_, err = documents(t.TempDir())
	require.ErrorContains(t, err, "-dir: no text files in ")
	_, err = documents("")
	require.ErrorContains(t, err, "examples/manager is not the root of the orchestrator's repository, whose documents are counted by default: go there, or give a folder with -dir")
}

func TestInvalidContentsAreRefused(t *testing.T) {
	t.Parallel()
	item, err := content{File: "/a", Rate: 5}.item("count/a")
	require.NoError(t, err)
	require.Equal(t, "count/a", item.Name)
	text := item.Content
	require.JSONEq(t, `{"file":"/a","rate":5}`, string(text))
	require.NoError(t, accept(t.Context(), "count/a", text))
	require.NoError(t, accept(t.Context(), "follow/a", text))
	require.EqualError(t, accept(t.Context(), "a", text), "task name must begin with count/ or follow/")
	require.EqualError(t, accept(t.Context(), "count/a", []byte(`{}`)), `content "{}": no file`)
	require.ErrorContains(t, accept(t.Context(), "count/a", nil), `content ""`)
}

// write creates a file and its folders.
func write(t *testing.T, dir, name, text string) string {
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// followedBy counts the lines of a file that each worker has followed.
func followedBy(t *testing.T, f folder, name string) map[string]int {
	entries, _, err := readEntries[followed](f.followed(name))
	require.NoError(t, err)
	return tallyOf(name, 0, entries).by
}
