package panics_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/panics"
)

// A panic of user code becomes the error of its call.
func Example() {
	call := func(user func()) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = panics.Error(v)
			}
		}()
		user()
		return nil
	}
	fmt.Println(call(func() { panic("out of range") }))
	fmt.Println(errors.Is(call(func() { panic(io.EOF) }), io.EOF))
	fmt.Println(call(func() {}))
	// Output:
	// panic: out of range
	// true
	// <nil>
}

// hopeless is an error whose text panics with the same error.
type hopeless struct{}

func (h hopeless) Error() string { panic(h) }

func TestError_OfAValueWhoseTextPanics(t *testing.T) {
	err := panics.Error(hopeless{})
	require.EqualError(t, err, "panic: a panics_test.hopeless whose text panics too")
	require.ErrorAs(t, err, new(hopeless))
	require.Contains(t, panics.Text((*nilError)(nil)), "<nil>")
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }
