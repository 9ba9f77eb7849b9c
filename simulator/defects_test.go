package simulator_test

// Deliberate defects: each file in testdata/defects breaks the library in one place,
// and the simulator must find it. The defects are not in the library itself; an
// overlay adds them when the test is built.

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var defects = flag.Bool("simulator.defects", false, "build the library once with each deliberate defect, and check that the simulator finds it")

// TestDefects needs the go command and the library's source. It builds and runs
// TestSimulate and TestSimulate_Goroutines for each defect.
func TestDefects(t *testing.T) {
	files, err := filepath.Glob("testdata/defects/*.txt")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 8)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel() // most of the time is spent in the linker, which uses one processor
			overlay := layOver(t, file)
			if !*defects {
				return // layOver has checked that the defect applies to the source
			}
			out, err := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-failfast", "-overlay", overlay, ".",
				"-run", "^TestSimulate(_Goroutines)?$", "-simulator.schedules", "10000", "-simulator.seed", "1").CombinedOutput()
			require.Error(t, err, "10,000 schedules found nothing")
			violation := regexp.MustCompile(`seed \d+, after .*: invariant .* violated: .*`).Find(out)
			require.NotNil(t, violation, "the test failed without a violation:\n%s", out)
			t.Logf("%s", violation)
		})
	}
}

// layOver makes an overlay for the go command from the description of a defect. The
// description begins with a text. Each place follows: a line with the file's name
// between dashes, the original text, which occurs once, a line with an arrow, and
// its replacement.
func layOver(t *testing.T, description string) (overlay string) {
	t.Helper()
	text, err := os.ReadFile(description)
	require.NoError(t, err)
	places := regexp.MustCompile(`(?m)^-- (.*) --\n`).FindAllSubmatchIndex(text, -1)
	require.NotEmpty(t, places)
	folder := t.TempDir()
	replace := make(map[string]string)
	for i, at := range places {
		end := len(text)
		if i+1 < len(places) {
			end = places[i+1][0]
		}
		was, is, ok := strings.Cut(string(text[at[1]:end]), "\n=>\n")
		require.True(t, ok, "no arrow")
		is = strings.TrimSuffix(is, "\n")

		path, err := filepath.Abs(filepath.Join("..", string(text[at[2]:at[3]])))
		require.NoError(t, err)
		from := path
		if broken, ok := replace[path]; ok {
			from = broken
		}
		source, err := os.ReadFile(from)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(source), was), "occurrences in %s of: %s", path, was)
		broken := filepath.Join(folder, strings.ReplaceAll(string(text[at[2]:at[3]]), "/", "_"))
		require.NoError(t, os.WriteFile(broken, []byte(strings.Replace(string(source), was, is, 1)), 0o600))
		replace[path] = broken
	}
	overlay = filepath.Join(folder, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, list, 0o600))
	return overlay
}
