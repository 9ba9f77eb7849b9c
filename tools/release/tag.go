package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"
)

// tagging makes a release in a work tree of its own.
type tagging struct {
	*proxy
	root string // the repository
	tree string // its temporary work tree
	all  []*mod // the published modules are proxy.modules
}

// release makes the commit and the tags of a version. It works on the last commit of
// the repository at root, in a temporary work tree, and reports what it did. If do is
// false, it changes nothing at root, and reports what it would do.
func release(root, version string, do bool) (report string, err error) {
	if semver.Canonical(version) != version {
		return "", fmt.Errorf("%q is not a version such as v0.1.0", version)
	}
	if do {
		if status, err := git(root, "status", "--porcelain"); err != nil || status != "" {
			return "", errors.Join(errors.New("there are uncommitted changes"), err)
		}
	}
	work, err := os.MkdirTemp("", "release-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }()
	tree := filepath.Join(work, "tree")
	if _, err := git(root, "worktree", "add", "--detach", tree, "HEAD"); err != nil {
		return "", err
	}
	defer func() { _, _ = git(root, "worktree", "remove", "--force", tree) }()

	t := &tagging{root: root, tree: tree}
	if t.all, err = readModules(tree); err != nil {
		return "", err
	}
	published := slices.DeleteFunc(slices.Clone(t.all), func(m *mod) bool { return !m.isPublished() })
	if err := checkTags(root, published, version); err != nil {
		return "", err
	}
	if t.proxy, err = newProxy(filepath.Join(work, "proxy"), version, published); err != nil {
		return "", err
	}
	t.useCache(filepath.Join(work, "modules"))
	if err := t.commit(); err != nil {
		return "", err
	}
	return t.finish(do)
}

// checkTags returns an error if the version is not later than all others.
func checkTags(root string, modules []*mod, version string) error {
	tags, err := git(root, "tag", "--list")
	if err != nil {
		return err
	}
	for tag := range strings.FieldsSeq(tags) {
		for _, m := range modules {
			released, ok := strings.CutPrefix(tag, strings.TrimSuffix(m.tag("v"), "v"))
			if ok && semver.Compare(released, version) >= 0 {
				return fmt.Errorf("%s of %s is not later than %s", version, m.path, tag)
			}
		}
	}
	return nil
}

// commit commits the release in the work tree.
func (t *tagging) commit() error {
	if err := errors.Join(t.setReplaces(), t.setChangelog()); err != nil {
		return err
	}
	for _, m := range t.all {
		gomod, err := m.setVersion(t.modules, t.version)
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(t.tree, m.dir, "go.mod"), gomod); err != nil {
			return err
		}
	}
	if err := t.commitAll("--message", "Release "+t.version); err != nil {
		return err
	}
	// A module's go.sum has the checksums of those that it requires, so they come
	// first, as they will be downloaded.
	for _, m := range t.all {
		dir := filepath.Join(t.tree, m.dir)
		if _, err := t.goCommand(dir, "mod", "tidy"); err != nil {
			return fmt.Errorf("tidy %s: %w", m.path, err)
		}
		if err := t.commitAll("--amend", "--no-edit"); err != nil {
			return err
		}
		if !m.isPublished() {
			continue
		}
		gomod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil {
			return err
		}
		commit, err := git(t.tree, "rev-parse", "HEAD")
		if err != nil {
			return err
		}
		err = t.add(m, gomod, func(name string, v module.Version) error {
			return zipCommit(name, v, t.root, strings.TrimSpace(commit), m)
		})
		if err != nil {
			return fmt.Errorf("pack %s: %w", m.path, err)
		}
	}
	return nil
}

func (t *tagging) commitAll(options ...string) error {
	if _, err := git(t.tree, "add", "--all"); err != nil {
		return err
	}
	_, err := git(t.tree, append([]string{"commit", "--quiet"}, options...)...)
	return err
}

// zipCommit packs a module as the go command does when it downloads it.
func zipCommit(name string, v module.Version, repository, commit string, m *mod) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	dir := m.dir
	if dir == "." {
		dir = ""
	}
	return errors.Join(zip.CreateFromVCS(f, v, repository, commit, dir), f.Close())
}

// setReplaces sets the versions that go.work replaces: until the release is pushed,
// they cannot be downloaded.
func (t *tagging) setReplaces() error {
	name := filepath.Join(t.tree, "go.work")
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	workspace, err := modfile.ParseWork(name, data, nil)
	if err != nil {
		return err
	}
	text := string(data)
	for _, r := range workspace.Replace {
		text = strings.ReplaceAll(text, r.Old.Path+" "+r.Old.Version+" =>", r.Old.Path+" "+t.version+" =>")
	}
	return writeFile(name, []byte(text))
}

// setChangelog gives the unreleased changes the heading of the version.
func (t *tagging) setChangelog() error {
	const unreleased = "## [Unreleased]\n"
	name := filepath.Join(t.tree, "CHANGELOG.md")
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	before, after, ok := strings.Cut(string(data), unreleased)
	if !ok || strings.HasPrefix(strings.TrimSpace(after), "## ") || strings.TrimSpace(after) == "" {
		return errors.New("CHANGELOG.md has nothing under Unreleased")
	}
	heading := fmt.Sprintf("\n## [%s] - %s\n", strings.TrimPrefix(t.version, "v"), time.Now().Format(time.DateOnly))
	return writeFile(name, []byte(before+unreleased+heading+after))
}

// finish tags the commit and moves the branch at root to it, if do is true. It reports
// how.
func (t *tagging) finish(do bool) (report string, err error) {
	head, err := git(t.tree, "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	head = strings.TrimSpace(head)
	report, err = git(t.tree, "show", "--stat", "--format=%h %s", "HEAD")
	if err != nil {
		return "", err
	}
	commands := [][]string{{"merge", "--quiet", "--ff-only", head}}
	push := []string{"push", "--atomic", "origin", "HEAD"}
	for _, m := range t.modules {
		tag := m.tag(t.version)
		commands = append(commands, []string{"tag", "--annotate", tag, "--message", m.path + " " + t.version, head})
		push = append(push, tag)
	}
	for _, args := range commands {
		report += "git " + quoted(args) + "\n"
		if do {
			if _, err := git(t.root, args...); err != nil {
				return report, err
			}
		}
	}
	if do {
		report += "Done. This publishes it:\n"
	} else {
		report += "Nothing was changed. After a run with -do, this publishes it:\n"
	}
	return report + "git " + quoted(push) + "\n", nil
}

// quoted returns the arguments as a shell takes them.
func quoted(args []string) string {
	var words []string
	for _, a := range args {
		if strings.Contains(a, " ") {
			a = "'" + a + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

func git(dir string, args ...string) (string, error) { return run(dir, os.Environ(), "git", args...) }
