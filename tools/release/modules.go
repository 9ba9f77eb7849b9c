package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// mod is a module of the tree.
type mod struct {
	path string
	dir  string // relative to the root, with slashes; "." is the root module
	file *modfile.File
}

// isPublished reports whether the module is released. Examples are only run from a clone.
func (m *mod) isPublished() bool {
	top, _, _ := strings.Cut(m.dir, "/")
	return top != "examples"
}

// tag returns the name of the tag that makes the version of the module.
func (m *mod) tag(version string) string { return path.Join(m.dir, version) }

// readModules reads the modules of the workspace. Each is after those that it
// requires.
func readModules(root string) ([]*mod, error) {
	name := filepath.Join(root, "go.work")
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	workspace, err := modfile.ParseWork(name, data, nil)
	if err != nil {
		return nil, err
	}
	var modules []*mod
	for _, use := range workspace.Use {
		m, err := readModule(root, path.Clean(use.Path))
		if err != nil {
			return nil, err
		}
		modules = append(modules, m)
	}
	return inOrder(modules)
}

// readModule reads the go.mod in dir, and refuses what would break its users.
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
	return &mod{path: f.Module.Mod.Path, dir: dir, file: f}, nil
}

// inOrder sorts modules so that each is after those that it requires.
func inOrder(modules []*mod) ([]*mod, error) {
	var sorted []*mod
	for len(sorted) < len(modules) {
		i := slices.IndexFunc(modules, func(m *mod) bool {
			return !slices.Contains(sorted, m) && !slices.ContainsFunc(modules, func(o *mod) bool {
				return m.requires(o) && !slices.Contains(sorted, o)
			})
		})
		if i < 0 {
			return nil, errors.New("modules require each other")
		}
		sorted = append(sorted, modules[i])
	}
	return sorted, nil
}

func (m *mod) requires(o *mod) bool {
	return slices.ContainsFunc(m.file.Require, func(r *modfile.Require) bool { return r.Mod.Path == o.path })
}

// setVersion returns the module's go.mod, requiring version of its siblings.
func (m *mod) setVersion(siblings []*mod, version string) ([]byte, error) {
	for _, o := range siblings {
		if m.requires(o) {
			if err := m.file.AddRequire(o.path, version); err != nil {
				return nil, err
			}
		}
	}
	m.file.Cleanup()
	return m.file.Format()
}

// proxy serves modules to the go command from a folder.
type proxy struct {
	dir     string
	version string
	modules []*mod // what it may serve

	env      []string
	others   string // the proxies of all other modules
	modcache string
}

// newProxy prepares the environment of the go command. It serves this tree's modules
// from dir, without checksums; all other modules use the configured GOPROXY.
func newProxy(dir, version string, modules []*mod) (*proxy, error) {
	p := &proxy{dir: dir, version: version, modules: modules, env: os.Environ()}
	out, err := p.goCommand(".", "env", "GOPROXY", "GOMODCACHE", "GONOSUMDB")
	if err != nil {
		return nil, err
	}
	vars := strings.Split(out, "\n")
	others, noSum := vars[0], vars[2]
	for _, m := range modules {
		noSum += "," + m.path
	}
	p.modcache, p.others = vars[1], others
	p.env = append(p.env,
		"GOWORK=off",
		"GOFLAGS=-mod=mod -modcacherw",
		"GOPROXY=file://"+filepath.ToSlash(dir)+","+others,
		"GONOPROXY=none", "GONOSUMDB="+strings.TrimPrefix(noSum, ","),
	)
	return p, nil
}

// useCache keeps downloaded modules in a folder, instead of in the shared cache. A
// version that will be published needs that: the go command assumes that a version
// never changes, and keeps an index of its files in the build cache, by folder.
func (p *proxy) useCache(dir string) {
	shared := filepath.Join(p.modcache, "cache", "download")
	p.modcache = dir
	p.env = append(p.env,
		"GOMODCACHE="+dir,
		"GOPROXY=file://"+filepath.ToSlash(p.dir)+",file://"+filepath.ToSlash(shared)+","+p.others,
	)
}

// add adds a module. writeZip creates its zip with the given name.
func (p *proxy) add(m *mod, gomod []byte, writeZip func(name string, v module.Version) error) error {
	escaped, err := module.EscapePath(m.path)
	if err != nil {
		return err
	}
	at := filepath.Join(p.dir, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	file := filepath.Join(at, p.version)
	if err := writeZip(file+".zip", module.Version{Path: m.path, Version: p.version}); err != nil {
		return err
	}
	info := fmt.Sprintf(`{"Version":%q,"Time":%q}`, p.version, time.Now().UTC().Format(time.RFC3339))
	return errors.Join(
		writeFile(file+".mod", gomod),
		writeFile(file+".info", []byte(info)),
		writeFile(filepath.Join(at, "list"), []byte(p.version+"\n")),
	)
}

func (p *proxy) goCommand(dir string, args ...string) (string, error) {
	return run(dir, p.env, "go", args...)
}

// cleanCache removes the proxy's versions from the shared module cache.
func (p *proxy) cleanCache() {
	for _, m := range p.modules {
		escaped, err := module.EscapePath(m.path)
		if err != nil {
			continue
		}
		dir := filepath.FromSlash(escaped)
		_ = os.RemoveAll(filepath.Join(p.modcache, dir+"@"+p.version))
		files, _ := filepath.Glob(filepath.Join(p.modcache, "cache", "download", dir, "@v", p.version+".*"))
		for _, f := range files {
			_ = os.Remove(f)
		}
	}
}

func writeFile(name string, data []byte) error { return os.WriteFile(name, data, 0o644) }

// run returns the standard output of a command. Its error contains all output.
func run(dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return string(out), nil
}
