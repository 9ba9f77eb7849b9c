package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
)

// tree is a repository with two published modules and a program.
var tree = map[string]string{
	"go.mod":            "module example.com/tree\n\ngo 1.26.0\n",
	"tree.go":           "package tree\n",
	"LICENSE":           "Take it.\n",
	"CHANGELOG.md":      "# Changelog\n\n## [Unreleased]\n\n- a branch\n",
	"branch/go.mod":     "module example.com/tree/branch\n\ngo 1.26.0\n\nrequire example.com/tree v0.0.0\n",
	"branch/branch.go":  "package branch\n\nimport _ \"example.com/tree\"\n",
	"examples/a/go.mod": "module example.com/tree/examples/a\n\ngo 1.26.0\n\nrequire example.com/tree/branch v0.0.0\n\nrequire example.com/tree v0.0.0 // indirect\n",
	"examples/a/a.go":   "package main\n\nimport _ \"example.com/tree/branch\"\n\nfunc main() {}\n",
	"go.work": "go 1.26.0\n\nuse (\n\t.\n\t./examples/a\n\t./branch\n)\n\nreplace (\n" +
		"\texample.com/tree v0.0.0 => .\n\texample.com/tree/branch v0.0.0 => ./branch\n)\n",
}

func plant(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range tree {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := writeFile(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, env := range []string{"AUTHOR", "COMMITTER"} {
		t.Setenv("GIT_"+env+"_NAME", "test")
		t.Setenv("GIT_"+env+"_EMAIL", "test@example.com")
	}
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOMODCACHE", t.TempDir())
	mustGit(t, root, "init", "--quiet")
	mustGit(t, root, "add", ".")
	mustGit(t, root, "commit", "--quiet", "--message", "first")
	return root
}

func mustGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := git(dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func read(t *testing.T, root, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestRelease(t *testing.T) {
	root := plant(t)
	first := mustGit(t, root, "rev-parse", "HEAD")

	report, err := release(root, "v0.1.0", false)
	if err != nil {
		t.Fatal(err)
	}
	if now := mustGit(t, root, "rev-parse", "HEAD"); now != first || mustGit(t, root, "tag") != "" || mustGit(t, root, "status", "--porcelain") != "" {
		t.Error("a release without -do changes the repository")
	}
	want := "git push --atomic origin HEAD v0.1.0 branch/v0.1.0\n" // in the order of requirements
	if !strings.HasSuffix(report, want) {
		t.Errorf("the report should end in %q:\n%s", want, report)
	}

	if _, err := release(root, "v0.1.0", true); err != nil {
		t.Fatal(err)
	}
	if tags := mustGit(t, root, "tag", "--points-at", "HEAD"); tags != "branch/v0.1.0\nv0.1.0" {
		t.Errorf("tags of the last commit: %q", tags)
	}
	if parent := mustGit(t, root, "rev-parse", "HEAD^"); parent != first {
		t.Error("the release is not one commit")
	}
	for name, want := range map[string]string{
		"branch/go.mod":     "require example.com/tree v0.1.0\n",
		"examples/a/go.mod": "require example.com/tree/branch v0.1.0\n",
		"go.work":           "example.com/tree/branch v0.1.0 => ./branch\n",
		"CHANGELOG.md":      "## [Unreleased]\n\n## [0.1.0] - ",
	} {
		if text := read(t, root, name); !strings.Contains(text, want) || strings.Contains(text, "v0.0.0") {
			t.Errorf("%s should contain %q:\n%s", name, want, text)
		}
	}
	if _, err := run(root, os.Environ(), "go", "build", "work"); err != nil {
		t.Error(err)
	}

	// The checksums are those of the tags.
	for _, m := range []*mod{{path: "example.com/tree", dir: "."}, {path: "example.com/tree/branch", dir: "branch"}} {
		name := filepath.Join(t.TempDir(), "module.zip")
		v := module.Version{Path: m.path, Version: "v0.1.0"}
		if err := zipCommit(name, v, root, m.tag("v0.1.0"), m); err != nil {
			t.Fatal(err)
		}
		sum, err := dirhash.HashZip(name, dirhash.Hash1)
		if err != nil {
			t.Fatal(err)
		}
		if want := m.path + " v0.1.0 " + sum + "\n"; !strings.Contains(read(t, root, "examples/a/go.sum"), want) {
			t.Errorf("go.sum does not contain %q", want)
		}
	}
}

func TestRelease_Refused(t *testing.T) {
	root := plant(t)
	mustGit(t, root, "tag", "branch/v0.2.0")
	for _, version := range []string{"0.3.0", "v0.3", "v0.1.9", "v0.2.0", "v0.2.0-rc.1"} {
		if _, err := release(root, version, true); err == nil {
			t.Errorf("%s was released", version)
		}
	}
	if err := writeFile(filepath.Join(root, "new"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := release(root, "v0.3.0", true); err == nil {
		t.Error("a tree with uncommitted changes was released")
	}
	mustGit(t, root, "add", ".")
	mustGit(t, root, "commit", "--quiet", "--message", "second")
	if _, err := release(root, "v0.3.0", true); err != nil {
		t.Error(err)
	}
	if _, err := release(root, "v0.4.0", true); err == nil {
		t.Error("a version without changes was released")
	}
}

func TestInOrder(t *testing.T) {
	root := plant(t)
	modules, err := readModules(root)
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for _, m := range modules {
		dirs = append(dirs, m.dir)
	}
	if got := strings.Join(dirs, " "); got != ". branch examples/a" {
		t.Errorf("order: %s", got)
	}
	if err := modules[0].file.AddRequire("example.com/tree/branch", "v0.0.0"); err != nil {
		t.Fatal(err)
	}
	if _, err := inOrder(modules); err == nil {
		t.Error("a cycle has an order")
	}
}
