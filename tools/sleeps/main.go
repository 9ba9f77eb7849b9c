// Command sleeps finds tests that sleep in real time. A test that sleeps is
// slow where it passes and flaky where the machine is slow; inside a
// testing/synctest bubble time is fake and a sleep costs nothing.
//
// A time.Sleep in a test file is fine inside the arguments of synctest.Test,
// and in a helper (anything but a test, a benchmark, a fuzz target or an
// example) of a file that imports testing/synctest.
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
			case d.IsDir() && p != root && (strings.ContainsAny(d.Name()[:1], "._") || d.Name() == "testdata"):
				return filepath.SkipDir
			case d.IsDir() || !strings.HasSuffix(p, "_test.go"):
				return nil
			}
			found, err := sleeps(p, nil)
			for _, at := range found {
				fmt.Printf("%s: a test sleeps in real time: use testing/synctest, or wait for what happens (sleeps)\n", at)
			}
			bad += len(found)
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

// sleeps returns where the file sleeps in real time. Source is read from the
// file where it is nil.
func sleeps(name string, source any) ([]token.Position, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	timePkg, synctestPkg := importName(file, "time"), importName(file, "testing/synctest")

	var found []token.Position
	for _, decl := range file.Decls {
		if synctestPkg != "" && !isEntry(decl) {
			continue
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && isSelector(call.Fun, synctestPkg, "Test") {
				return false
			}
			if isSelector(n, timePkg, "Sleep") {
				found = append(found, fset.Position(n.Pos()))
			}
			return true
		})
	}
	return found, nil
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

// isEntry reports whether go test itself calls the function: nothing but its
// own body can put it into a bubble.
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
