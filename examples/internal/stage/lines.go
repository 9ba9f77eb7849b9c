package stage

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// Stamp returns the seconds since the beginning, as the start of a line.
func Stamp(began time.Time) string {
	return fmt.Sprintf("%6.1fs  ", time.Since(began).Seconds())
}

// Line describes changes of the same kind and outcome, between the same workers.
type Line struct {
	What  string
	Tasks []string // sorted
}

// Lines groups changes, and sorts the groups.
func Lines[W, T comparable](changes []orchestrator.Change[W, T]) []Line {
	var lines []Line
	for _, c := range changes {
		what := describe(c)
		i := slices.IndexFunc(lines, func(l Line) bool { return l.What == what })
		if i < 0 {
			i, lines = len(lines), append(lines, Line{What: what})
		}
		lines[i].Tasks = append(lines[i].Tasks, fmt.Sprint(c.Task))
	}
	for _, l := range lines {
		slices.Sort(l.Tasks)
	}
	slices.SortFunc(lines, func(a, b Line) int { return cmp.Compare(a.What, b.What) })
	return lines
}
