package orchestrator

import (
	"fmt"
	"strings"
)

type other struct{} // want unused

// Waste does what does nothing. It recieves n. // want misspell
func Waste(n int) string {
	for i := 0; i < n; i++ { // want modernize
		strings.Repeat("x", i) // want staticcheck
	}
	text := "x"                       // want ineffassign
	text = fmt.Sprintf("%d %s", n)    // want govet
	more, err := repeat(text, int(n)) // want unconvert
	if err != nil {
		return ""
	}
	return more
}

func repeat(s string, n int) (string, error) { // want unparam
	var b strings.Builder
	for range n {
		b.WriteString(s)
	}
	return b.String(), nil
}

// Name has a parameter in the wrong style.
func Name(Url string) string { return Url } // want revive
