package dashboard

// Names as text.

import (
	"encoding"
	"fmt"
	"reflect"
	"unicode"
	"unicode/utf8"
)

// longestText bounds the texts that come from workers and users, in bytes. The history has
// the same bound.
const longestText = 512

// printable returns text that is safe to show: at most longestText bytes of printable
// characters. Others are replaced by an escape such as \u202e, and bytes that are not UTF-8
// by one such as \xff. printable(printable(s)) is printable(s).
func printable(s string) string {
	if isPrintable(s) {
		return s
	}
	b := make([]byte, 0, min(2*len(s), longestText)+len(`\U0010ffff`))
	short := 0 // the length up to which "…" can follow
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b = appendHex(append(b, `\x`...), uint32(s[i]), 2)
		case unicode.IsPrint(r):
			b = append(b, s[i:i+size]...)
		case r > 0xffff:
			b = appendHex(append(b, `\U`...), uint32(r), 8)
		default:
			b = appendHex(append(b, `\u`...), uint32(r), 4)
		}
		if len(b) > longestText {
			return string(append(b[:short], "…"...))
		}
		if len(b)+len("…") <= longestText {
			short = len(b)
		}
		i += size
	}
	return string(b)
}

// appendHex appends a number with a number of digits.
func appendHex(b []byte, n uint32, digits int) []byte {
	for digits--; digits >= 0; digits-- {
		b = append(b, "0123456789abcdef"[n>>(4*digits)&0xf])
	}
	return b
}

// isPrintable reports whether text is short enough and can be shown as it is.
func isPrintable(s string) bool {
	if len(s) > longestText {
		return false
	}
	for i := 0; i < len(s); {
		if c := s[i]; ' ' <= c && c <= '~' {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 || !unicode.IsPrint(r) {
			return false
		}
		i += size
	}
	return true
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
	_, err = fmt.Sscan(text, &name)
	return name, err
}
