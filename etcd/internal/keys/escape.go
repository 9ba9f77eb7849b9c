package keys

import (
	"errors"
	"fmt"
	"strings"
)

const hex = "0123456789ABCDEF"

// plain reports whether c needs no escape: it is common in names, and has no meaning
// to a shell or to etcdctl.
func plain(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("-_.:@+=,", c) >= 0
}

// Escape returns name as one segment of a key. Letters, digits and -_.:@+=, stay;
// every other byte becomes % and two hexadecimal digits. Different names have
// different segments. The empty name has an empty segment, so callers must reject
// it.
func Escape(name string) string {
	escapes := 0
	for i := range len(name) {
		if !plain(name[i]) {
			escapes++
		}
	}
	if escapes == 0 {
		return name
	}
	segment := make([]byte, 0, len(name)+2*escapes)
	for i := range len(name) {
		if c := name[i]; plain(c) {
			segment = append(segment, c)
		} else {
			segment = append(segment, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(segment)
}

// Unescape returns the name of a segment. It fails for the empty segment, and for
// every segment that Escape does not return, so that no name has two keys.
func Unescape(segment string) (string, error) {
	if segment == "" {
		return "", errors.New("empty name")
	}
	if strings.IndexByte(segment, '%') < 0 {
		for i := range len(segment) {
			if !plain(segment[i]) {
				return "", fmt.Errorf("%q is not escaped at byte %d", segment, i)
			}
		}
		return segment, nil
	}
	name := make([]byte, 0, len(segment))
	for i := 0; i < len(segment); i++ {
		c := segment[i]
		if c == '%' {
			if i+2 >= len(segment) {
				return "", fmt.Errorf("%q ends inside an escape", segment)
			}
			high, low := strings.IndexByte(hex, segment[i+1]), strings.IndexByte(hex, segment[i+2])
			if high < 0 || low < 0 || plain(byte(high<<4|low)) {
				return "", fmt.Errorf("%q has no valid escape at byte %d", segment, i)
			}
			c = byte(high<<4 | low)
			i += 2
		} else if !plain(c) {
			return "", fmt.Errorf("%q is not escaped at byte %d", segment, i)
		}
		name = append(name, c)
	}
	return string(name), nil
}
