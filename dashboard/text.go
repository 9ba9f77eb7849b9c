package dashboard

// The answers as text, from the templates in web/text.txt, which share their functions with the pages.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"
	"unicode/utf8"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

// newTexts parses the templates of the answers as text.
func (h *Handler) newTexts() (words, error) {
	funcs := maps.Clone(sentenceFuncs(h.words))
	maps.Copy(funcs, template.FuncMap{
		"all": func(w orchestrator.WorkerStats) int { return w.Answering + w.Silent + w.Lost }, "isKind": isKind,
		"more": func(n int, noun string) string {
			if n > 0 {
				return "and " + plural(n, noun) + "\n"
			}
			return ""
		},
		"replayed": func() bool { return h.replays },
		"backward": slices.Backward[[]api.RepeatedChange],
		"when": func(now, t time.Time) string {
			switch {
			case t.IsZero():
				return "-"
			case h.replays:
				return api.Clock(t)
			}
			return agoOf(t, now).Ago
		},
	})
	t, err := template.New("").Funcs(funcs).ParseFS(web, "web/text.txt")
	return words{t}, err
}

// wanted returns the parameters of the media type text/plain that a request accepts, or nil if it does
// not begin with that.
func wanted(r *http.Request) map[string]string {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Accept"))
	if err != nil || kind != "text/plain" {
		return nil
	}
	return params
}

// writeText sends an answer as text. head has what programs need to know of it.
func (h *Handler) writeText(w http.ResponseWriter, r *http.Request, route, tag string, head api.Text, value any) {
	params, query := wanted(r), r.URL.Query()
	one := h.texts.Lookup(route + "." + params["view"])
	if one == nil {
		h.fail(w, r, problem(http.StatusNotAcceptable, "This dashboard has no view "+quote(printable(params["view"]))+" of "+route+" as text."))
		return
	}
	switch a := value.(type) {
	case api.Status:
		head.ProblemsTotal = a.ProblemsTotal
	case api.Workers:
		head.Page, head.Rows = a.Page, len(a.Workers)
	case api.Tasks:
		head.Page, head.Rows = a.Page, len(a.Tasks)
	case api.Terms:
		head.Page, head.Rows = a.Page, len(a.Terms)
	case api.Changes:
		head.Page, head.Rows = a.Page, len(a.Changes)
	}
	var b bytes.Buffer
	err := one.Execute(&b, struct {
		A     any
		Query url.Values
	}{value, query})
	encoded, failed := json.Marshal(&head)
	if err != nil || failed != nil {
		h.broken(w, r, cmp.Or(err, failed))
		return
	}
	s := screen{colour: params["colour"] != "", continued: query.Has("after")}
	s.width, _ = strconv.Atoi(params["width"])
	w.Header().Set(api.TextHeader, string(encoded))
	h.write(w, r, answer{status: http.StatusOK, contentType: "text/plain; charset=utf-8", tag: tag, body: []byte(s.lay(b.String()))})
}

// screen is what a text is written for.
type screen struct {
	width     int // columns; 0: any
	colour    bool
	continued bool // the heading of the first table is on the page before
}

const (
	// minColumn is the least width to which a column shrinks.
	minColumn = 8
	// aligned bounds a text with aligned columns, in bytes. What follows has less than textBytes.
	aligned   = 150 << 10
	textBytes = 100 << 10
)

// lay aligns the tables of a text, and wraps its lines.
func (s screen) lay(text string) string {
	var b strings.Builder
	var rows [][]string
	empty := false
	put := func(text string) {
		if empty && b.Len() > 0 {
			b.WriteByte('\n')
		}
		empty = false
		b.WriteString(text)
	}
	flush := func() {
		if len(rows) > 1 {
			put(s.table(rows))
		}
		rows = nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.Contains(line, "\t") {
			rows = append(rows, strings.Split(line, "\t"))
			continue
		}
		flush()
		if line == "" || line == "\f" {
			empty = empty || line == ""
			continue
		}
		put(strings.Join(wrap(line, s.width), "\n") + "\n")
	}
	flush()
	return b.String()
}

// table returns a heading and rows with aligned columns. If they exceed the width of the screen, the
// widest columns shrink, and the text of a cell continues on the next line.
func (s screen) table(lines [][]string) string {
	widths := s.widths(lines)
	var b strings.Builder
	for n, row := range lines {
		if n == 0 && s.continued {
			continue
		}
		cells, height := make([][]string, len(row)), 1
		for i, cell := range row {
			cells[i] = wrap(cell, widths[i])
			height = max(height, len(cells[i]))
		}
		for y := range height {
			pad := 0
			for i := range row {
				text := ""
				if y < len(cells[i]) {
					text = cells[i][y]
				}
				if text != "" {
					if b.Len() < aligned {
						b.WriteString(strings.Repeat(" ", pad))
					} else {
						b.WriteString("  ")
					}
					b.WriteString(s.paint(n == 0, y == 0, lines[0][i], text))
					pad = 0
				}
				pad += widths[i] - utf8.RuneCountInString(text) + 2
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// widths returns the widths of the columns.
func (s screen) widths(lines [][]string) []int {
	widths := make([]int, len(lines[0]))
	total := 2 * (len(widths) - 1)
	for i := range widths {
		for _, line := range lines {
			widths[i] = max(widths[i], utf8.RuneCountInString(line[i]))
		}
		total += widths[i]
	}
	for ; s.width > 0 && total > s.width; total-- {
		widest := slices.Index(widths, slices.Max(widths))
		if widths[widest] <= minColumn {
			break
		}
		widths[widest]--
	}
	return widths
}

// wrap splits a text into lines of at most a width, at spaces where there are some. The width 0 is any.
func wrap(text string, width int) (lines []string) {
	for width > 0 && utf8.RuneCountInString(text) > width {
		end := len(string([]rune(text)[:width])) // of the first line
		if text[end] != ' ' {
			if space := strings.LastIndexByte(text[:end], ' '); space > 0 {
				end = space
			}
		}
		lines = append(lines, strings.TrimRight(text[:end], " "))
		text = strings.TrimLeft(text[end:], " ")
	}
	return append(lines, text)
}

// The words that have a colour in the columns for states. Each is a word too, for those who
// do not see colours.
const (
	bad      = " lost failed missing unplaced failing mass loss no terms term cut "
	doubtful = " silent late draining quarantined stuck unknown returned skipped stopping held staying "
)

// paint adds the colour of a heading, or of the words that begin a cell in a column of states.
func (s screen) paint(isHeading, isFirst bool, column, text string) string {
	colour := ""
	switch {
	case !s.colour || !isFirst:
	case isHeading:
		colour = "1"
	case column == "state" || column == "outcome" || column == "problem" || column == "kind":
		words, _, _ := strings.Cut(text, ":")
		for word := range strings.SplitSeq(words, ", ") {
			switch {
			case strings.Contains(bad, " "+word+" "):
				colour = "31"
			case strings.Contains(doubtful, " "+word+" ") && colour == "":
				colour = "33"
			}
		}
	}
	if colour == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
