//go:build peers

package replicas_test

// The results: tables of figures, and goals.

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
)

// results is what is written for command bench, in the form of its own results.
type results struct {
	Versions []string // of the stores
	Tables   []*table
	Goals    []goal
}

// table has figures in rows and columns. A column becomes two: medians and maxima.
type table struct {
	title, note string // note: unit and rounds
	columns     []string
	rows        []string
	figures     map[[2]string][]float64 // by column and row
}

type goal struct {
	What     string   `json:"what"`
	Measured *float64 `json:"measured"` // nil: not measured
	Op       string   `json:"op"`
	Limit    float64  `json:"limit"`
	Unit     string   `json:"unit"`
}

func (r *results) table(title, note string) *table {
	t := &table{title: title, note: note, figures: make(map[[2]string][]float64)}
	r.Tables = append(r.Tables, t)
	return t
}

// add adds figures to a row. Columns and rows are in the order of their first figures.
func (t *table) add(column, row string, figures ...float64) {
	if !slices.Contains(t.rows, row) {
		t.rows = append(t.rows, row)
	}
	if !slices.Contains(t.columns, column) {
		t.columns = append(t.columns, column)
	}
	key := [2]string{column, row}
	t.figures[key] = append(t.figures[key], figures...)
}

// of returns the median and the maximum of figures; NaN if there are none.
func (t *table) of(column, row string) (median, highest float64) {
	all := slices.Sorted(slices.Values(t.figures[[2]string{column, row}]))
	n := len(all)
	if n == 0 {
		return math.NaN(), math.NaN()
	}
	return (all[n/2] + all[(n-1)/2]) / 2, all[n-1]
}

// names returns the names of the columns as they are written.
func (t *table) names() (names []string) {
	for _, c := range t.columns {
		names = append(names, strings.TrimPrefix(c+": median", ": "), "maximum")
	}
	return names
}

// values returns the figures of a row as they are written.
func (t *table) values(row string) (values []*float64) {
	for _, c := range t.columns {
		median, highest := t.of(c, row)
		values = append(values, known(median), known(highest))
	}
	return values
}

// known returns a figure for JSON, which has no NaN.
func known(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// MarshalJSON is that of [json.Marshaler].
func (t *table) MarshalJSON() ([]byte, error) {
	rows := []any{}
	for _, row := range t.rows {
		rows = append(rows, map[string]any{"name": row, "values": t.values(row)})
	}
	return json.Marshal(map[string]any{"title": t.title + ", " + t.note, "columns": t.names(), "rows": rows})
}

// atMost adds a goal.
func (r *results) atMost(limit float64, unit, what string, measured float64) {
	r.Goals = append(r.Goals, goal{what, known(measured), "<=", limit, unit})
}

// medians adds a goal for the median of each row.
func (r *results) medians(t *table, column string, limit float64, unit string, rows ...string) {
	for _, row := range rows {
		median, _ := t.of(column, row)
		r.atMost(limit, unit, t.title+", "+column+": "+row, median)
	}
}

// print logs everything.
func (r *results) print(t *testing.T) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	text := func(x *float64) string {
		if x == nil {
			return ""
		}
		return fmt.Sprintf("%.4g", *x)
	}
	for _, of := range r.Tables {
		_, _ = fmt.Fprintf(w, "\n%s, %s\t%s\n", of.title, of.note, strings.Join(of.names(), "\t"))
		for _, row := range of.rows {
			_, _ = fmt.Fprint(w, row)
			for _, x := range of.values(row) {
				_, _ = fmt.Fprint(w, "\t", text(x))
			}
			_, _ = fmt.Fprintln(w)
		}
		_ = w.Flush()
	}
	for _, g := range r.Goals {
		if verdict := "MISSED"; g.Measured != nil {
			if *g.Measured <= g.Limit {
				verdict = "met"
			}
			_, _ = fmt.Fprintf(&b, "%-6s %s: %s, at most %.4g %s\n", verdict, g.What, text(g.Measured), g.Limit, g.Unit)
		}
	}
	t.Logf("%s\n%s", strings.Join(r.Versions, ", "), b.String())
}

// write writes the results for command bench.
func (r *results) write(path string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
