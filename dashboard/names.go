package dashboard

// Names as text.

import (
	"encoding"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// longestText bounds the texts that come from workers and users, in characters.
const longestText = 512

// printable returns text that is safe to show: at most longestText characters, each of them
// printable. Others are replaced by an escape such as \u202e, and bytes that are not UTF-8
// by one such as \xff. printable(printable(s)) is printable(s).
func printable(s string) string {
	if isPlain(s) {
		return s
	}
	var b strings.Builder
	count := 0
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		part := s[i : i+size]
		switch {
		case r == utf8.RuneError && size == 1:
			part = fmt.Sprintf(`\x%02x`, s[i])
		case unicode.IsPrint(r):
		case r > 0xffff:
			part = fmt.Sprintf(`\U%08x`, r)
		default:
			part = fmt.Sprintf(`\u%04x`, r)
		}
		count += utf8.RuneCountInString(part)
		if count >= longestText && i+size < len(s) || count > longestText {
			b.WriteString("…")
			break
		}
		b.WriteString(part)
		i += size
	}
	return b.String()
}

// isPlain reports whether text is short and printable ASCII.
func isPlain(s string) bool {
	if len(s) > longestText {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// nameOf returns the default for the text of a name.
func nameOf[N comparable]() func(N) string {
	asString := func(name string) string { return name }
	if f, ok := any(asString).(func(N) string); ok {
		return f
	}
	return func(name N) string {
		if m, ok := any(name).(encoding.TextMarshaler); ok {
			if text, err := m.MarshalText(); err == nil {
				return string(text)
			}
		}
		return fmt.Sprint(name)
	}
}
