// Command sleeps reports calls of time.Sleep in tests outside a testing/synctest
// bubble. They make tests slow, and flaky on a slow machine. Inside a bubble a sleep
// takes no real time.
//
// A time.Sleep in a test file is fine inside the arguments of synctest.Test, or
// of a helper of the same folder that calls it; and in a helper (anything but a
// test, a benchmark, a fuzz target or an example) of a file that imports
// testing/synctest.
//
//	go run ./sleeps ..
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func main() {
	bad := 0
	for _, root := range os.Args[1:] {
		err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case !d.IsDir():
				return nil
			case p != root && (strings.ContainsAny(d.Name()[:1], "._") || d.Name() == "testdata"):
				return filepath.SkipDir
			}
			fset := token.NewFileSet()
			files, err := parseTests(fset, p)
			for _, at := range sleeps(files) {
				fmt.Printf("%s: a test sleeps in real time: use testing/synctest, or wait for what happens (sleeps)\n", fset.Position(at))
				bad++
			}
			return err
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, "sleeps:", err)
			os.Exit(2)
		}
	}
	if bad > 0 {
		os.Exit(1)
	}
}

// parseTests parses the test files of a folder.
func parseTests(fset *token.FileSet, dir string) ([]*ast.File, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, name := range names {
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// sleeps returns where the test files of a folder sleep in real time.
func sleeps(files []*ast.File) []token.Pos {
	var found []token.Pos
	helpers := bubbleHelpers(files)
	for _, file := range files {
		timePkg, synctestPkg := importName(file, "time"), importName(file, "testing/synctest")
		for _, decl := range file.Decls {
			if synctestPkg != "" && !isEntry(decl) {
				continue
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					id, ok := call.Fun.(*ast.Ident)
					if isSelector(call.Fun, synctestPkg, "Test") || ok && helpers[id.Name] {
						return false
					}
				}
				if isSelector(n, timePkg, "Sleep") {
					found = append(found, n.Pos())
				}
				return true
			})
		}
	}
	return found
}

// bubbleHelpers returns the functions, but for tests, that open a bubble, themselves or
// by another one of them.
func bubbleHelpers(files []*ast.File) map[string]bool {
	helpers := make(map[string]bool)
	for found := true; found; {
		found = false
		for _, file := range files {
			synctestPkg := importName(file, "testing/synctest")
			for _, decl := range file.Decls {
				f, ok := decl.(*ast.FuncDecl)
				if !ok || f.Recv != nil || isEntry(decl) || helpers[f.Name.Name] {
					continue
				}
				ast.Inspect(f, func(n ast.Node) bool {
					call, ok := n.(*ast.CallExpr)
					if !ok || helpers[f.Name.Name] {
						return true
					}
					id, ok := call.Fun.(*ast.Ident)
					if isSelector(call.Fun, synctestPkg, "Test") || ok && helpers[id.Name] {
						helpers[f.Name.Name], found = true, true
					}
					return true
				})
			}
		}
	}
	return helpers
}

// importName returns the name under which file imports the package, or "".
func importName(file *ast.File, path string) string {
	for _, spec := range file.Imports {
		if p, _ := strconv.Unquote(spec.Path.Value); p == path {
			if spec.Name != nil {
				return spec.Name.Name
			}
			return path[strings.LastIndex(path, "/")+1:]
		}
	}
	return ""
}

// isEntry reports whether go test itself calls the function. Only its own body can
// start a bubble for it.
func isEntry(decl ast.Decl) bool {
	f, ok := decl.(*ast.FuncDecl)
	if !ok || f.Recv != nil {
		return false
	}
	for _, prefix := range []string{"Test", "Benchmark", "Fuzz", "Example"} {
		if strings.HasPrefix(f.Name.Name, prefix) {
			return true
		}
	}
	return false
}

func isSelector(n ast.Node, pkg, name string) bool {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok || pkg == "" || sel.Sel.Name != name {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	return ok && id.Name == pkg
}
