package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// rehearsal is a release that only its proxy knows.
type rehearsal struct {
	*proxy
	root string
	work string // a temporary folder
}

// rehearse packs the published modules, and then tries each.
func rehearse(root string) error {
	modules, err := readModules(root)
	if err != nil {
		return err
	}
	modules = slices.DeleteFunc(modules, func(m *mod) bool { return !m.isPublished() })
	work, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()

	// The version is a new one each time, so that the module cache, which is shared
	// to spare the downloads, cannot answer with an older rehearsal.
	version := fmt.Sprintf("v0.1.0-rehearsal.%d", time.Now().UnixNano())
	p, err := newProxy(filepath.Join(work, "proxy"), version, modules)
	if err != nil {
		return err
	}
	defer p.cleanCache()
	r := &rehearsal{proxy: p, root: root, work: work}
	for _, m := range modules {
		if err := r.pack(m); err != nil {
			return fmt.Errorf("pack %s: %w", m.path, err)
		}
	}
	for _, m := range modules {
		if err := r.try(m); err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
	}
	return nil
}

// folder returns the folder of a kind for a module. No such folder is in another,
// although modules are.
func (r *rehearsal) folder(kind string, m *mod) string {
	return filepath.Join(r.work, kind, strings.ReplaceAll(m.path, "/", "_"))
}

// source returns the folder with the module's packed files, unpacked again.
func (r *rehearsal) source(m *mod) string { return r.folder("src", m) }

// pack adds the module to the proxy, requiring the rehearsed version of its siblings.
// It packs the files in the tree, which need not be committed.
func (r *rehearsal) pack(m *mod) error {
	gomod, err := m.setVersion(r.modules, r.version)
	if err != nil {
		return err
	}
	return r.add(m, gomod, func(name string, v module.Version) error {
		// Packed, unpacked, and packed again with the final go.mod: between the two,
		// the source has exactly what the rules let into a module.
		if err := zipFolder(name, v, filepath.Join(r.root, m.dir)); err != nil {
			return err
		}
		if err := zip.Unzip(r.source(m), v, name); err != nil {
			return err
		}
		if err := writeFile(filepath.Join(r.source(m), "go.mod"), gomod); err != nil {
			return err
		}
		return zipFolder(name, v, r.source(m))
	})
}

func zipFolder(name string, v module.Version, dir string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(zip.CreateFromDir(f, v, dir), f.Close())
}

// try builds the packed module, and then a user of its public packages.
func (r *rehearsal) try(m *mod) error {
	src := r.source(m)
	before, err := os.ReadFile(filepath.Join(src, "go.mod"))
	if err != nil {
		return err
	}
	for _, args := range [][]string{{"vet", "./..."}, {"build", "./..."}, {"mod", "tidy"}} { // vet builds the tests too
		if _, err := r.goCommand(src, args...); err != nil {
			return err
		}
	}
	after, err := os.ReadFile(filepath.Join(src, "go.mod"))
	if err != nil {
		return err
	}
	if !bytes.Equal(before, after) {
		return fmt.Errorf("go.mod is not tidy; it should say:\n%s", after)
	}

	out, err := r.goCommand(src, "list", "-f", `{{if and .GoFiles (ne .Name "main")}}{{.ImportPath}}{{end}}`, "./...")
	if err != nil {
		return err
	}
	public := slices.DeleteFunc(strings.Fields(out), func(p string) bool {
		return slices.Contains(strings.Split(p, "/"), "internal")
	})
	if err := r.tryUser(m, public); err != nil {
		return fmt.Errorf("a user of %s: %w", strings.Join(public, ", "), err)
	}
	fmt.Printf("%s %s: builds alone, and in a program that imports its %d public packages\n", m.path, r.version, len(public))
	return nil
}

// tryUser vets and runs a program that imports the packages.
func (r *rehearsal) tryUser(m *mod, packages []string) error {
	dir := r.folder("user", m)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var main strings.Builder
	main.WriteString("package main\n\nimport (\n")
	for _, p := range packages {
		fmt.Fprintf(&main, "\t_ %q\n", p)
	}
	main.WriteString(")\n\nfunc main() {}\n")
	gomod := fmt.Sprintf("module example.com/user\n\ngo %s\n\nrequire %s %s\n", m.file.Go.Version, m.path, r.version)
	if err := errors.Join(
		writeFile(filepath.Join(dir, "main.go"), []byte(main.String())),
		writeFile(filepath.Join(dir, "go.mod"), []byte(gomod)),
	); err != nil {
		return err
	}
	if _, err := r.goCommand(dir, "vet", "."); err != nil {
		return err
	}
	_, err := r.goCommand(dir, "run", ".")
	return err
}
