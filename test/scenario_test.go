package test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/scenario"
)

var rewrite = flag.Bool("rewrite", false, "write the output of the transcripts into their files")

// Each transcript in testdata has the output that its commands produce.
//
//	go test ./test -run Scenario           compares
//	go test ./test -run Scenario -rewrite  writes the output into the files
//
// Read the difference before you commit it: it is what a user will see. Package
// scenario describes the commands and the output.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 20)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			var got string
			synctest.Test(t, func(t *testing.T) { got = scenario.Play(t, string(want)) })
			if *rewrite {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
				return
			}
			require.Equal(t, string(want), got, "to accept this: go test ./test -run Scenario -rewrite")
		})
	}
}
