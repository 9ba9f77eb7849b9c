//go:build peers

package main

// The results: tables of figures, and goals. They are stored as JSON, part by part, and
// the page is rendered from them.

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"
	"unicode/utf8"
)

// The files, relative to the root of the repository.
const (
	resultsFile = "examples/bench/results.json"
	pageFile    = "BENCHMARKS.md"
	livesFile   = "test/lives/testdata/lives.md"
)

// results holds the last measurement of each part.
type results []part

// part holds the results of one measurement.
type part struct {
	Name string `json:"name"`
	origin
	Took   string  `json:"took"`
	Goals  []goal  `json:"goals"`
	Tables []table `json:"tables"`
}

// origin is where and when a part was measured.
type origin struct {
	Commit   string `json:"commit"`
	Date     string `json:"date"`
	Machine  string `json:"machine"`
	Versions string `json:"versions"`
}

// findings are what a measurement found, before its figures are stored.
type findings interface {
	tables() []table
	goals() []goal
}

// versioned is implemented by findings about software that is not linked.
type versioned interface{ versions() []string }

// newPart returns the results of a measurement that began at start.
func newPart(ctx context.Context, name string, start time.Time, found findings) part {
	of := versions()
	if v, ok := found.(versioned); ok {
		of = append(of, v.versions()...)
	}
	return part{
		Name: name,
		origin: origin{
			Commit: revision(ctx), Date: start.UTC().Format(time.DateOnly),
			Machine: machine(), Versions: strings.Join(of, ", "),
		},
		Took:   time.Since(start).Round(time.Second).String(),
		Goals:  found.goals(),
		Tables: found.tables(),
	}
}

// table holds figures by row and column. Titles and names include the units.
type table struct {
	Title   string   `json:"title"`
	Columns []string `json:"columns"`
	Rows    []row    `json:"rows"`
}

type row struct {
	Name   string   `json:"name"`
	Values []number `json:"values"`
}

func (t *table) add(name string, values ...number) { t.Rows = append(t.Rows, row{name, values}) }

// number is a figure. NaN means that it was not measured, and is null in JSON.
type number float64

func missing() number { return number(math.NaN()) }

// count returns a number of things.
func count(n int) number { return number(n) }

// ms returns a duration in milliseconds.
func ms(d time.Duration) number { return number(d) / number(time.Millisecond) }

func (n number) isMissing() bool { return math.IsNaN(float64(n)) }

// MarshalJSON implements [json.Marshaler]. It keeps integers exact, and six significant
// digits of other figures.
func (n number) MarshalJSON() ([]byte, error) {
	x := float64(n)
	if n.isMissing() {
		return []byte("null"), nil
	}
	if x != math.Trunc(x) {
		var err error
		if x, err = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 6, 64), 64); err != nil {
			return nil, err
		}
	}
	return json.Marshal(x)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (n *number) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*n = missing()
		return nil
	}
	return json.Unmarshal(text, (*float64)(n))
}

// String returns the figure with three significant digits, or with all digits before
// the point if there are more. It returns an empty string for a missing figure.
func (n number) String() string {
	switch x := float64(n); {
	case n.isMissing():
		return ""
	case math.Abs(x) < 100 && x != math.Trunc(x):
		return strconv.FormatFloat(x, 'g', 3, 64)
	default:
		return grouped(int(math.Round(x)))
	}
}

// grouped formats a number with commas.
func grouped(n int) string {
	if n < 0 {
		return "-" + grouped(-n)
	}
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}

// goal is a limit and the measured figure. The goals were set before the code was
// optimized, and do not move.
type goal struct {
	What     string `json:"what"`
	Measured number `json:"measured"`
	Op       string `json:"op"` // "<", "<=" or ">="
	Limit    number `json:"limit"`
	Unit     string `json:"unit"`
	Note     string `json:"note,omitempty"` // such as the event with the worst figure
}

// Met reports whether the goal is met.
func (g goal) Met() bool {
	switch g.Op {
	case "<":
		return g.Measured < g.Limit
	case "<=":
		return g.Measured <= g.Limit
	case ">=":
		return g.Measured >= g.Limit
	}
	return false
}

// figure is a measured ratio with a name.
type figure struct {
	name  string
	value float64
}

func worstOf(figures []figure) figure {
	return slices.MaxFunc(figures, func(a, b figure) int { return int(math.Copysign(1, a.value-b.value)) })
}

// atMost returns a goal for the worst of several ratios.
func atMost(what, unit string, limit float64, figures ...figure) goal {
	worst := worstOf(figures)
	return goal{What: what, Measured: number(worst.value), Op: "<=", Limit: number(limit), Unit: unit, Note: worst.name}
}

// put replaces the part of the same name, or adds a part.
func (r results) put(p part) results {
	if i := slices.IndexFunc(r, func(old part) bool { return old.Name == p.Name }); i >= 0 {
		r[i] = p
		return r
	}
	return append(r, p)
}

// load reads results from a file. A missing file yields an empty list.
func load(path string) (results, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r results
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// encode returns the results as indented JSON, with each list of figures on one line.
func (r results) encode() ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "\t")
	if err := encoder.Encode(r); err != nil {
		return nil, err
	}
	figureList := regexp.MustCompile(`\[[\s\d.,e+nul-]+\]`)
	return figureList.ReplaceAllFunc(b.Bytes(), func(list []byte) []byte {
		figures := bytes.Fields(list[1 : len(list)-1])
		return slices.Concat([]byte("["), bytes.Join(figures, []byte(" ")), []byte("]"))
	}), nil
}

// write stores the results and the page. It writes neither if the page cannot be
// rendered.
func (r results) write() error {
	text, err := r.encode()
	if err != nil {
		return err
	}
	var stored results // has rounded figures
	if err := json.Unmarshal(text, &stored); err != nil {
		return err
	}
	page, err := stored.page()
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(resultsFile, text, 0o644), os.WriteFile(pageFile, []byte(page), 0o644))
}

// print writes all tables and goals as text.
func (r results) print(w io.Writer) error {
	for _, p := range r {
		if _, err := fmt.Fprintf(w, "\n## %s\n\nMeasured at commit %s, %s, in %s, on %s.\n", p.Name, p.Commit, p.Date, p.Took, p.Machine); err != nil {
			return err
		}
		for _, t := range p.Tables {
			if _, err := fmt.Fprintf(w, "\n%s:\n\n%s", t.Title, t); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(w, "\n%s", goalList(p.Goals)); err != nil {
			return err
		}
	}
	return nil
}

// page renders the page about these results.
func (r results) page() (string, error) {
	t, err := template.New(pageFile).Parse(pageTemplate)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, r)
	return b.String(), err
}

//go:embed page.md.tmpl
var pageTemplate string

// The methods that follow are for the template.

// Table returns a table of a part.
func (r results) Table(name, title string) (table, error) {
	for _, p := range r {
		for _, t := range p.Tables {
			if p.Name == name && t.Title == title {
				return t, nil
			}
		}
	}
	return table{}, fmt.Errorf("part %q has no table %q", name, title)
}

// Figure returns one figure of a table.
func (r results) Figure(name, title, row, column string) (number, error) {
	t, err := r.Table(name, title)
	if err != nil {
		return missing(), err
	}
	at := slices.Index(t.Columns, column)
	for _, found := range t.Rows {
		if found.Name == row && at >= 0 {
			return found.Values[at], nil
		}
	}
	return missing(), fmt.Errorf("table %q has no figure %q, %q", title, row, column)
}

// Lives returns the table that test/lives wrote.
func (r results) Lives() (string, error) {
	text, err := os.ReadFile(livesFile)
	return string(text), err
}

// Goals returns the goals of all parts.
func (r results) Goals() goalList {
	var all goalList
	for _, p := range r {
		all = append(all, p.Goals...)
	}
	return all
}

// Origins returns a list of where and when the parts were measured, with their names if
// there is more than one origin.
func (r results) Origins() string {
	var origins []origin
	parts := make(map[origin][]string)
	for _, p := range r {
		if parts[p.origin] == nil {
			origins = append(origins, p.origin)
		}
		parts[p.origin] = append(parts[p.origin], p.Name)
	}
	var b strings.Builder
	for _, o := range origins {
		of := ""
		if len(origins) > 1 {
			of = " (" + strings.Join(parts[o], ", ") + ")"
		}
		fmt.Fprintf(&b, "- Commit %s, %s, on %s%s. Versions: %s.\n", o.Commit, o.Date, o.Machine, of, o.Versions)
	}
	return b.String()
}

// String returns the table in Markdown.
func (t table) String() string {
	cells := [][]string{append([]string{""}, t.Columns...)}
	for _, r := range t.Rows {
		line := []string{r.Name}
		for _, v := range r.Values {
			line = append(line, v.String())
		}
		cells = append(cells, line)
	}
	return markdown(cells, true)
}

// goalList prints as a table.
type goalList []goal

// Missed returns the goals that are not met.
func (g goalList) Missed() goalList {
	return slices.DeleteFunc(slices.Clone(g), goal.Met)
}

// String returns the goals in Markdown.
func (g goalList) String() string {
	cells := [][]string{{"goal", "measured", "limit", ""}}
	limits := strings.NewReplacer("<=", "at most", ">=", "at least", "<", "under")
	for _, goal := range g {
		verdict := "met"
		if !goal.Met() {
			verdict = "**not met**"
		}
		measured := goal.Measured.String() + " " + goal.Unit
		if goal.Note != "" {
			measured += " (" + goal.Note + ")"
		}
		cells = append(cells, []string{goal.What, measured, limits.Replace(goal.Op) + " " + goal.Limit.String(), verdict})
	}
	return markdown(cells, false)
}

// markdown returns a Markdown table that is readable before it is rendered. The first row
// is the head. If numbers is true, all columns except the first are right-aligned.
func markdown(rows [][]string, numbers bool) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell), 4)
		}
	}
	var b strings.Builder
	for n, row := range rows {
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

// The machine and the versions measured.

// machine describes the computer in one line.
func machine() string {
	model := runtime.GOARCH
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, GOMAXPROCS %d, %s/%s", model, runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH)
}

// others are the modules that this library is compared with or runs on.
var others = []string{"github.com/twmb/franz-go", "github.com/IBM/sarama", "github.com/dgryski/go-jump", grpcModule}

// grpcModule is the module of gRPC.
const grpcModule = "google.golang.org/grpc"

// versions returns the versions of Go and of the other modules.
func versions() []string {
	found := []string{runtime.Version()}
	for _, other := range others {
		found = append(found, strings.TrimPrefix(other, "github.com/")+" "+version(other))
	}
	return found
}

// version returns the version of a linked module.
func version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == module {
				return dep.Version
			}
		}
	}
	return "unknown"
}

// revision returns the commit of the working tree.
func revision(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
