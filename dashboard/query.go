package dashboard

// Parameters, and the part of a list that they select.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

const (
	// mostRows bounds the rows of an answer, and someRows is the default.
	mostRows = 1000
	someRows = 200
	// mostBytes bounds the rows of an answer as JSON, so that the answer has at most 256 kB.
	mostBytes = 200 << 10
	// mostNames bounds lists of names within a row.
	mostNames = 8
)

// printable is api.Printable.
func printable(s string) string { return api.Printable(s) }

// named returns the name that a parameter means: the text of a name, or a name whose text is another.
func named(param string) string {
	if _, err := strconv.Unquote(param); strings.HasPrefix(param, `"`) && (err == nil || strings.Contains(param, `…"`)) {
		return printable(param)
	}
	return history.NameText(param)
}

// quote returns a printable text in quotes, for a sentence.
func quote(text string) string { return "\u201c" + text + "\u201d" }

// query is the parameters of a request. Its methods keep the first error.
type query struct {
	values url.Values
	err    *api.Error
	access Access          // of the request
	gone   <-chan struct{} // closed when the client is gone
	tagged bool            // the answer has an entity tag
	// bytes bounds the rows of the answer as JSON. The HTML of a row takes several times as
	// much if its names are long.
	bytes int
}

// newQuery returns the parameters of a request that ServeHTTP has admitted. Parameters that
// are not among params are an error.
func newQuery(r *http.Request, params []string) *query {
	q := &query{bytes: mostBytes, gone: r.Context().Done()}
	var err error
	if q.values, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		q.fail("The query cannot be read: %s.", printable(err.Error()))
	}
	q.access, _ = r.Context().Value(accessKey{}).(Access)
	for name := range q.values {
		if !slices.Contains(params, name) {
			q.fail("The parameter %s is not known here. Known are: %s.", quote(printable(name)), strings.Join(params, ", "))
		}
	}
	return q
}

// fail keeps an error of the client.
func (q *query) fail(format string, args ...any) {
	if q.err == nil {
		q.err = problem(http.StatusBadRequest, fmt.Sprintf(format, args...))
	}
}

// text returns a parameter, or "".
func (q *query) text(name string) string { return q.values.Get(name) }

// optional returns a name, or nil if the parameter is not given. Given and empty is the name
// that is empty.
func (q *query) optional(name string) *string {
	if !q.values.Has(name) {
		return nil
	}
	return new(named(q.text(name)))
}

// lines returns the lines of all values of a parameter that are not empty.
func (q *query) lines(name string) (lines []string) {
	for _, value := range q.values[name] {
		for line := range strings.SplitSeq(value, "\n") {
			if line = strings.TrimSuffix(line, "\r"); line != "" {
				lines = append(lines, line)
			}
		}
	}
	if len(lines) > mostRows {
		q.fail("The parameter %s has %d names: must have at most %d.", name, len(lines), mostRows)
		return nil
	}
	return lines
}

// number returns a parameter that is a number of at least least, or fallback.
func (q *query) number(name string, fallback, least int) int {
	text := q.values.Get(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least {
		q.fail("The parameter %s is %q: must be a number of at least %d.", name, printable(text), least)
		return fallback
	}
	return n
}

// name returns the parameter that is the name of a worker or a task.
func (q *query) name() string { return named(q.text("name")) }

// oneOf returns a parameter that is one of some words, or "".
func (q *query) oneOf(name string, words ...string) string {
	text := q.values.Get(name)
	if text != "" && !slices.Contains(words, text) {
		q.fail("The parameter %s is %q: must be one of %s.", name, printable(text), strings.Join(words, ", "))
		return ""
	}
	return text
}

// key is the place of a row in a list. Rows are sorted by rank, then by text.
type key struct {
	rank int
	text string
}

func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.rank, other.rank), strings.Compare(k.text, other.text))
}

// name returns the name of the row.
func (k key) name() api.Name { return api.Name{Name: k.text} }

// String returns the key as the value of a parameter.
func (k key) String() string { return fmt.Sprintf("%d.%s", k.rank, k.text) }

// after returns the key of the parameter "after", or nil without one.
func (q *query) after() *key {
	value := q.text("after")
	if value == "" {
		return nil
	}
	rank, text, ok := strings.Cut(value, ".")
	n, err := strconv.Atoi(rank)
	if !ok || err != nil {
		q.fail("The parameter after is %q: must be what the answer before had in \"after\".", printable(value))
		return nil
	}
	return &key{n, text}
}

// part selects the rows that a query asks for, out of any number of rows in any order.
type part[R any] struct {
	after    *key // nil: from the start
	limit    int
	bytes    int
	matching int
	rows     []keyed[R] // the first ones, and up to as many others
	full     bool       // the first limit+1 rows are sorted, and others come after them
}

type keyed[R any] struct {
	key
	row R
}

func newPart[R any](q *query) *part[R] {
	return &part[R]{after: q.after(), limit: min(q.number("limit", someRows, 1), mostRows), bytes: q.bytes}
}

// add adds a row that matches.
func (p *part[R]) add(k key, row R) {
	p.matching++
	if p.after != nil && k.compare(*p.after) <= 0 || p.full && k.compare(p.rows[p.limit].key) >= 0 {
		return
	}
	p.rows = append(p.rows, keyed[R]{k, row})
	if len(p.rows) >= 4*(p.limit+1) {
		p.sort()
	}
}

// sort sorts the rows and keeps one more than the limit.
func (p *part[R]) sort() []keyed[R] {
	slices.SortFunc(p.rows, func(a, b keyed[R]) int { return a.compare(b.key) })
	if len(p.rows) > p.limit {
		p.rows, p.full = p.rows[:p.limit+1], true
	}
	return p.rows
}

// selected returns the keys and rows of the answer.
func (p *part[R]) selected() []keyed[R] {
	rows := p.sort()
	return rows[:min(len(rows), p.limit)]
}

// page cuts the answer, whose entries are made of the selected rows, to its size, and
// returns what says so. total counts the rows of the whole list.
func page[R, E any](p *part[R], total int, answer []E) ([]E, api.Page) {
	n := fit(answer, p.bytes)
	out := api.Page{Total: total, Matching: p.matching}
	if n > 0 && n < len(p.rows) {
		out.After = p.rows[n-1].String()
	}
	return answer[:n], out
}

// fit returns how many of the first entries fit into a number of bytes as JSON: at least
// one, if there is one.
func fit[E any](entries []E, bytes int) int {
	for i := range entries {
		text, err := json.Marshal(&entries[i])
		if bytes -= len(text) + 1; err != nil || bytes < 0 {
			return max(i, 1)
		}
	}
	return len(entries)
}
