package proctest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// programs is the environment variable that makes a missing program an error if its value is
// "required", as in .ci/run.
const programs = "ORCHESTRATOR_PROGRAMS"

// Program returns the path of an installed program that the test needs. Each name is one in
// the PATH or a pattern of absolute paths. The first name that is found is taken, and of the
// matches of a pattern the last one in order. Without the program the test is skipped, with
// one line that names the Debian package. If the environment has
// ORCHESTRATOR_PROGRAMS=required, it fails instead.
func Program(t testing.TB, debianPackage string, names ...string) string {
	t.Helper()
	path, ok := Lookup(t, debianPackage, names...)
	if !ok {
		Missing(t, debianPackage)
	}
	return path
}

// Lookup is Program for a test that has a substitute. Where Program would skip the test, it
// returns false.
func Lookup(t testing.TB, debianPackage string, names ...string) (path string, ok bool) {
	t.Helper()
	for _, name := range names {
		candidates := []string{name}
		if filepath.IsAbs(name) {
			var err error
			if candidates, err = filepath.Glob(name); err != nil {
				t.Fatalf("find %s: %v", name, err)
			}
		}
		for _, c := range candidates {
			if found, err := exec.LookPath(c); err == nil {
				path, ok = found, true
			}
		}
		if ok {
			return path, true
		}
	}
	if os.Getenv(programs) == "required" {
		t.Fatalf("%s is not installed: apt-get install %s", names[0], debianPackage)
	}
	return "", false
}

// Missing skips the test, or fails it if programs are required.
func Missing(t testing.TB, debianPackages string) {
	t.Helper()
	if os.Getenv(programs) == "required" {
		t.Fatalf("not installed: apt-get install %s", debianPackages)
	}
	t.Skipf("not installed: apt-get install %s", debianPackages)
}
