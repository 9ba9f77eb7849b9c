package dashboard

// Names as text.

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/f8949c05/orchestrator/dashboard/api"
)

// printable is api.Printable.
func printable(s string) string { return api.Printable(s) }

// cutNth splits a name such as "w1#2" into its text and its place. It returns 0 without one.
func cutNth(name string) (text string, nth int) {
	i := strings.LastIndexByte(name, '#')
	nth, err := strconv.Atoi(name[i+1:])
	if i < 0 || err != nil || nth < 1 {
		return name, 0
	}
	return name[:i], nth
}

// quote returns a printable text in quotes, for a sentence.
func quote(text string) string { return "\u201c" + text + "\u201d" }

// parseName returns the name with a text, for a worker that is not known yet.
func parseName[N comparable](text string) (name N, err error) {
	if u, ok := any(&name).(encoding.TextUnmarshaler); ok {
		return name, u.UnmarshalText([]byte(text))
	}
	if v := reflect.ValueOf(&name).Elem(); v.Kind() == reflect.String {
		v.SetString(text)
		return name, nil
	}
	if _, err = fmt.Sscan(text, &name); err != nil {
		err = fmt.Errorf("no text of a %T, which has no method UnmarshalText: %w", name, err)
	}
	return name, err
}
