package history

// Text for names, errors and changes.

import (
	"encoding"
	"errors"
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/f8949c05/orchestrator"
)

// LongestText bounds a name or an error, in bytes.
const LongestText = 512

// Names converts names to text. A nil function is [NameText]. The results are made
// [Printable]. Names with the same text cannot be told apart.
type Names[W, T comparable] struct {
	Worker func(W) string
	Task   func(T) string
}

// NameText is the default of [Names]: the name if it is a string, the result of its
// MarshalText if it has that and it succeeds, and otherwise that of fmt.Sprint.
func NameText[N comparable](name N) string {
	if text, ok := any(name).(string); ok { // in a switch with the others it would be allocated
		return text
	}
	if n, ok := any(name).(encoding.TextMarshaler); ok {
		if b, err := n.MarshalText(); err == nil {
			return string(b)
		}
	}
	return fmt.Sprint(name)
}

// Change returns a change with text for names and errors, and with its time in UTC.
func (n Names[W, T]) Change(c *orchestrator.Change[W, T]) Change {
	out := Change{Kind: c.Kind, Task: n.task(c.Task), Outcome: c.Outcome, Began: plain(c.Began), Took: c.Took, Gap: c.Gap, Err: errorOf(c.Err)}
	if c.Kind.Op != orchestrator.Start {
		out.From = n.worker(c.From)
	}
	if c.Kind.Op != orchestrator.Stop {
		out.To = n.worker(c.To)
	}
	if hasWas(c.Kind) {
		out.Was = n.worker(c.Was)
	}
	return out
}

// Waiting returns waiting instances with text for names.
func (n Names[W, T]) Waiting(w *orchestrator.Waiting[W, T]) Waiting {
	out := Waiting{Task: n.task(w.Task), Instances: w.Instances, Reason: w.Reason, Named: w.Named, Causes: causesOf(w.Causes)}
	if w.Named {
		out.Worker = n.worker(w.Worker)
	}
	return out
}

// causesOf returns a copy of causes, with labels that are safe to show.
func causesOf(c *orchestrator.Causes) *orchestrator.Causes {
	if c == nil {
		return nil
	}
	out := *c
	out.Lacking = slices.Clone(c.Lacking)
	for i := range out.Lacking {
		out.Lacking[i].Label = Printable(out.Lacking[i].Label)
	}
	return &out
}

// Pause returns a pause with text for names and errors.
func (n Names[W, T]) Pause(p *orchestrator.Pause[W, T]) Pause {
	out := Pause{Kind: p.Kind, Until: p.Until, Failures: p.Failures, Err: errorOf(p.Err)}
	if p.Kind != orchestrator.PauseMoves {
		out.Worker = n.worker(p.Worker)
		if p.Kind != orchestrator.PauseWorker {
			out.Task = n.task(p.Task)
		}
	}
	return out
}

func (n Names[W, T]) worker(name W) string { return textOf(name, n.Worker) }
func (n Names[W, T]) task(name T) string   { return textOf(name, n.Task) }

func textOf[N comparable](name N, text func(N) string) string {
	if text == nil {
		text = NameText[N]
	}
	return Printable(text(name))
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
