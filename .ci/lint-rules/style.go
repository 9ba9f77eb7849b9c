package orchestrator

import (
	"errors"
	"fmt"
	"os"
	"time"
)

var errThing = errors.New("thing")

// Do does what no library may do. // want godoclint
//
// [nobody]: https://example.com
func Do(err error) bool {
	fmt.Println("hello")    // want forbidigo
	time.Sleep(time.Second) // want forbidigo
	os.Remove("file")       // want errcheck
	if err == nil {
		panic("no error") // want forbidigo
	}
	if err == errThing { // want errorlint
		os.Exit(1) // want forbidigo
	}
	os.Remove("file") //nolint // want nolintlint
	os.Remove("file") //nolint:errcheck // an exception and its reason
	defer fmt.Fprintln(os.Stderr, "fine")
	return err == nil
}
