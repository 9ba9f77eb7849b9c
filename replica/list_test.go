package replica

// Bad rows and the brake.

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func inForce(n int) map[string]Task {
	tasks := make(map[string]Task)
	for i := range n {
		name := fmt.Sprintf("t%02d", i)
		tasks[name] = Task{Name: name, Generation: 3}
	}
	return tasks
}

func rows(names ...string) (tasks []Task) {
	for _, name := range names {
		tasks = append(tasks, Task{Name: name})
	}
	return tasks
}

// names returns the names of tasks, in order.
func names(tasks map[string]Task) []string { return slices.Sorted(maps.Keys(tasks)) }

func TestRa_OneBadRowIsOneBadRow(t *testing.T) {
	var l list
	answer := append(rows("t00", "t00", "new", "t02"), Task{Name: "t02", Weight: 5}, Task{}, Task{Name: strings.Repeat("x", 1025)},
		Task{Name: "t01", Instances: -2}, Task{Name: "off", Instances: -1}, Task{Name: "fresh", Weight: -1})
	goal := l.compare(inForce(4), answer, at(0))
	require.Equal(t, []string{"new", "off", "t00", "t01", "t02"}, names(goal), "the tasks of bad rows stay as they were")
	require.Equal(t, Task{Name: "off", Instances: -1}, goal["off"])
	require.Equal(t, inForce(4)["t02"], goal["t02"])
	require.Len(t, l.bad, 5)
	require.Contains(t, l.bad["t02"], "differ")
	goal = l.compare(inForce(1), []Task{{Name: "t00", Input: 7, Generation: 9}}, at(0))
	require.Equal(t, Task{Name: "t00", Input: 7, Generation: 3}, goal["t00"], "a Source gives no Generation")
	require.Empty(t, l.bad)
}

func TestRb_TheBrake(t *testing.T) {
	var l list
	few, all := rows("t00", "t01"), inForce(10)
	require.Len(t, l.compare(all, few, at(0)), 10)
	require.Len(t, l.lacking, 8)
	require.Len(t, l.compare(all, rows("t00", "t02", "t03"), at(30*time.Second)), 10)
	require.Len(t, l.compare(all, few, at(time.Minute-1)), 10)
	require.False(t, l.isDue(at(time.Minute-1)))
	require.True(t, l.isDue(at(time.Minute)), "the same answer counts again when the minute ends")
	left := l.compare(all, few, at(time.Minute))
	require.Equal(t, []string{"t00", "t01", "t02", "t03"}, names(left), "every answer of a minute lacked six")
	require.False(t, l.isDue(at(time.Minute)))
	require.True(t, l.isDue(at(2*time.Minute)), "the others have a minute of their own")
	require.Equal(t, []string{"t00", "t01"}, names(l.compare(left, few, at(time.Minute))), "of four half is no brake")
	require.Empty(t, l.lacking)

	require.Len(t, l.compare(all, nil, at(0)), 10, "also an empty answer")
	require.Len(t, l.compare(all, rows("t00", "t01", "t02", "t03", "t04"), at(time.Second)), 5, "half is no brake")
	require.Empty(t, l.lacking)
	require.Empty(t, l.compare(inForce(9), nil, at(0)), "nor a list below ten")

	require.Len(t, l.compare(inForce(40), rows("t00"), at(0)), 40)
	l.compare(inForce(40), rows("t00", "t01", "t02", "t03", "t04", "t05", "t06", "t07", "t08", "t09", "t10", "t11"), at(time.Second))
	require.Len(t, l.compare(inForce(40), rows("t00"), at(time.Minute)), 12, "eleven were not missing all the time: they have a minute of their own")
	require.Len(t, l.compare(inForce(12), rows("t00"), at(2*time.Minute)), 1)
}
