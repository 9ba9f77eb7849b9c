package api

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Name is the name of a worker or a task as text. Different names may have the same text;
// Nth then counts them, from 2, in the order of the term. For the first it is 0.
type Name struct {
	Name string `json:"name"`
	Nth  int    `json:"nth,omitempty"`
}

// String returns the name as a parameter: "w1", or "w1#2" for the second of this text.
func (n Name) String() string {
	if n.Nth > 1 {
		return fmt.Sprintf("%s#%d", n.Name, n.Nth)
	}
	return n.Name
}

// LongestText bounds the texts that come from workers and users, in bytes. The history has
// the same bound.
const LongestText = 512

// Printable returns text that is safe to show: at most LongestText bytes of printable
// characters. Others are replaced by an escape such as \u202e, and bytes that are not UTF-8
// by one such as \xff. The names and errors in answers are such texts, and Printable returns
// them unchanged.
func Printable(s string) string {
	if isPrintable(s) {
		return s
	}
	b := make([]byte, 0, min(2*len(s), LongestText)+len(`\U0010ffff`))
	short := 0 // the length up to which "…" can follow
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b = fmt.Appendf(b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b = append(b, s[i:i+size]...)
		case r > 0xffff:
			b = fmt.Appendf(b, `\U%08x`, r)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
		if len(b) > LongestText {
			return string(append(b[:short], "…"...))
		}
		if len(b)+len("…") <= LongestText {
			short = len(b)
		}
		i += size
	}
	return string(b)
}

// isPrintable reports whether text is short enough and can be shown as it is.
func isPrintable(s string) bool {
	if len(s) > LongestText {
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
