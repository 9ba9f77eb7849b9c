package test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every symptom in docs/operating.md is a text of the source.
func TestDocs_TheSymptomsExist(t *testing.T) {
	var source strings.Builder
	require.NoError(t, filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		_, _ = source.Write(text) // a strings.Builder returns no error
		return err
	}))
	text, err := os.ReadFile("../docs/operating.md")
	require.NoError(t, err)
	symptoms, _, ok := strings.Cut(string(text), "\n## Settings")
	require.True(t, ok)
	n := 0
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]*) \|`).FindAllStringSubmatch(symptoms, -1) {
		for _, quoted := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(row[1], -1) {
			n++
			if !strings.Contains(source.String(), quoted[1]) {
				t.Errorf("not in the source: %s", quoted[1])
			}
		}
	}
	require.Greater(t, n, 25)
}
