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

// Every log line, error and name that docs/operating.md quotes is in the source.
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
	text, err := os.ReadFile("../docs/operating.md")
	require.NoError(t, err)
	n := 0
	for _, quoted := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(string(text), -1) {
		n++
		name, _, _ := strings.Cut(quoted[1], "().") // a call whose result is used
		if !strings.Contains(source.String(), name) {
			t.Errorf("not in the source: %s", quoted[1])
		}
	}
	require.Greater(t, n, 60)
}
