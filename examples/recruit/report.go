package main

// The report printed at the end.

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator/recruit"
)

const chartWidth = 30 // length of the longest bar, in characters

func (r *results) print(out io.Writer, jobs []recruit.JobStats) error {
	var b strings.Builder
	if r.cut {
		fmt.Fprintf(&b, "cut short after %v\n\n", r.samples[len(r.samples)-1].at.Round(100*time.Millisecond))
	}
	fmt.Fprintf(&b, "requests   %d to each service\n\n", r.requests)
	r.printRecruits(&b, jobs)
	r.printChart(&b)
	r.printLatencies(&b)
	_, err := io.WriteString(out, b.String())
	return err
}

// printRecruits compares the recruits of each job with the number expected from its
// rate.
func (r *results) printRecruits(b *strings.Builder, jobs []recruit.JobStats) {
	fmt.Fprintf(b, "recruits   %-8s %5s  %9s  %14s  %9s  %6s  %7s  %s\n", "job", "rate", "recruited", "expected", "dismissed", "failed", "overdue", "mean")
	for _, j := range jobs {
		mean := j.Rate * float64(r.requests)
		took := time.Duration(0)
		if j.Recruited > 0 {
			took = j.Spent / time.Duration(j.Recruited)
		}
		fmt.Fprintf(b, "           %-8s %5.2g  %9d  %14s  %9d  %6d  %7d  %v\n", j.Name, j.Rate, j.Recruited,
			fmt.Sprintf("%.0f ± %.0f", mean, math.Sqrt(mean*(1-j.Rate))), j.Dismissed, j.Failed, j.Overdue, round(took))
	}
	b.WriteByte('\n')
}

func (r *results) printChart(b *strings.Builder) {
	most := 1
	for _, s := range r.samples {
		most = max(most, slices.Max(s.expired[:]))
	}
	fmt.Fprintf(b, "expired fields that are still there\n           %-*s  %s\n", chartWidth+6, r.names[0], r.names[1])
	for _, s := range r.samples {
		fmt.Fprintf(b, "%8ds  %s  %s\n", s.second(), bar(s.expired[0], most), strings.TrimRight(bar(s.expired[1], most), " "))
	}
	b.WriteByte('\n')
}

func bar(n, most int) string {
	length := (n*chartWidth + most - 1) / most // rounded up, so that only 0 has no bar
	return fmt.Sprintf("%5d %-*s", n, chartWidth, strings.Repeat("#", length))
}

func (r *results) printLatencies(b *strings.Builder) {
	fmt.Fprintf(b, "latency    %-8s %9s %9s\n", "", "p50", "p99")
	for i, name := range r.names {
		fmt.Fprintf(b, "           %-8s %9v %9v\n", name, percentile(r.latencies[i], 50), percentile(r.latencies[i], 99))
	}
}

// percentile returns the smallest latency that at least p percent of all do not
// exceed, or 0 without latencies.
func percentile(of []time.Duration, p int) time.Duration {
	if len(of) == 0 {
		return 0
	}
	of = slices.Sorted(slices.Values(of))
	return round(of[(len(of)*p+99)/100-1])
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
