package main

// The commands that show an answer: as text that the dashboard renders, as its JSON, or as names.

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
)

// The formats of the output.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatName  = "name"
)

const (
	// maxRows is the largest number of rows in an answer.
	maxRows = 1000
	// noList stands for the limit of an answer that is no list.
	noList = -1
)

// accept returns the media type of an answer in the format.
func (s *session) accept(view string) string {
	params := map[string]string{"view": view}
	switch s.settings.format {
	case formatJSON:
		return "application/json"
	case formatName:
		params["view"] = "names"
	default:
		if view != "check" && s.screen.width > 0 {
			params["width"] = strconv.Itoa(s.screen.width)
		}
		if s.screen.colour {
			params["colour"] = "true"
		}
	}
	return mime.FormatMediaType("text/plain", params)
}

// show prints the answer of a route: of a list at most limit rows, or all if limit is 0. It returns what
// the answer says of itself.
func (s *session) show(ctx context.Context, route, view string, query url.Values, limit int) (last *reply, err error) {
	var out []byte
	var list []json.RawMessage // the rows as JSON
	rows := 0
	for last == nil || last.After != "" && last.Rows > 0 && (limit == 0 || rows < limit) {
		if last != nil {
			query.Set("after", last.After)
		}
		if limit != noList {
			wanted := maxRows
			if limit > 0 {
				wanted = min(wanted, limit-rows)
			}
			query.Set("limit", strconv.Itoa(wanted))
		}
		if last, err = s.request(ctx, http.MethodGet, route, query, s.accept(view)); err != nil {
			return nil, err
		}
		if s.settings.format == formatJSON && limit != noList {
			if list, err = last.join(route, list); err != nil {
				return nil, foreign(s.last, route, err)
			}
		}
		out, rows = append(out, last.body...), rows+last.Rows
	}
	if s.settings.format == formatJSON {
		out = indented(last.body)
	}
	if err = s.print(out); err == nil && last.After != "" && limit != noList {
		s.say("only the first %s of %d; -limit 0 shows all", plural(rows, "row"), last.Matching)
	}
	return last, err
}

// join puts the rows of earlier parts of a list before its own, which have the key route, and returns all.
func (r *reply) join(route string, earlier []json.RawMessage) ([]json.RawMessage, error) {
	var list map[string]json.RawMessage
	var rows []json.RawMessage
	if err := json.Unmarshal(r.body, &list); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(list[route], &rows); err != nil || len(earlier) == 0 {
		r.Rows = len(rows)
		return rows, err
	}
	r.Rows, rows = len(rows), append(earlier, rows...)
	var err error
	if list[route], err = json.Marshal(rows); err == nil {
		r.body, err = json.Marshal(list)
	}
	return rows, err
}

// indented returns JSON for people.
func indented(body []byte) []byte {
	var out bytes.Buffer
	if json.Indent(&out, bytes.TrimSpace(body), "", "  ") != nil {
		return body
	}
	return append(out.Bytes(), '\n')
}

// print prints an answer.
func (s *session) print(out []byte) error {
	if len(out) == 0 {
		s.say("nothing to show")
	}
	return s.put(out)
}

// put writes to the standard output.
func (s *session) put(out []byte) error {
	if _, err := io.WriteString(s.stdout, s.escaped(out)); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// escaped returns an answer in which each character is escaped that is not printable, but for those that
// end lines and, on a terminal with colours, begin one. Outside of strings JSON has no such character.
func (s *session) escaped(answer []byte) string {
	var b strings.Builder
	for _, r := range string(answer) {
		switch {
		case unicode.IsPrint(r) || r == '\n' || r == '\x1b' && s.screen.colour:
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// plural returns a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func status(f *flag.FlagSet) action {
	check := f.Bool("check", false, "print one line, and end with code 5 if something needs a person, or no term has ended yet")
	return func(ctx context.Context, s *session, _ []string) error {
		view := ""
		if *check {
			view = "check"
		}
		a, err := s.show(ctx, "status", view, nil, noList)
		if err == nil && *check && (a.ProblemsTotal > 0 || a.Term.Number == 0) {
			return errFound
		}
		return err
	}
}

// one returns a command about one name.
func one(route, view string) func(*flag.FlagSet) action {
	return func(*flag.FlagSet) action {
		return func(ctx context.Context, s *session, args []string) error {
			_, err := s.show(ctx, route, view, url.Values{"name": args}, noList)
			return err
		}
	}
}

// list returns a command that shows a list of usually so many rows. An argument is a parameter too.
func list(route, view string, rows uint, flags func(f *flag.FlagSet, query url.Values)) func(*flag.FlagSet) action {
	return func(f *flag.FlagSet) action {
		query := url.Values{}
		if flags != nil {
			flags(f, query)
		}
		limit := f.Uint("limit", rows, "the most rows, or 0 for all")
		return func(ctx context.Context, s *session, args []string) error {
			if len(args) > 0 {
				query["q"] = args
			}
			_, err := s.show(ctx, route, view, query, int(*limit))
			return err
		}
	}
}

// queryFlag defines a flag that is a parameter of the request: one of some words, or any text
// if none is given.
func queryFlag(f *flag.FlagSet, query url.Values, name, usage string, words ...string) {
	if n := len(words) - 1; n > 0 {
		usage += ": " + strings.Join(words[:n], ", ") + " or " + words[n]
	}
	f.Func(name, usage, func(value string) error {
		if len(words) > 0 && !slices.Contains(words, value) {
			return fmt.Errorf("must be %s or %s", strings.Join(words[:len(words)-1], ", "), words[len(words)-1])
		}
		query.Set(name, value)
		return nil
	})
}

func workerFlags(f *flag.FlagSet, query url.Values) {
	queryFlag(f, query, "state", "only workers in this `state`",
		"answering", "silent", "lost", "draining", "quarantined", "late", "stuck")
	queryFlag(f, query, "q", "only workers whose name contains this `text`")
}

func quarantinedFlags(_ *flag.FlagSet, query url.Values) { query.Set("state", "quarantined") }

func waitingFlags(f *flag.FlagSet, query url.Values) {
	query.Set("waiting", "any")
	f.Func("kind", "only instances of this `kind`: held, staying, unplaced, failing, or missing for the last two", func(kind string) error {
		query.Set("waiting", kind)
		return nil
	})
}

func changeFlags(f *flag.FlagSet, query url.Values) {
	for key, words := range map[string][]string{
		"task": nil, "worker": nil,
		"reason":  {"missing", "lost", "vanished", "unexpected", "surplus", "rebalance", "drain", "requires", "zone", "limit", "room"},
		"outcome": {"done", "failed", "returned", "unknown", "stopping", "skipped", "dry"},
	} {
		queryFlag(f, query, key, "only changes with this `"+key+"`", words...)
	}
	f.Func("since", "only changes of this last `time`, such as 10m", func(value string) error {
		query.Set("since", value)
		_, err := time.ParseDuration(value)
		return err
	})
}

func whatIf(f *flag.FlagSet) action {
	query := url.Values{}
	for _, flag := range []struct{ name, usage string }{
		{"drain", "assume that this `worker` drains"},
		{"undrain", "assume that this `worker` no longer drains"},
		{"lose", "assume that this `worker` is lost"},
		{"silence", "assume that this `worker` does not answer"},
		{"add", "assume that a `worker` of this name joins"},
	} {
		f.Func(flag.name, flag.usage+"; may be repeated", func(value string) error {
			query.Add(flag.name, value)
			return nil
		})
	}
	return func(ctx context.Context, s *session, _ []string) error {
		return s.patiently(ctx, func() error {
			_, err := s.show(ctx, "what-if", "", query, noList)
			return err
		})
	}
}

func version(*flag.FlagSet) action {
	return func(_ context.Context, s *session, _ []string) error {
		own := "(devel)"
		if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
			own = info.Main.Version
		}
		out := fmt.Appendf(nil, "orchctl %s, %s\n", own, runtime.Version())
		if s.settings.format == formatJSON {
			out = indented(fmt.Appendf(nil, `{"go":%q,"orchctl":%q}`, runtime.Version(), own))
		}
		return s.print(out)
	}
}
