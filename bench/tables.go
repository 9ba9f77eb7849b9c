package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Tables in Markdown, that can be read before they are rendered too.

// table is rows of cells; the first row is the head.
type table [][]string

func (t *table) row(cells ...string) { *t = append(*t, cells) }

// String lays the table out. All columns but the first are aligned to the right
// if numbers says so.
func (t table) layout(numbers bool) string {
	widths := make([]int, len(t[0]))
	for _, row := range t {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell), 4)
		}
	}
	var b strings.Builder
	for n, row := range t {
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if numbers && i > 0 {
				cell = pad + cell
			} else {
				cell += pad
			}
			fmt.Fprintf(&b, "| %s ", cell)
		}
		b.WriteString("|\n")
		if n > 0 {
			continue
		}
		for i, width := range widths {
			if numbers && i > 0 {
				fmt.Fprintf(&b, "| %s: ", strings.Repeat("-", width-1))
			} else {
				fmt.Fprintf(&b, "| %s ", strings.Repeat("-", width))
			}
		}
		b.WriteString("|\n")
	}
	return b.String()
}

// decimal writes a number with as many decimals as tell something.
func decimal(x float64) string {
	switch {
	case x == float64(int64(x)):
		return fmt.Sprintf("%.0f", x)
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return grouped(int(x + 0.5))
}

// millis writes a duration in milliseconds, with three digits that count.
func millis(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms < 1:
		return fmt.Sprintf("%.3f", ms)
	case ms < 10:
		return fmt.Sprintf("%.2f", ms)
	case ms < 100:
		return fmt.Sprintf("%.1f", ms)
	}
	return grouped(int(ms + 0.5))
}

// grouped writes a number with commas.
func grouped(n int) string {
	if n < 0 {
		return "-" + grouped(-n)
	}
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}
