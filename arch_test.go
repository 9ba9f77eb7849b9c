package orchestrator_test

import (
	"bytes"
	"encoding/json"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pure is what the pure packages may import of the standard library: nothing that
// waits, reads or writes. The line of a package that needs a few more starts with it too.
const pure = "cmp errors fmt iter maps math math/bits slices strings "

// mayImport is the architecture: for each package of the workspace, what its code may
// import, without its tests, on any system and with any build tags. A new package needs a
// line here.
//
//	.         the root package
//	worker    the package in that folder, but none below it
//	std       the standard library
//	time      that package of the standard library
//	x.org/y   the packages of other modules at and below that path
var mayImport = map[string]string{
	"rebalance":         pure + "math/big", // big for exact sums by share
	"internal/handover": pure,
	"internal/term":     pure + "time rebalance internal/handover", // time for instants and durations
	"internal/ascii":    "std",
	"internal/backoff":  "std",
	"internal/loglimit": "std",
	"internal/panics":   "std",
	".":                 "std rebalance internal/handover internal/loglimit internal/panics internal/term",

	"recruit":        "std internal/loglimit internal/panics",
	"internal/lease": "std golang.org/x/sys/unix",
	"worker":         "std . internal/backoff internal/lease internal/panics",

	"communicator":                  "std .",
	"communicator/communicatortest": "std .", // linked into the tests of users: no test library
	"communicator/memory":           "std . worker",
	"simulator":                     "std . rebalance worker communicator/communicatortest communicator/memory",
	"history":                       "std .",
	"stats":                         "std . worker recruit replica github.com/prometheus/client_golang/prometheus",

	"dashboard/api": "std . history",
	"dashboard":     "std . dashboard/api history",

	// Modules of their own.
	"communicator/grpc": "std . worker google.golang.org " +
		"communicator/grpc/internal/identity communicator/grpc/internal/option communicator/grpc/internal/peer " +
		"communicator/grpc/internal/state communicator/grpc/internal/wire communicator/grpc/orchestratorv1",
	"communicator/grpc/manager": "std . worker internal/backoff internal/loglimit google.golang.org communicator/grpc " +
		"communicator/grpc/manager/internal/membership communicator/grpc/internal/identity communicator/grpc/internal/option communicator/grpc/internal/peer " +
		"communicator/grpc/internal/state communicator/grpc/internal/wire communicator/grpc/orchestratorv1",
	"communicator/grpc/manager/internal/membership": "std . worker internal/backoff",
	"communicator/grpc/internal/identity":           "std .",
	"communicator/grpc/internal/peer":               "std . internal/loglimit communicator/grpc/internal/identity communicator/grpc/orchestratorv1 google.golang.org",
	"communicator/grpc/internal/option": "std . communicator/grpc/internal/peer communicator/grpc/internal/state communicator/grpc/internal/wire " +
		"google.golang.org/grpc",
	"communicator/grpc/internal/state": pure + "bytes crypto/hmac crypto/rand crypto/sha256 encoding/binary encoding/hex encoding/json strconv sync time " +
		". communicator/grpc/internal/identity",
	"communicator/grpc/internal/wire": "std . worker communicator/grpc/internal/identity communicator/grpc/internal/state communicator/grpc/orchestratorv1 " +
		"google.golang.org",
	"communicator/grpc/orchestratorv1": "std google.golang.org",
	"communicator/grpc/boltfile":       "std worker go.etcd.io/bbolt",

	"replica":             "std . worker internal/backoff internal/loglimit internal/panics",
	"replica/memory":      "std replica internal/backoff",
	"replica/admin":       "std . replica dashboard stats github.com/prometheus/client_golang",
	"replica/backendtest": "std . replica", // linked into the tests of users: no test library
	"replica/postgres":    "std replica internal/ascii github.com/jackc/pgx",
	"replica/etcd":        "std . replica internal/ascii go.etcd.io/etcd google.golang.org/grpc",
	"replica/etcd/embed":  "std go.etcd.io go.uber.org/zap google.golang.org/grpc",
	"replica/kubernetes":  "std . replica internal/ascii internal/backoff",
	"simulator/model":     "std",

	// Programs.
	"cmd/orchctl":             "std . dashboard dashboard/api history internal/backoff",
	"examples/allocator":      "std . worker replica replica/admin replica/etcd replica/etcd/embed dashboard examples/allocator/api go.etcd.io/etcd go.uber.org/zap golang.org/x/net google.golang.org/grpc",
	"examples/allocator/api":  "std . replica replica/etcd go.etcd.io/etcd golang.org/x/sync",
	"examples/dashboard":      "std . communicator/memory dashboard examples/internal/stage",
	"examples/dryrun":         "std . communicator",
	"examples/manager":        "std . worker dashboard communicator/grpc communicator/grpc/boltfile communicator/grpc/manager examples/internal/stage",
	"examples/placement":      "std . worker communicator/grpc communicator/grpc/manager examples/internal/stage",
	"examples/quickstart":     "std . worker examples/internal/stage",
	"examples/recruit":        "std recruit examples/internal/stage github.com/gomodule/redigo github.com/alicebob golang.org/x/sync",
	"examples/service":        "std log replica replica/admin replica/postgres github.com/jackc/pgx",
	"examples/replicas":       "std . worker replica replica/memory replica/postgres examples/internal/stage github.com/jackc/pgx",
	"examples/internal/stage": "std .",
	"examples/tenants":        "std log replica replica/postgres github.com/jackc/pgx",
	"examples/ticker":         "std . communicator/memory",
	"examples/bench": "std . rebalance recruit worker history dashboard communicator/memory communicator/grpc/manager communicator/grpc/orchestratorv1 " +
		"internal/netfault examples/bench/replicas github.com/IBM/sarama github.com/dgryski/go-jump github.com/twmb/franz-go google.golang.org/grpc",
	"examples/bench/replicas": "std",

	// For tests.
	"communicator/grpc/e2e":               "",
	"examples/browsertest":                "",
	"communicator/grpc/internal/grpctest": "std communicator/grpc/orchestratorv1 google.golang.org",
	"examples/internal/stage/stagetest":   "std examples/internal/stage",
	"internal/netfault":                   "std",
	"internal/pgtest":                     "std internal/proctest golang.org/x/sys/unix",
	"internal/kubetest":                   "std internal/proctest",
	"internal/proctest":                   "std golang.org/x/sys/unix",
	"internal/scenario":                   "std . communicator/memory",
	"internal/testca":                     "std",
	"test":                                "",
	"test/lives":                          "",
	"replica/etcd/internal/server":        "std replica/etcd/embed",
	"replica/postgres/e2e":                "",
}

// mayLink names what only some packages may link, directly or through others. The tests
// of all other packages may not import it. etcd/... is etcd and everything below it.
var mayLink = map[string]string{
	// Prometheus makes a binary four times as large. The etcd server links it.
	"github.com/prometheus": "stats replica/admin replica/etcd/embed replica/etcd/internal/server examples/...",
	"go.etcd.io/bbolt":      "communicator/grpc/boltfile replica/etcd/embed replica/etcd/internal/server examples/...",
	"go.etcd.io/etcd":       "replica/etcd/... examples/...",
	// Some sixty modules.
	"go.etcd.io/etcd/server": "replica/etcd/embed replica/etcd/internal/server examples/...",
	// Replicas and managers do not know each other.
	"communicator/grpc":    "communicator/grpc/... examples/...",
	"github.com/jackc/pgx": "replica/postgres/... examples/...",
	"github.com/chromedp":  "examples/browsertest",
	// Other systems, to be measured beside this one.
	"github.com/IBM/sarama":      "examples/bench",
	"github.com/twmb/franz-go":   "examples/bench",
	"github.com/dgryski/go-jump": "examples/bench",
}

// testsOnly is what only tests may link, and packages of the workspace that may link it
// outside of their tests too.
var testsOnly = map[string]string{
	"github.com/stretchr/testify":         "",
	"go.uber.org/goleak":                  "",
	"communicator/communicatortest":       "simulator",
	"communicator/grpc/internal/grpctest": "",
	"examples/internal/stage/stagetest":   "",
	"internal/netfault":                   "examples/bench",
	"internal/kubetest":                   "",
	"internal/pgtest":                     "",
	"internal/proctest":                   "internal/kubetest internal/pgtest",
	"internal/scenario":                   "",
	"internal/testca":                     "",
	"replica/backendtest":                 "",
}

// superseded is what a package imports only if its line in mayImport names it. The replacements
// are log/slog, math/rand/v2, io with os, and errors.
const superseded = "log math/rand io/ioutil github.com/pkg/errors"

// goPackage is a package as go list prints it.
type goPackage struct {
	ImportPath                string
	Dir                       string
	Module                    *struct{ Main bool }
	Imports                   []string
	TestImports, XTestImports []string
	GoFiles                   []string
	IgnoredGoFiles            []string // because of build constraints
	Error                     *struct{ Err string }
}

// name returns the package's name in the tables, which is its folder.
func (p goPackage) name() string { return inTables(p.ImportPath) }

func inTables(importPath string) string {
	if importPath == modulePath {
		return "."
	}
	return strings.TrimPrefix(importPath, modulePath+"/")
}

const modulePath = "github.com/f8949c05/orchestrator"

func TestArchitecture(t *testing.T) {
	for _, v := range violations(workspace(t), mayImport, mayLink) {
		t.Error(v)
	}
}

// Nothing else imports chromedp, and only files with the build tag browser do.
func TestArchitecture_SeesFilesWithBuildTags(t *testing.T) {
	packages := workspace(t)
	i := slices.IndexFunc(packages, func(p goPackage) bool { return p.name() == "examples/browsertest" })
	require.Contains(t, packages[i].XTestImports, "github.com/chromedp/chromedp")
	require.Contains(t, violations(packages, mayImport, map[string]string{"github.com/chromedp": ""}),
		"examples/browsertest imports github.com/chromedp/chromedp in a test")
}

// A program that does not import the dashboard must not link it.
func TestD25_OnlyProgramsImportTheDashboard(t *testing.T) {
	for name, may := range mayImport {
		top, _, _ := strings.Cut(name, "/")
		if slices.Contains([]string{"dashboard", "cmd", "examples"}, top) || name == "replica/admin" {
			continue
		}
		for p := range strings.FieldsSeq(may) {
			require.NotContains(t, []string{"dashboard", "dashboard/api", "history"}, p, name)
		}
	}
}

// workspace returns the packages of the workspace and all that they link.
func workspace(t *testing.T) []goPackage {
	t.Helper()
	if _, err := os.Stat("go.work"); err != nil {
		t.Skip("this module alone does not have the other packages")
	}
	// A pattern like work does not match a package of which all files have build tags. And go
	// test does not see what go list reads: since all folders are read here, it runs the test
	// again after a file has changed.
	list := []string{"list", "-e", "-deps", "-json=ImportPath,Dir,Module,Imports,TestImports,XTestImports,GoFiles,IgnoredGoFiles,Error"}
	require.NoError(t, fs.WalkDir(os.DirFS("."), ".", func(path string, d fs.DirEntry, err error) error {
		if d.IsDir() && (path == "tools" || d.Name() == "testdata" || strings.HasPrefix(path, ".") && path != ".") {
			return fs.SkipDir
		}
		if folder := "./" + filepath.Dir(path); filepath.Ext(path) == ".go" && !slices.Contains(list, folder) {
			list = append(list, folder)
		}
		return err
	}))
	cmd := exec.CommandContext(t.Context(), "go", list...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	var packages []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p goPackage
		require.NoError(t, d.Decode(&p))
		if p.Module != nil && p.Module.Main {
			if p.Error != nil {
				require.Contains(t, p.Error.Err, "build constraints exclude all Go files", p.ImportPath)
			}
			p.readIgnored(t)
		}
		packages = append(packages, p)
	}
	return packages
}

// readIgnored adds what the files import that build constraints exclude. What other modules
// link that only such files import is not known: it is not downloaded for this.
func (p *goPackage) readIgnored(t *testing.T) {
	t.Helper()
	for _, name := range p.IgnoredGoFiles {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ImportsOnly)
		require.NoError(t, err)
		imports := &p.Imports
		if strings.HasSuffix(name, "_test.go") {
			imports = &p.XTestImports
		}
		for _, i := range file.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			require.NoError(t, err)
			if !slices.Contains(*imports, path) {
				*imports = append(*imports, path)
			}
		}
	}
}

// The first page's program compiles at most this many lines of the library, with comments, blanks
// and generated code.
func TestArchitecture_LinesOfTheFirstProgram(t *testing.T) {
	const most = 30_500
	packages := workspace(t)
	byPath := make(map[string]goPackage)
	for _, p := range packages {
		byPath[p.ImportPath] = p
	}
	lines, seen := 0, make(map[string]bool)
	for todo := []string{modulePath + "/examples/tenants"}; len(todo) > 0; todo = todo[1:] {
		p := byPath[todo[0]]
		if seen[p.ImportPath] || p.Module == nil || !p.Module.Main {
			continue
		}
		seen[p.ImportPath] = true
		todo = append(todo, p.Imports...)
		if p.name() == "examples/tenants" { // the program itself
			continue
		}
		for _, name := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			require.NoError(t, err)
			lines += bytes.Count(text, []byte("\n"))
		}
		require.NotContains(t, p.Imports, "google.golang.org/grpc")
	}
	t.Logf("%d lines in %d packages", lines, len(seen))
	require.Greater(t, len(seen), 10)
	require.LessOrEqual(t, lines, most)
}

// violations returns where the packages of the workspace break a rule.
func violations(packages []goPackage, mayImport, mayLink map[string]string) []string {
	var found []string
	byPath := make(map[string]goPackage)
	for _, p := range packages {
		byPath[p.ImportPath] = p
	}
	unused := maps.Clone(mayImport)
	for _, p := range packages {
		if p.Module == nil || !p.Module.Main {
			continue
		}
		allowed, ok := mayImport[p.name()]
		if !ok {
			found = append(found, p.name()+": has no line in mayImport")
			continue
		}
		delete(unused, p.name())
		for _, what := range slices.Concat(
			forbiddenImports(p, allowed),
			forbiddenLinks(p, mayLink, byPath),
			forbiddenTestImports(p, allowed, mayLink),
		) {
			found = append(found, p.name()+" "+what)
		}
	}
	for name := range unused {
		found = append(found, name+": has a line in mayImport, but is no package")
	}
	slices.Sort(found)
	return found
}

func forbiddenImports(p goPackage, allowed string) (found []string) {
	for _, path := range p.Imports {
		covers := func(entry string) bool {
			return entry == "std" && !isModule(path) || entry == inTables(path) || isModule(entry) && within(path, entry)
		}
		if !slices.ContainsFunc(strings.Fields(allowed), covers) || contains(superseded, path) && !contains(allowed, path) {
			found = append(found, "imports "+inTables(path))
		}
	}
	return found
}

func forbiddenLinks(p goPackage, mayLink map[string]string, byPath map[string]goPackage) (found []string) {
	linked := map[string]bool{p.ImportPath: true}
	for todo := p.Imports; len(todo) > 0; todo = todo[1:] {
		if path := todo[0]; !linked[path] {
			linked[path] = true
			todo = append(slices.Clip(todo), byPath[path].Imports...)
		}
	}
	forbidden := func(dependency string) {
		for path := range linked {
			if within(inTables(path), dependency) {
				found = append(found, "links "+dependency)
				return
			}
		}
	}
	for dependency, packages := range mayLink {
		if !matches(p.name(), packages) {
			forbidden(dependency)
		}
	}
	for dependency, packages := range testsOnly {
		if !within(p.name(), dependency) && !matches(p.name(), packages) {
			forbidden(dependency)
		}
	}
	return found
}

func forbiddenTestImports(p goPackage, allowed string, mayLink map[string]string) (found []string) {
	for _, path := range slices.Concat(p.TestImports, p.XTestImports) {
		name := inTables(path)
		forbidden := contains(superseded, path)
		for dependency, packages := range mayLink {
			forbidden = forbidden || within(name, dependency) && !matches(p.name(), packages)
		}
		if strings.HasPrefix(allowed, pure) && within(path, modulePath) {
			forbidden = forbidden || name != p.name() && !contains(allowed, name)
		}
		if forbidden {
			found = append(found, "imports "+name+" in a test")
		}
	}
	return found
}

// isModule reports whether the path of a package, or the entry of a table, begins with a
// domain, as those of other modules do.
func isModule(path string) bool {
	domain, _, _ := strings.Cut(path, "/")
	return path != "." && strings.Contains(domain, ".")
}

// within reports whether path is dir or below it.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// matches reports whether one of the patterns matches the package.
func matches(name, patterns string) bool {
	return slices.ContainsFunc(strings.Fields(patterns), func(pattern string) bool {
		dir, ok := strings.CutSuffix(pattern, "/...")
		return name == pattern || ok && within(name, dir)
	})
}

func contains(list, word string) bool { return slices.Contains(strings.Fields(list), word) }

// Each case breaks one rule.
func TestArchitecture_Violations(t *testing.T) {
	own := func(path string, imports ...string) goPackage {
		return goPackage{ImportPath: path, Module: &struct{ Main bool }{true}, Imports: imports}
	}
	test := func(path string, imports ...string) goPackage {
		return goPackage{ImportPath: path, Module: &struct{ Main bool }{true}, XTestImports: imports}
	}
	mayImport := map[string]string{
		"pure":  pure,
		".":     "std pure",
		"etcd":  "std . example.org/client",
		"other": "std . etcd internal/pgtest internal/proctest",

		"internal/pgtest":   "std internal/proctest",
		"internal/proctest": "std internal/pgtest",
	}
	mayLink := map[string]string{"example.org/server": "etcd/embed", "etcd": "etcd/..."}
	foundation := []goPackage{
		{ImportPath: "example.org/client/v3"},
		{ImportPath: "example.org/client/heavy", Imports: []string{"example.org/server"}},
		{ImportPath: "example.org/server"},
	}
	const root = modulePath
	for _, test := range []struct {
		changed goPackage
		want    []string
	}{
		{own(root+"/etcd", "fmt", root, "example.org/client/v3"), nil},
		{test(root+"/etcd", root+"/other", "example.org/test"), nil},
		{own(root + "/new"), []string{"new: has no line in mayImport"}},
		{own(root+"/pure", "time"), []string{"pure imports time"}},
		{own(root+"/pure", root), []string{"pure imports ."}},
		{test(root+"/pure", root), []string{"pure imports . in a test"}},
		{own(root, root+"/etcd"), []string{". imports etcd", ". links etcd"}},
		{own(root, "log"), []string{". imports log"}},
		{test(root, "log"), []string{". imports log in a test"}},
		{own(root, "example.org/client/v3"), []string{". imports example.org/client/v3"}},
		{own(root+"/etcd", "example.org/clientele"), []string{"etcd imports example.org/clientele"}},
		{own(root+"/etcd", "example.org/client/heavy"), []string{"etcd links example.org/server"}},
		{own(root+"/other", root+"/etcd"), []string{"other links etcd"}},
		{test(root+"/other", root+"/etcd"), []string{"other imports etcd in a test"}},
		{
			own(root+"/etcd", "github.com/stretchr/testify/require"),
			[]string{"etcd imports github.com/stretchr/testify/require", "etcd links github.com/stretchr/testify"},
		},
		{own(root+"/other", root+"/internal/proctest"), []string{"other links internal/proctest"}},
		{test(root+"/other", root+"/internal/proctest"), nil},
		{own(root+"/internal/pgtest", root+"/internal/proctest"), nil},
		{own(root+"/internal/proctest", root+"/internal/pgtest"), []string{"internal/proctest links internal/pgtest"}},
	} {
		packages := slices.Clone(foundation)
		for _, path := range []string{root, root + "/pure", root + "/etcd", root + "/other", root + "/internal/pgtest", root + "/internal/proctest"} {
			if path != test.changed.ImportPath {
				packages = append(packages, own(path))
			}
		}
		require.Equal(t, test.want, violations(append(packages, test.changed), mayImport, mayLink))
	}
	require.Contains(t, violations(foundation, mayImport, mayLink), "etcd: has a line in mayImport, but is no package")
}
