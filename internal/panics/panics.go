// Package panics turns the value of a recovered panic into a text or an error. It calls
// methods of the value, which is the user's, and recovers their panics too.
package panics

import (
	"errors"
	"fmt"
)

// Text returns the text of a recovered value, as package fmt prints it.
func Text(v any) (text string) {
	// Package fmt recovers a panic of the value's Error or String method and prints the
	// new value, which may panic again.
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T whose text panics too", v)
		}
	}()
	return fmt.Sprint(v)
}

// Error returns an error for a recovered value: its text after "panic: ". It wraps the
// value if that is an error.
func Error(v any) error {
	text := "panic: " + Text(v)
	if err, ok := v.(error); ok {
		return &panicError{text: text, err: err}
	}
	return errors.New(text)
}

// Catch calls f, and returns Error of the value if f panics.
func Catch(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = Error(v)
		}
	}()
	return f()
}

type panicError struct {
	text string
	err  error
}

func (p *panicError) Error() string { return p.text }
func (p *panicError) Unwrap() error { return p.err }
