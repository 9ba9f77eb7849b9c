package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// helper is another file of every folder below.
const helper = `package p
import "testing/synctest"
func inBubble(t *T, f func(*T)) { synctest.Test(t, f) }
func outside(t *T, f func(*T)) { f(t) }
func twice(t *T, f func(*T)) { inBubble(t, f) }
`

func TestSleeps(t *testing.T) {
	const bubble, plain = `"testing/synctest"`, `"context"`
	for _, test := range []struct {
		name, imports, body string
		want                int
	}{
		{"a test that sleeps", plain, `func TestA(t *T) { time.Sleep(1) }`, 1},
		{"a goroutine of a test", plain, `func TestA(t *T) { go func() { time.Sleep(1) }() }`, 1},
		{"passed as a value", plain, `func TestA(t *T) { t.Cleanup(f(time.Sleep)) }`, 1},
		{"a helper in a file without bubbles", plain, `func wait() { time.Sleep(1) }`, 1},
		{"inside the bubble", bubble, `func TestA(t *T) { synctest.Test(t, func(t *T) { time.Sleep(1) }) }`, 0},
		{"beside the bubble", bubble, `func TestA(t *T) { time.Sleep(1); synctest.Test(t, run) }`, 1},
		{"a helper in a file with bubbles", bubble, `func wait() { time.Sleep(1) }`, 0},
		{"a benchmark in a file with bubbles", bubble, `func BenchmarkA(b *B) { time.Sleep(1) }`, 1},
		{"inside a helper's bubble", plain, `func TestA(t *T) { inBubble(t, func(t *T) { time.Sleep(1) }) }`, 0},
		{"inside a helper of a helper", plain, `func TestA(t *T) { twice(t, func(t *T) { time.Sleep(1) }) }`, 0},
		{"inside another helper", plain, `func TestA(t *T) { outside(t, func(t *T) { time.Sleep(1) }) }`, 1},
		{"another Sleep", plain, `func TestA(t *T) { clock.Sleep(1) }`, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			source := fmt.Sprintf("package p\nimport (\n\"time\"\n%s\n)\n%s\n", test.imports, test.body)
			fset := token.NewFileSet()
			var files []*ast.File
			for name, text := range map[string]string{"p_test.go": source, "helper_test.go": helper} {
				file, err := parser.ParseFile(fset, name, text, 0)
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, file)
			}
			found := sleeps(files)
			if len(found) != test.want {
				t.Errorf("found %v, want %d", found, test.want)
			}
		})
	}
}
