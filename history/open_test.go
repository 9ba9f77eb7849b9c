package history_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/history"
)

const header = `{"format":"orchestrator history","version":1}` + "\n"

// term returns a line of a term with a number and nothing else.
func term(number int) string {
	return fmt.Sprintf(`{"term":{"stats":{"term":{"epoch":1,"number":%d}}}}`+"\n", number)
}

// numbers returns the numbers of the terms of a ring, the oldest first.
func numbers(r *history.Ring) (numbers []uint64) {
	for t := range r.View().Terms(orchestrator.Term{}) {
		numbers = append([]uint64{t.Stats.Term.Number}, numbers...)
	}
	return numbers
}

// write writes files, by name, and returns the path of the log.
func write(t *testing.T, files map[string]string) (path string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return filepath.Join(dir, "log")
}

// TestOpen_Damage opens logs that are damaged: all terms that can be read are there, and a
// note has each of the others.
func TestOpen_Damage(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		terms []uint64
		notes []string // parts of the notes
		err   string   // a part of the error
	}{
		"whole": {
			files: map[string]string{"log": header + term(1) + term(2)},
			terms: []uint64{1, 2},
		},
		"cut in a line": {
			files: map[string]string{"log": header + term(1) + term(2)[:40]},
			terms: []uint64{1}, notes: []string{"log:3: cut"},
		},
		"cut before the end of a line": {
			files: map[string]string{"log": header + term(1) + strings.TrimSpace(term(2))},
			terms: []uint64{1, 2},
		},
		"cut in the header, others before": {
			files: map[string]string{"log.1": header + term(1), "log": header[:20]},
			terms: []uint64{1},
		},
		"missing, others before": {
			files: map[string]string{"log.3": header + term(1), "log.1": header + term(2), "log.x": "", "log.01": "", "logs": ""},
			terms: []uint64{1, 2},
		},
		"rotated": {
			files: map[string]string{"log.10": header + term(1), "log.9": header + term(2), "log": header + term(3)},
			terms: []uint64{1, 2, 3},
		},
		"damaged lines": {
			files: map[string]string{"log": header + term(1) + "{\n" + term(2) + "\x00\x00\n\n" + `{"term":{"stats":[]}}` + "\n" + term(3)},
			terms: []uint64{1, 2, 3}, notes: []string{"log:3: damaged", "log:5: damaged", "log:7: damaged"},
		},
		"impossible workers": {
			files: map[string]string{"log": header + `{"workers":[{"name":"w","tasks":-1}]}` + "\n" + term(2)},
			terms: []uint64{2}, notes: []string{"not a worker"},
		},
		"unknown values": {
			files: map[string]string{"log": header + `{"new":{"a":[1]}}` + "\n" + term(2)},
			terms: []uint64{2}, notes: []string{"log:2: damaged, left out: not a line of a history log"},
		},
		"terms that were not written": {
			files: map[string]string{"log": header + term(1) + `{"missed":7,` + term(9)[1:]},
			terms: []uint64{1, 9}, notes: []string{"7 terms after term 1 were not written"},
		},
		"an old version before": {
			files: map[string]string{"log.1": strings.Replace(header, "1", "0", 1) + term(1), "log": header + term(2)},
			terms: []uint64{2}, notes: []string{"log.1: not a history log of this version: its version is 0, not 1"},
		},
		"something else before": {
			files: map[string]string{"log.1": "text\n", "log": header + term(2)},
			terms: []uint64{2}, notes: []string{"log.1: not a history log"},
		},
		"only an old version": {
			files: map[string]string{"log.1": strings.Replace(header, "1", "0", 1) + term(1)}, err: "its version is 0, not 1",
		},
		"another version within a file": {
			files: map[string]string{"log": header + term(1) + strings.Replace(header, "1", "2", 1) + term(2) + header + term(3)},
			terms: []uint64{1, 3}, notes: []string{"log:3: damaged, left out: not a history log of this version: its version is 2, not 1"},
		},
		"a directory before": {
			files: map[string]string{"log.1/x": "", "log": header + term(2)},
			terms: []uint64{2}, notes: []string{"log.1: is a directory"},
		},
		"a second process": {
			files: map[string]string{"log": header + term(1) + term(2) + header + term(1) + term(2)},
			terms: []uint64{1, 2, 1, 2},
		},
		"a higher epoch": {
			files: map[string]string{"log": header + term(7) + strings.Replace(term(1), `"epoch":1`, `"epoch":2`, 1)},
			terms: []uint64{7, 1},
		},
		"two processes at the same time": {
			files: map[string]string{"log": header + term(7) + term(8) + header + term(1) + term(9) + term(2)},
			terms: []uint64{7, 8, 1, 9, 2}, notes: []string{"term 2 of epoch 1 is after term 9 of epoch 1: two processes wrote the log"},
		},
		"no terms":          {files: map[string]string{"log": header}},
		"empty":             {files: map[string]string{"log": ""}, err: "log: empty"},
		"cut in the header": {files: map[string]string{"log": header[:20]}, err: "log: empty"},
		"missing":           {err: "no such file"},
		"another version":   {files: map[string]string{"log": strings.Replace(header, "1", "2", 1), "log.1": header}, err: "its version is 2, not 1"},
		"something else":    {files: map[string]string{"log": term(1)}, err: "not a history log"},
		"no lines":          {files: map[string]string{"log": strings.Repeat("x", 5000)}, err: "not a history log"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := write(t, test.files)
			r, err := history.Open(path)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				require.Contains(t, err.Error(), path)
				require.Nil(t, r)
				return
			}
			require.NoError(t, err)
			require.NoError(t, r.Close())
			require.Equal(t, test.terms, numbers(r))
			require.Len(t, r.Notes(), len(test.notes), r.Notes())
			for i, note := range test.notes {
				require.Contains(t, r.Notes()[i], note)
			}
			for name, text := range test.files {
				now, err := os.ReadFile(filepath.Join(filepath.Dir(path), name))
				require.NoError(t, err)
				require.Equal(t, text, string(now), "Open must not change it")
			}
		})
	}
}

// TestNew_ExistingFiles appends to what is there, unless it is not a log.
func TestNew_ExistingFiles(t *testing.T) {
	tests := map[string]struct {
		file  string
		after map[string]int // the number of terms that each file has, with the new one
		err   error
	}{
		"none":              {after: map[string]int{"log": 1}},
		"a log":             {file: header + term(1), after: map[string]int{"log": 2}},
		"cut in a line":     {file: header + term(1) + "{", after: map[string]int{"log": 2}},
		"cut in the header": {file: header[:9], after: map[string]int{"log": 1}},
		"another version":   {file: strings.Replace(header, "1", "2", 1), after: map[string]int{"log": 1}},
		"a full one":        {file: header + term(1) + strings.Repeat("\n", 100_000), after: map[string]int{"log.1": 1, "log": 1}},
		"something else":    {file: "text\n", err: history.ErrFormat},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := write(t, map[string]string{"log": test.file})
			if test.file == "" {
				require.NoError(t, os.Remove(path))
			}
			if test.err != nil {
				_, err := history.New(history.WithFile(path, 0, 0))
				require.ErrorIs(t, err, test.err)
				text, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Equal(t, test.file, string(text))
				return
			}
			ring := func() (*history.Ring, error) { return history.New(history.WithFile(path, 90_000, 0)) }
			inBubble(t, ring, []string{"w"}, []string{"a"}, func(_ *testing.T, f *fleet) { f.terms(1) })
			for name, terms := range test.after {
				alone := filepath.Join(t.TempDir(), "log")
				text, err := os.ReadFile(filepath.Join(filepath.Dir(path), name))
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(alone, text, 0o600))
				r, err := history.Open(alone)
				require.NoError(t, err)
				require.Len(t, numbers(r), terms)
			}
			_, err := history.Open(path)
			require.NoError(t, err)
		})
	}
}

// TestNew_Errors lists what the options and the file system refuse.
func TestNew_Errors(t *testing.T) {
	dir := t.TempDir()
	for name, opts := range map[string][]history.Option{
		"WithTerms(0)":         {history.WithTerms(0)},
		"WithChanges(0)":       {history.WithChanges(0)},
		`WithFile("", 0, 0)`:   {history.WithFile("", 0, 0)},
		`WithFile("x", -1, 0)`: {history.WithFile("x", -1, 0)},
		"an Option is nil":     {nil},
	} {
		_, err := history.New(opts...)
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
		require.ErrorContains(t, err, name)
	}
	_, err := history.New(history.WithFile(dir, 0, 0))
	require.ErrorContains(t, err, "directory")
	_, err = history.New(history.WithFile("/dev/full", 0, 0))
	require.ErrorContains(t, err, "not a regular file")
	_, err = history.New(history.WithFile(filepath.Join(dir, "none", "log"), 0, 0))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = history.Open(dir, history.WithFile("x", 0, 0))
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	_, err = history.Open(dir)
	require.Error(t, err)
}

// FuzzOpen opens arbitrary files. What Open returns can be shown, within the bounds. A log
// after arbitrary bytes that are cut has all its terms.
func FuzzOpen(f *testing.F) {
	for _, seed := range []string{
		"", header, header + term(1) + term(2),
		header + `{"workers":[{"name":"w","state":"answering","tasks":3}]}` + "\n" + term(1),
		header + `{"term":{"stats":{},"changes":[{"op":"start","reason":"lost","task":"a","to":"w","was":"x","outcome":"failed"}],` +
			`"events":[{"worker":"w","after":{"state":"lost"}}]},"workers":[{"name":"w","removed":true}]}` + "\n" +
			`{"quiet":{"terms":3,"last":{"epoch":1,"number":4},"last_start":"2006-01-02T15:04:05Z"}}` + "\n" + header,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := write(t, map[string]string{"log": string(data)})
		opts := []history.Option{history.WithTerms(3), history.WithChanges(4)}
		if r, err := history.Open(path, opts...); err == nil {
			s := show(r.View(), []string{"", "w"}, []string{"", "a"})
			require.LessOrEqual(t, len(s.Terms), 3)
			for _, w := range s.Workers {
				require.Equal(t, len(s.Terms) > 0, len(r.View().Load(w.Name)) > 0)
			}
		}
		// The same bytes as the line of an earlier process that was killed.
		data = append([]byte(header), bytes.ReplaceAll(data, []byte("\n"), nil)...)
		path = write(t, map[string]string{"log": string(data) + "\n" + header + term(1) + term(2)})
		r, err := history.Open(path, opts...)
		require.NoError(t, err)
		read := numbers(r)
		require.Equal(t, []uint64{1, 2}, read[len(read)-2:])
	})
}

// TestOpen_FlippedBytes damages a log of a real fleet in many places: at most the damaged
// line is left out.
func TestOpen_FlippedBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	inBubble(t, logged(path), workers, tasks, func(_ *testing.T, f *fleet) { f.live(rand.New(rand.NewPCG(5, 5)), 20) })
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	whole, err := history.Open(path)
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(6, 6))
	for range 50 {
		damaged := bytes.Clone(text)
		at := len(header) + random.IntN(len(text)-len(header))
		damaged[at] ^= byte(1 + random.IntN(255))
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		r, err := history.Open(path)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(numbers(r)), len(numbers(whole))-2) // two, if it is the end of a line
	}
}
