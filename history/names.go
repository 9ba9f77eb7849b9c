package history

// Text for names, errors and changes.

import (
	"crypto/sha256"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/f8949c05/orchestrator"
)

// LongestText bounds a name or an error, in bytes.
const LongestText = 512

// NameText returns a name as text: the name if it is a string, the result of its MarshalText if
// it has that and it succeeds, an integer as fmt.Sprint prints it, and any other name as %#v does.
// Text that is empty, begins with a quotation mark, or is not as [Printable] returns it is quoted
// as by [strconv.Quote], and ends with a hash in place of what exceeds [LongestText].
//
// So the text depends on the name alone, and different names have different texts, unless their
// MarshalText returns the same.
func NameText[N comparable](name N) string {
	if text, ok := any(name).(string); ok { // in a switch with the others it would be allocated
		return quoted(text)
	}
	if n, ok := any(name).(encoding.TextMarshaler); ok {
		if b, err := n.MarshalText(); err == nil {
			return quoted(string(b))
		}
	}
	switch v := reflect.ValueOf(name); {
	case v.Kind() == reflect.String:
		return quoted(v.String())
	case v.CanInt() || v.CanUint():
		return quoted(fmt.Sprint(name))
	}
	return quoted(fmt.Sprintf("%#v", name))
}

// quoted returns a text, or another one in quotes if it could not be shown as it is.
func quoted(text string) string {
	if text != "" && text[0] != '"' && isPrintable(text) {
		return text
	}
	const kept = LongestText - 40
	q := strconv.Quote(text)
	if len(q) > LongestText {
		q = fmt.Sprintf("%s…\"%x", strings.ToValidUTF8(q[:kept], ""), sha256.Sum256([]byte(text)))[:LongestText]
	}
	return q
}

// ChangeText returns a change with text for names and errors, and with its time in UTC.
func ChangeText[W, T comparable](c *orchestrator.Change[W, T]) Change {
	out := Change{Kind: c.Kind, Task: NameText(c.Task), Outcome: c.Outcome, Began: plain(c.Began), Took: c.Took, Gap: c.Gap, Err: errorOf(c.Err)}
	if c.Kind.Op != orchestrator.Start {
		out.From = NameText(c.From)
	}
	if c.Kind.Op != orchestrator.Stop {
		out.To = NameText(c.To)
	}
	if hasWas(c.Kind) {
		out.Was = NameText(c.Was)
	}
	return out
}

// WaitingText returns waiting instances with text for names.
func WaitingText[W, T comparable](w *orchestrator.Waiting[W, T]) Waiting {
	out := Waiting{Task: NameText(w.Task), Instances: w.Instances, Reason: w.Reason, Named: w.Named, Causes: w.Causes}
	if w.Named {
		out.Worker = NameText(w.Worker)
	}
	return out
}

// PauseText returns a pause with text for names and errors.
func PauseText[W, T comparable](p *orchestrator.Pause[W, T]) Pause {
	out := Pause{Kind: p.Kind, Until: p.Until, Ends: plain(p.Ends), Failures: p.Failures, Err: errorOf(p.Err)}
	if p.Kind != orchestrator.PauseMoves {
		out.Worker = NameText(p.Worker)
		if p.Kind != orchestrator.PauseWorker && p.Kind != orchestrator.PauseFallen {
			out.Task = NameText(p.Task)
		}
	}
	return out
}

// HoldText returns a hold with printable text, and with its time in UTC.
func HoldText(h *orchestrator.Hold) orchestrator.Hold {
	return orchestrator.Hold{Why: Printable(h.Why), Until: plain(h.Until)}
}

// errorOf returns an error that is only printable text, or nil.
func errorOf(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(Printable(err.Error()))
}

// Printable returns text that is safe to show: at most [LongestText] bytes of printable
// characters. Others are replaced by an escape such as \u202e, and bytes that are not UTF-8
// by one such as \xff. Printable returns its results unchanged.
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
