package dashboard

// The plots of the pages. They are values with coordinates, which the templates draw as SVG
// with presentation attributes only, because the content security policy forbids styles.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

const (
	// mostBars is the number of workers up to which each has a bar.
	mostBars = 40
	// mostCells bounds the cells of a plot, and with it its size: see cellsOf.
	mostCells = 16_000
	// timelineTerms is the number of terms in the timeline.
	timelineTerms = 120
	// barWidth is the width of a plot of bars.
	barWidth = 1000
)

// bar is a worker's or a bucket's row in a plot of bars.
type bar struct {
	Class string
	Width int
	Even  int  // the place of the line of an even share; 0: none
	Thin  bool // with a wide bar behind it, of width Ghost
	Ghost int
}

// scaled returns n as a part of a length. A number above zero is seen.
func scaled[N int | uint64 | time.Duration](n, most N, length int) int {
	if n <= 0 || most <= 0 {
		return 0
	}
	return max(int(float64(length)*float64(n)/float64(most)), 3)
}

// workerBars is the load of workers, a bar each.
type workerBars struct {
	Rows   []workerBar
	Even   float64 // tasks of an even share
	Spread int     // between the open workers
	Open   int     // workers that are open to tasks
	// ByWeight: the bars are weights. ByShare: shares differ, so there is no even share.
	ByWeight, ByShare bool
}

type workerBar struct {
	api.Worker
	Bar bar
}

// isOpen reports whether a worker is open to new tasks.
func isOpen(w api.Worker) bool { return tone(w) == "answering" }

// barsOf returns the bars of some workers. The even share is that of all workers.
func barsOf(rows, all []api.Worker) workerBars {
	var b workerBars
	share := func(w api.Worker) int { return max(w.Settings.Share, 1) }
	sum, shares, least, highest := 0, 0, math.MaxInt, 0
	for _, w := range all {
		b.ByShare = b.ByShare || share(w) != share(all[0])
		if isOpen(w) {
			b.Open++
			sum, shares = sum+w.Tasks, shares+share(w)
			least, highest = min(least, w.Tasks), max(highest, w.Tasks)
		}
	}
	if b.Open > 0 {
		b.Spread, b.Even = highest-least, float64(sum)/float64(b.Open)
	}
	b.ByWeight = slices.ContainsFunc(rows, func(w api.Worker) bool { return w.Level > 0 })
	of := func(w api.Worker) (load int, even float64) {
		switch {
		case b.ByWeight:
			return int(w.Weight), float64(w.Level)
		case b.ByShare && !isOpen(w):
			return w.Tasks, 0
		case b.ByShare:
			return w.Tasks, float64(sum*share(w)) / float64(shares)
		}
		return w.Tasks, b.Even
	}
	most := 1
	for _, w := range rows {
		load, even := of(w)
		most = max(most, load, int(math.Ceil(even))+1)
	}
	for _, w := range rows {
		load, even := of(w)
		b.Rows = append(b.Rows, workerBar{w, bar{Class: tone(w), Width: scaled(load, most, barWidth), Even: int(even * barWidth / float64(most))}})
	}
	return b
}

// bucket is the number of workers with From to To tasks.
type bucket struct {
	From, To, Workers int
	Bar               bar
}

// histogramOf returns how many open workers have how many tasks, in at most 16 buckets, none
// of them empty.
func histogramOf(all []api.Worker) []bucket {
	const mostBuckets = 16
	loads := make([]int, 0, len(all))
	for _, w := range all {
		if isOpen(w) {
			loads = append(loads, w.Tasks)
		}
	}
	if len(loads) == 0 {
		return nil
	}
	least, highest := slices.Min(loads), slices.Max(loads)
	width := (highest-least)/mostBuckets + 1
	buckets := make([]bucket, (highest-least)/width+1)
	for i := range buckets {
		buckets[i].From = least + i*width
		buckets[i].To = buckets[i].From + width - 1
	}
	most := 0
	for _, load := range loads {
		b := &buckets[(load-least)/width]
		b.Workers++
		most = max(most, b.Workers)
	}
	for i := range buckets {
		buckets[i].Bar = bar{Class: "answering", Width: scaled(buckets[i].Workers, most, barWidth)}
	}
	return slices.DeleteFunc(buckets, func(b bucket) bool { return b.Workers == 0 })
}

// cellPlot has a cell for each worker, in the order in which the workers were added, so that
// workers that fail together are seen together.
type cellPlot struct {
	Width, Height int
	Layers        []cellLayer
}

// cellLayer is the cells of one kind: a path of horizontal lines, which the dashes of its
// stroke cut into cells. A row of equal cells is one line, so that the path is short.
type cellLayer struct {
	Class   string
	Path    string
	Stroke  float64 // the height of a cell
	Workers int
	State   string // the link to the workers; empty for those that answer
	Text    string
}

// cellsOf returns the cells of workers, and nil if they are more than mostCells. A path has at
// most ten bytes for each worker.
func cellsOf(all []api.Worker) *cellPlot {
	const pitch = 6
	if len(all) == 0 || len(all) > mostCells {
		return nil
	}
	columns := min(max(int(math.Sqrt(float64(len(all))*2.6)), 30), 160)
	layers := []cellLayer{
		{Class: "answering", Stroke: 5, Text: "within two tasks of an even share"},
		{Class: "over", Stroke: 5, Text: "more"},
		{Class: "under", Stroke: 5, Text: "less"},
		{Class: "late", Stroke: 4, State: "late"},
		{Class: "draining", Stroke: 3, State: "draining"},
		{Class: "quarantined", Stroke: 3, State: "quarantined"},
		{Class: "silent", Stroke: 4, State: "silent"},
		{Class: "lost", Stroke: 2, State: "lost"},
	}
	paths := make([]strings.Builder, len(layers))
	even := barsOf(nil, all).Even
	kind := func(i int) int {
		class := tone(all[i])
		if class == "answering" && float64(all[i].Tasks) >= even+2 {
			class = "over"
		} else if class == "answering" && float64(all[i].Tasks) <= even-2 {
			class = "under"
		}
		return slices.IndexFunc(layers, func(l cellLayer) bool { return l.Class == class })
	}
	for i := 0; i < len(all); {
		k, row, run := kind(i), i/columns, 1
		for i+run < len(all) && (i+run)/columns == row && kind(i+run) == k {
			run++
		}
		fmt.Fprintf(&paths[k], "M%d %dh%d", i%columns*pitch, row*pitch+pitch/2, run*pitch-1)
		layers[k].Workers += run
		i += run
	}
	for k := range layers {
		layers[k].Path = paths[k].String()
		layers[k].Text = cmp.Or(layers[k].Text, layers[k].State)
	}
	return &cellPlot{
		Width: columns * pitch, Height: ((len(all)-1)/columns + 1) * pitch,
		Layers: slices.DeleteFunc(layers, func(l cellLayer) bool { return l.Workers == 0 }),
	}
}

// segment is a rectangle of a bar. It is not drawn if its height is 0.
type segment struct {
	Class               string
	X, Y, Width, Height int
}

const (
	timelineWidth, timelineHeight = 960, 80
	startsHeight                  = 44
	missingHeight                 = 5 // of the mark below the starts
)

// timeline is the plot of the last terms: how long they took, and below it how many starts
// they made.
type timeline struct {
	Bars        []timelineBar // the oldest first
	Longest     time.Duration
	MostStarts  int
	Quiet       int // terms that are left out
	First, Last api.TermRow
}

type timelineBar struct {
	Row            api.TermRow
	Phases, Starts []segment
}

// timelineOf returns the plot of terms, the newest first. The bars fill its width, and become
// wider if they are few.
func timelineOf(rows []api.TermRow) *timeline {
	rows = rows[:min(len(rows), timelineTerms)]
	if len(rows) == 0 {
		return nil
	}
	t := &timeline{Longest: 1, First: rows[len(rows)-1], Last: rows[0]}
	for i := range rows {
		stats := &rows[i].Stats
		t.Longest, t.MostStarts = max(t.Longest, stats.Total), max(t.MostStarts, stats.Adds)
	}
	pitch := timelineWidth / len(rows)
	width := min(pitch-2, 24)
	for i, row := range slices.Backward(rows) {
		stats := &row.Stats
		x := timelineWidth - (i+1)*pitch + (pitch-2-width)/2
		t.Quiet += row.Quiet
		b := timelineBar{Row: row}
		y := timelineHeight
		for _, phase := range []struct {
			class string
			took  time.Duration
		}{{"list", stats.Listing}, {"plan", stats.Planning}, {"write", stats.Writing}} {
			if height := scaled(phase.took, t.Longest, timelineHeight-6); height > 0 {
				y -= height
				b.Phases = append(b.Phases, segment{phase.class, x, y, width, height})
			}
		}
		if stats.Adds > 0 {
			starts, fewest := scaled(stats.Adds, t.MostStarts, startsHeight), scaled(stats.LowerBound, t.MostStarts, startsHeight)
			wide := width * 2 / 3
			b.Starts = append(b.Starts, segment{"starts", x, startsHeight - starts, wide, starts})
			b.Starts = append(b.Starts, segment{"fewest", x + wide, startsHeight - fewest, width - wide, fewest})
		}
		if stats.Instances.Missing > 0 {
			b.Starts = append(b.Starts, segment{"missing", x, startsHeight + 3, width, missingHeight})
		}
		t.Bars = append(t.Bars, b)
	}
	return t
}

// loadPlot is a worker's number of tasks over time.
type loadPlot struct {
	Line, Area      string // paths
	Least, Most     int
	First           time.Time
	Width, Height   int
	Points, Current int
}

// loadOf returns the plot of the points of a worker's load, the oldest first, up to now.
func loadOf(points []api.LoadPoint, now time.Time) *loadPlot {
	const width, height = 960, 96
	if len(points) == 0 {
		return nil
	}
	p := &loadPlot{
		Least: points[0].Tasks, First: points[0].Time, Width: width, Height: height,
		Points: len(points), Current: points[len(points)-1].Tasks,
	}
	for _, point := range points {
		p.Least, p.Most = min(p.Least, point.Tasks), max(p.Most, point.Tasks)
	}
	span := max(now.Sub(p.First), 1)
	var line strings.Builder
	for i, point := range points {
		x := int(float64(width) * float64(point.Time.Sub(p.First)) / float64(span))
		y := height - 2 - scaled(point.Tasks, p.Most, height-8)
		if i == 0 {
			fmt.Fprintf(&line, "M0 %d", y)
		} else {
			fmt.Fprintf(&line, "H%dV%d", x, y)
		}
	}
	fmt.Fprintf(&line, "H%d", width)
	p.Line = line.String()
	p.Area = fmt.Sprintf("%sV%dH0z", p.Line, height)
	return p
}

// workerChange is the change of a worker's load in a what-if plan.
type workerChange struct {
	orchestrator.WorkerPlan[string]
	States []string
	Bar    bar
}

// differenceOf returns the rows of the workers of a what-if plan.
func differenceOf(rows []orchestrator.WorkerPlan[string]) []workerChange {
	most := 0
	for _, w := range rows {
		most = max(most, w.Before, w.After)
	}
	changes := make([]workerChange, len(rows))
	for i, w := range rows {
		as := api.Worker{State: w.State, Late: w.Late, Draining: w.Draining, Quarantined: w.Quarantined}
		changes[i] = workerChange{w, statesOf(as), bar{Class: tone(as), Width: scaled(w.After, most, barWidth), Thin: true, Ghost: scaled(w.Before, most, barWidth)}}
	}
	return changes
}

// callRow is the calls of one kind in a term.
type callRow struct {
	Kind string
	orchestrator.CallStats
	Typical, Slow string // bounds of the durations of half and of 99 % of the calls
	Buckets       []segment
}

// callsOf returns the calls of a term by kind, without those that it did not make.
func callsOf(s orchestrator.TermStats) []callRow {
	var rows []callRow
	for _, row := range []callRow{{Kind: "List", CallStats: s.List}, {Kind: "Add", CallStats: s.Add}, {Kind: "Remove", CallStats: s.Remove}, {Kind: "Apply", CallStats: s.Apply}} {
		if row.Done+row.Rejected+row.Stopping+row.Deposed+row.Timeout+row.Failed == 0 {
			continue
		}
		d := &row.Seconds
		row.Typical, row.Slow = quantile(d, 0.5), quantile(d, 0.99)
		longer := d.Count
		for _, n := range d.Buckets {
			longer -= n
		}
		const height, pitch = 32, 12
		all := append(slices.Clone(d.Buckets[:]), longer)
		for i, n := range all {
			if h := scaled(n, slices.Max(all), height); h > 0 {
				row.Buckets = append(row.Buckets, segment{"answering", i * pitch, height - h, pitch - 2, h})
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// quantile returns the bound below which a part of the durations is.
func quantile(d *orchestrator.Durations, part float64) string {
	if d.Count == 0 {
		return ""
	}
	bounds := orchestrator.DurationBounds()
	least := uint64(math.Ceil(part * float64(d.Count)))
	var sum uint64
	for i, n := range d.Buckets {
		if sum += n; sum >= least {
			return "≤ " + took(bounds[i])
		}
	}
	return "> " + took(bounds[len(bounds)-1])
}

// stack returns the parts of a line of what is as it should be, held or silent, and missing or lost.
func stack(well, held, missing int) []segment {
	parts := []segment{{Class: "answering", Width: well}, {Class: "silent", Width: held}, {Class: "lost", Width: missing}}
	whole, x := 0, 0
	for _, part := range parts {
		whole += part.Width
	}
	for i := len(parts) - 1; i > 0; i-- { // the first takes what the others leave
		parts[i].Width = max(scaled(parts[i].Width, whole, barWidth), min(parts[i].Width, 1)*8)
	}
	if parts[0].Width > 0 {
		parts[0].Width = barWidth
		for _, part := range parts[1:] {
			parts[0].Width -= part.Width
		}
	}
	for i := range parts {
		parts[i].X = x
		x += parts[i].Width
	}
	return slices.DeleteFunc(parts, func(s segment) bool { return s.Width <= 0 })
}
