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
	Version string // of PostgreSQL
	Tables  []*table
	Goals   []goal
}

// table has figures of both systems, a row for each kind. It becomes medians and maxima.
type table struct {
	Title string
	names []string
	rows  map[string]map[string][]float64 // by system
}

type goal struct {
	What     string   `json:"what"`
	Measured *float64 `json:"measured"` // nil: not measured
	Op       string   `json:"op"`
	Limit    float64  `json:"limit"`
	Unit     string   `json:"unit"`
}

func (r *results) table(title string) *table {
	t := &table{Title: title, rows: make(map[string]map[string][]float64)}
	r.Tables = append(r.Tables, t)
	return t
}

// add adds figures to a row.
func (t *table) add(row, system string, figures ...float64) {
	if t.rows[row] == nil {
		t.names, t.rows[row] = append(t.names, row), make(map[string][]float64)
	}
	t.rows[row][system] = append(t.rows[row][system], figures...)
}

// median returns that of a row; NaN: it has no figures.
func (t *table) median(row, system string) float64 {
	of := slices.Sorted(slices.Values(t.rows[row][system]))
	if len(of) == 0 {
		return math.NaN()
	}
	return (of[len(of)/2] + of[(len(of)-1)/2]) / 2
}

// values returns the figures of a row, as the columns name them.
func (t *table) values(row string) []*float64 {
	worst := func(system string) float64 {
		if len(t.rows[row][system]) == 0 {
			return math.NaN()
		}
		return slices.Max(t.rows[row][system])
	}
	a, b := t.median(row, ours), t.median(row, theirs)
	all := make([]*float64, len(columns))
	for i, x := range []float64{a, worst(ours), b, worst(theirs), a / b} {
		all[i] = known(x)
	}
	return all
}

var columns = []string{"wire: median", "maximum", "replica: median", "maximum", "ratio of the medians"}

// known returns a figure for JSON, which has no NaN.
func known(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// MarshalJSON is that of [json.Marshaler].
func (t *table) MarshalJSON() ([]byte, error) {
	type row struct {
		Name   string     `json:"name"`
		Values []*float64 `json:"values"`
	}
	rows := []row{}
	for _, name := range t.names {
		rows = append(rows, row{name, t.values(name)})
	}
	return json.Marshal(map[string]any{"title": t.Title, "columns": columns, "rows": rows})
}

// atMost adds a goal.
func (r *results) atMost(limit float64, unit, what string, measured float64) {
	r.Goals = append(r.Goals, goal{what, known(measured), "<=", limit, unit})
}

// medians adds a goal for the median of each row, and ratios one for that of both systems.
func (r *results) medians(t *table, limit float64, unit string, rows ...string) {
	for _, row := range rows {
		r.atMost(limit, unit, t.Title+": "+row, t.median(row, ours))
	}
}

func (r *results) ratios(t *table, limit float64, rows ...string) {
	for _, row := range rows {
		r.atMost(limit, "× replica", t.Title+": "+row, t.median(row, ours)/t.median(row, theirs))
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
		_, _ = fmt.Fprintf(w, "\n%s\t%s\trounds\n", of.Title, strings.Join(columns, "\t"))
		for _, row := range of.names {
			_, _ = fmt.Fprintf(w, "%s\t", row)
			for _, x := range of.values(row) {
				_, _ = fmt.Fprintf(w, "%s\t", text(x))
			}
			_, _ = fmt.Fprintf(w, "%d\n", len(of.rows[row][ours]))
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
	t.Logf("PostgreSQL %s\n%s", r.Version, b.String())
}

// write writes the results for command bench.
func (r *results) write(path string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
