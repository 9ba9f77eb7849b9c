// Command release rehearses a release: it packs the modules of a tree into a
// folder that serves as a module proxy, then builds every module, and a
// scratch user of every module, from what was packed. What a user will get is
// what is tested: no workspace, no replace, nothing that only this tree has.
//
//	go run ./release -root ..
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

func main() {
	root := flag.String("root", ".", "the `folder` of the root module")
	flag.Parse()
	if err := rehearse(*root); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// rehearse packs all modules first, because they may require each other, then
// tries each.
func rehearse(root string) error {
	dirs, err := publishedModules(root)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()

	// The version is a new one each time, so that the module cache, which is
	// shared to spare the downloads, can never answer with an older rehearsal.
	r := &rehearsal{work: work, version: fmt.Sprintf("v0.1.0-rehearsal.%d", time.Now().UnixNano())}
	for _, dir := range dirs {
		m, err := readModule(root, dir)
		if err != nil {
			return err
		}
		r.modules = append(r.modules, m)
	}
	if err := r.setEnv(); err != nil {
		return err
	}
	defer r.cleanCache()
	for _, m := range r.modules {
		if err := r.pack(m); err != nil {
			return fmt.Errorf("pack %s: %w", m.path, err)
		}
	}
	for _, m := range r.modules {
		if err := r.try(m); err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
	}
	return nil
}

// publishedModules finds the folders, relative to root, of the modules that
// are released. The tools, the measurements and the examples are only run from
// a clone.
func publishedModules(root string) ([]string, error) {
	var dirs []string
	err := fs.WalkDir(os.DirFS(root), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"tools", "bench", "examples"}, p):
			return fs.SkipDir
		case d.IsDir() && p != "." && (strings.ContainsAny(d.Name()[:1], "._") || d.Name() == "testdata"):
			return fs.SkipDir
		case d.Name() == "go.mod" && !d.IsDir():
			dirs = append(dirs, path.Dir(p))
		}
		return nil
	})
	if err == nil && len(dirs) == 0 {
		err = errors.New("no go.mod in " + root)
	}
	return dirs, err
}

type mod struct {
	path string
	dir  string // in the tree
	src  string // the packed files, unpacked again
	file *modfile.File
}

// readModule reads dir's go.mod and refuses what would break its users.
func readModule(root, dir string) (*mod, error) {
	name := filepath.Join(root, dir, "go.mod")
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	f, err := modfile.Parse(name, data, nil)
	if err != nil {
		return nil, err
	}
	if len(f.Replace) > 0 || len(f.Exclude) > 0 {
		return nil, fmt.Errorf("%s: replace and exclude belong in go.work: users do not get them", name)
	}
	if dir != "." && !strings.HasSuffix(f.Module.Mod.Path, "/"+dir) {
		return nil, fmt.Errorf("%s: module %s does not end in its folder, %s", name, f.Module.Mod.Path, dir)
	}
	return &mod{path: f.Module.Mod.Path, dir: filepath.Join(root, dir), file: f}, nil
}

type rehearsal struct {
	work     string
	version  string
	env      []string
	modcache string
	modules  []*mod
}

// setEnv prepares the environment of the go commands: modules of this tree
// come from the packed folder and have no checksum anywhere; all others come
// from where they always come from.
func (r *rehearsal) setEnv() error {
	r.env = os.Environ()
	out, err := r.goCmd(".", "env", "GOPROXY", "GOMODCACHE", "GONOSUMDB")
	if err != nil {
		return err
	}
	vars := strings.Split(out, "\n")
	proxy, noSum := vars[0], vars[2]
	for _, m := range r.modules {
		noSum += "," + m.path
	}
	r.modcache = vars[1]
	r.env = append(r.env,
		"GOWORK=off",
		"GOFLAGS=-mod=mod -modcacherw",
		"GOPROXY=file://"+filepath.ToSlash(r.proxyDir())+","+proxy,
		"GONOPROXY=none", "GONOSUMDB="+strings.TrimPrefix(noSum, ","),
	)
	return nil
}

func (r *rehearsal) proxyDir() string { return filepath.Join(r.work, "proxy") }

// folder keeps modules beside each other, though one is nested in another.
func (r *rehearsal) folder(kind string, m *mod) string {
	return filepath.Join(r.work, kind, strings.ReplaceAll(m.path, "/", "_"))
}

// pack writes the module into the proxy's folder, requiring the rehearsed
// version of the modules beside it, as the release will.
func (r *rehearsal) pack(m *mod) error {
	v := module.Version{Path: m.path, Version: r.version}
	for _, req := range m.file.Require {
		if slices.ContainsFunc(r.modules, func(o *mod) bool { return o.path == req.Mod.Path }) {
			if err := m.file.AddRequire(req.Mod.Path, r.version); err != nil {
				return err
			}
		}
	}
	m.file.Cleanup()
	gomod, err := m.file.Format()
	if err != nil {
		return err
	}

	// Packed, unpacked, and packed again with the final go.mod: what lies in
	// m.src between the two is exactly what the rules let into a module.
	escaped, err := module.EscapePath(m.path)
	if err != nil {
		return err
	}
	at := filepath.Join(r.proxyDir(), filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	file := filepath.Join(at, r.version)
	m.src = r.folder("src", m)
	if err := writeZip(file+".zip", v, m.dir); err != nil {
		return err
	}
	if err := zip.Unzip(m.src, v, file+".zip"); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(m.src, "go.mod"), gomod); err != nil {
		return err
	}
	if err := writeZip(file+".zip", v, m.src); err != nil {
		return err
	}
	info := fmt.Sprintf(`{"Version":%q,"Time":%q}`, r.version, time.Now().UTC().Format(time.RFC3339))
	return errors.Join(
		writeFile(file+".mod", gomod),
		writeFile(file+".info", []byte(info)),
		writeFile(filepath.Join(at, "list"), []byte(r.version+"\n")),
	)
}

// try builds the packed module, then a user of its public packages.
func (r *rehearsal) try(m *mod) error {
	before, err := os.ReadFile(filepath.Join(m.src, "go.mod"))
	if err != nil {
		return err
	}
	if _, err := r.goCmd(m.src, "vet", "./..."); err != nil { // tests too
		return err
	}
	if _, err := r.goCmd(m.src, "build", "./..."); err != nil {
		return err
	}
	if _, err := r.goCmd(m.src, "mod", "tidy"); err != nil {
		return err
	}
	after, err := os.ReadFile(filepath.Join(m.src, "go.mod"))
	if err != nil {
		return err
	}
	if !bytes.Equal(before, after) {
		return fmt.Errorf("go.mod is not tidy; it should say:\n%s", after)
	}

	out, err := r.goCmd(m.src, "list", "-f", `{{if and .GoFiles (ne .Name "main")}}{{.ImportPath}}{{end}}`, "./...")
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

// tryUser compiles, vets and runs a program that imports the packages.
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
	if _, err := r.goCmd(dir, "vet", "."); err != nil {
		return err
	}
	_, err := r.goCmd(dir, "run", ".")
	return err
}

func (r *rehearsal) goCmd(dir string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, r.env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s%s", strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return string(out), nil
}

// cleanCache takes the rehearsed versions out of the shared module cache.
func (r *rehearsal) cleanCache() {
	for _, m := range r.modules {
		escaped, err := module.EscapePath(m.path)
		if err != nil {
			continue
		}
		p := filepath.FromSlash(escaped)
		_ = os.RemoveAll(filepath.Join(r.modcache, p+"@"+r.version))
		files, _ := filepath.Glob(filepath.Join(r.modcache, "cache", "download", p, "@v", r.version+".*"))
		for _, f := range files {
			_ = os.Remove(f)
		}
	}
}

func writeZip(name string, v module.Version, dir string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(zip.CreateFromDir(f, v, dir), f.Close())
}

func writeFile(name string, data []byte) error { return os.WriteFile(name, data, 0o644) }
