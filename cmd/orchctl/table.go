package main

// Text for people: tables, times and names.

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/f8949c05/orchestrator/dashboard/api"
)

// screen is what tables are written for.
type screen struct {
	width  int // columns; 0: any
	colour bool
}

// minColumn is the least width to which a column shrinks.
const minColumn = 8

// table returns a heading and rows with aligned columns. If they exceed the width of the
// screen, the widest columns shrink, and the text of a cell continues on the next line. It
// returns "" without rows.
func (s screen) table(heading []string, rows [][]string) string {
	if len(rows) == 0 {
		return ""
	}
	lines := append([][]string{heading}, rows...)
	widths := s.widths(lines)
	var b strings.Builder
	for n, row := range lines {
		cells, height := make([][]string, len(row)), 1
		for i, cell := range row {
			cells[i] = wrap(cell, widths[i])
			height = max(height, len(cells[i]))
		}
		for y := range height {
			var line strings.Builder
			pad := 0
			for i := range row {
				text := ""
				if y < len(cells[i]) {
					text = cells[i][y]
				}
				if text != "" {
					line.WriteString(strings.Repeat(" ", pad))
					line.WriteString(s.paint(n == 0, y == 0, heading[i], text))
					pad = 0
				}
				pad += widths[i] - utf8.RuneCountInString(text) + 2
			}
			b.WriteString(line.String() + "\n")
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
	for s.width > 0 && total > s.width {
		widest := 0
		for i, w := range widths {
			if w > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= minColumn {
			break
		}
		widths[widest]--
		total--
	}
	return widths
}

// wrap splits a text into lines of at most a width, at spaces where there are some.
func wrap(text string, width int) (lines []string) {
	for utf8.RuneCountInString(text) > width {
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

// escapeJSON returns JSON in which each character that is not printable is escaped. Outside
// of strings JSON has no such character.
func escapeJSON(encoded []byte) string {
	var b strings.Builder
	for _, r := range string(encoded) {
		switch {
		case unicode.IsPrint(r) || r == '\n':
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

// shown returns a name for a table.
func shown(n api.Name) string { return name(n.String()) }

// name returns the text of a name for a table.
func name(text string) string {
	if text == "" {
		return `""`
	}
	return api.Printable(text)
}

// column returns the names in rows, for the format name.
func column[R any](rows []R, name func(*R) string) func() []string {
	return func() (names []string) {
		for i := range rows {
			names = append(names, name(&rows[i]))
		}
		return names
	}
}

// shownAll returns the first names of a list that has a total, and how many are left out.
func shownAll(names []api.Name, total int) string {
	var all []string
	for _, n := range names {
		all = append(all, shown(n))
	}
	text := strings.Join(all, ", ")
	if more := total - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// plural returns a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// short returns a duration with about three digits.
func short(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Microsecond).String()
}

// when returns a time for a table, or "-" if t is zero: of a log as it is, and otherwise how
// long ago it was.
func (s *session) when(now, t time.Time) string {
	if s.settings.log != nil || t.IsZero() {
		return clock(t)
	}
	return ago(now, t) + " ago"
}

// ago returns how long before now t is, or "-" if t is zero.
func ago(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return short(max(now.Sub(t), 0))
}
