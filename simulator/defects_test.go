package simulator_test

// Deliberate defects: each file in testdata/defects breaks the library in one place,
// and the simulator or the test that it names must find it. The defects are not in the library
// itself; an overlay adds them when the test is built.

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

var defects = flag.Bool("simulator.defects", false, "build the library once with each deliberate defect, and check that it is found")

// foundBy is the line of a description that names a test which fails with the defect: its
// package and its -run pattern. Without such a line, the simulator finds the defect.
var foundBy = regexp.MustCompile(`(?m)^found by: (\S+) (\S+)\n`)

// TestDefects needs the go command and the library's source. It builds and runs
// TestSimulate, or the named test, for each defect.
func TestDefects(t *testing.T) {
	files, err := filepath.Glob("testdata/defects/*.txt")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 108)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel() // most of the time is spent in the linker, which uses one processor
			overlay, text := layOver(t, file)
			if !*defects {
				return // layOver has checked that the defect applies to the source
			}
			folder, pattern, failure := ".", "^TestSimulate$", `seed \d+, after .*: invariant .* violated: .*`
			args := []string{"-simulator.schedules", "2000", "-simulator.seed", "1"} // none of which fails by itself
			if test := foundBy.FindSubmatch(text); test != nil {
				args = nil
				folder, pattern, failure = "../"+string(test[1]), string(test[2]), `--- FAIL: \S+`
			}
			args = append([]string{"test", "-vet=off", "-count=1", "-failfast", "-overlay", overlay, "-run", pattern, folder}, args...)
			out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
			require.Error(t, err, "%s of %s found nothing", pattern, folder)
			found := regexp.MustCompile(failure + `|panic: .*`).Find(out) // a broken library may end the process
			require.NotNil(t, found, "the test failed for another reason:\n%s", out)
			t.Logf("%s", found)
		})
	}
}

// layOver makes an overlay for the go command from the description of a defect, and returns
// the description. It begins with a text, and may then name a test; see foundBy. Each place
// follows: a line with the file's name between dashes, the original text, which occurs once, a
// line with an arrow, and its replacement.
func layOver(t *testing.T, description string) (overlay string, text []byte) {
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
	return overlay, text
}
