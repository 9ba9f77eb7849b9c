package test

// README.md and the documents agree with the source.

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every log line, error and name that the documents for operators quote is in the source.
func TestDocs_QuotesExist(t *testing.T) {
	var source strings.Builder
	require.NoError(t, filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		_, _ = source.Write(text) // a strings.Builder returns no error
		return err
	}))
	n := 0
	for _, document := range []string{"../docs/operating.md", "../docs/replicas.md"} {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		prose := fence.ReplaceAllString(string(text), "")
		for _, quoted := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(prose, -1) {
			n++
			name, _, _ := strings.Cut(quoted[1], "().") // a call whose result is used
			if !strings.Contains(source.String(), name) {
				t.Errorf("%s quotes what is not in the source: %s", document, quoted[1])
			}
		}
	}
	require.Greater(t, n, 80)
}

var fence = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

// fenced returns the fenced blocks of a Markdown file by the language of their fence.
func fenced(t *testing.T, path string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	blocks := make(map[string][]string)
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		blocks[m[1]] = append(blocks[m[1]], m[2])
	}
	return blocks
}

// The program in README.md is examples/tenants, which is compiled and tested, but for the help
// where DATABASE_URL is not set.
func TestREADME_ProgramIsTheExample(t *testing.T) {
	source, err := os.ReadFile("../examples/tenants/main.go")
	require.NoError(t, err)
	_, program, ok := strings.Cut(string(source), "\npackage main\n")
	require.True(t, ok)
	program = strings.Replace(program, "databaseURL()", `os.Getenv("DATABASE_URL")`, 1)
	require.Equal(t, "package main\n"+program, fenced(t, "../README.md")["go"][0])
}

var link = regexp.MustCompile(`\]\(([^)#: ]+)(#[^)]*)?\)`)

// Every relative link in the documents leads to a file.
func TestREADME_LinksLeadToFiles(t *testing.T) {
	documents, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	root, err := filepath.Glob("../*.md")
	require.NoError(t, err)
	n := 0
	for _, path := range append(root, documents...) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
			n++
			_, err := os.Stat(filepath.Join(filepath.Dir(path), m[1]))
			require.NoError(t, err, "a link in %s", path)
		}
	}
	require.Greater(t, n, 10)
}

// Every Go file that a document names exists.
func TestDocs_FilesExist(t *testing.T) {
	var files strings.Builder
	require.NoError(t, filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		_, _ = files.WriteString(filepath.ToSlash(path) + "\n") // a strings.Builder returns no error
		return err
	}))
	documents, err := filepath.Glob("../*.md")
	require.NoError(t, err)
	more, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	for _, document := range append(documents, more...) {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, name := range regexp.MustCompile(`\b[\w/]+\.go\b`).FindAllString(string(text), -1) {
			if !strings.Contains(files.String(), "/"+name+"\n") {
				t.Errorf("%s names %s, which does not exist", document, name)
			}
		}
	}
}

// The list of files in DESIGN.md names every file of the library, and no others.
func TestDocs_FilesOfTheDesign(t *testing.T) {
	text, err := os.ReadFile("../DESIGN.md")
	require.NoError(t, err)
	_, list, ok := strings.Cut(string(text), "\n## Files\n")
	require.True(t, ok)
	_, list, _ = strings.Cut(list, "```\n")
	list, _, _ = strings.Cut(list, "```\n")
	var named []string
	folder := ""
	for line := range strings.Lines(list) {
		if words := strings.Fields(line); len(words) > 0 && line[0] != ' ' {
			folder = words[0]
			continue
		}
		for word := range strings.FieldsSeq(line) {
			if !strings.HasSuffix(word, ".go") {
				break
			}
			found, err := filepath.Glob(filepath.Join("..", folder, word))
			require.NoError(t, err)
			if len(found) == 0 {
				t.Errorf("DESIGN.md names %s in %s, which does not exist", word, folder)
			}
			named = append(named, found...)
		}
	}
	var files []string
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || slices.Contains([]string{"../examples", "../test", "../tools"}, filepath.ToSlash(path))):
			return filepath.SkipDir
		case strings.HasSuffix(name, ".go") && name != "doc.go" && !strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(name, ".pb.go"):
			files = append(files, path)
		}
		return nil
	}))
	for _, file := range files {
		if i := slices.Index(named, file); i >= 0 {
			named = slices.Delete(named, i, i+1)
		} else {
			t.Errorf("DESIGN.md does not name %s", file)
		}
	}
	require.Empty(t, named, "named twice, or no file of the library")
}
