package main

// What clients were told and what processes logged, and whether both are true: no acknowledged
// write is lost, and no item runs twice.

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// absent stands for the content of an item that does not exist.
const absent = "\x00absent"

// ledger has what each item may be, by the answers of the API.
type ledger struct {
	mu     sync.Mutex
	may    map[string][]string // contents, by id
	posted map[string]bool     // contents of items that may have been added under an unknown id
	writes int                 // that were acknowledged
	lost   []string            // answers that contradict earlier ones
}

func newLedger() *ledger { return &ledger{may: map[string][]string{}, posted: map[string]bool{}} }

// wrote records a write, which was acknowledged or has failed. A failed one may have been made.
func (l *ledger) wrote(id, content string, acknowledged bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case acknowledged:
		l.may[id] = []string{content}
		l.writes++
	case id == "":
		l.posted[content] = true
	case l.may[id] == nil:
		l.may[id] = []string{absent, content}
	default:
		l.may[id] = append(l.may[id], content)
	}
}

// saw records an answer that says what an item is.
func (l *ledger) saw(id, content string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if may := l.may[id]; may != nil && !slices.Contains(may, content) {
		l.lost = append(l.lost, fmt.Sprintf("%s is %q, and may be %q", id, content, may))
	}
	l.may[id] = []string{content}
}

// wrong returns what is wrong with the items that there are at the end.
func (l *ledger) wrong(now map[string]string) (all []string) {
	for _, id := range slices.Sorted(maps.Keys(l.may)) {
		content, there := now[id]
		if !there {
			content = absent
		}
		if !slices.Contains(l.may[id], content) {
			all = append(all, fmt.Sprintf("%s is %q, and may be %q", id, content, l.may[id]))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(now)) {
		if l.may[id] == nil && !l.posted[now[id]] {
			all = append(all, fmt.Sprintf("%s is %q, and was never added", id, now[id]))
		}
	}
	return all
}

// stint is the time in which a process runs an item.
type stint struct {
	process, task string
	from, to      time.Time
	contents      []string
}

var logged = regexp.MustCompile(`^time=(\S+) level=INFO msg=(started|updated|stopped) replica=\S+ task=("(?:[^"\\]|\\.)*"|\S+)(?: content=("(?:[^"\\]|\\.)*"|\S+))?`)

// stints returns what a process has run, by its log. What it has not stopped ends with the process.
func stints(t *testing.T, process string, lines []string, end time.Time) (all []*stint) {
	text := func(s string) string {
		if unquoted, err := strconv.Unquote(s); err == nil {
			return unquoted
		}
		return s
	}
	running := map[string]*stint{}
	for _, line := range lines {
		m := logged.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		at, err := time.Parse(time.RFC3339, m[1])
		require.NoError(t, err)
		task := text(m[3])
		s := running[task]
		switch {
		case m[2] == "started" && s == nil:
			s = &stint{process: process, task: task, from: at, to: end}
			all, running[task] = append(all, s), s
			fallthrough
		case m[2] == "updated" && s != nil:
			s.contents = append(s.contents, text(m[4]))
		case m[2] == "stopped" && s != nil:
			s.to = at
			delete(running, task)
		default:
			require.Fail(t, "it does not run, or runs already", line)
		}
	}
	return all
}

// twice returns the stints of one item that overlap.
func twice(all []*stint) (wrong []string) {
	slices.SortFunc(all, func(a, b *stint) int { return cmp.Or(cmp.Compare(a.task, b.task), a.from.Compare(b.from)) })
	for i, s := range all[1:] {
		if was := all[i]; was.task == s.task && s.from.Before(was.to) {
			wrong = append(wrong, fmt.Sprintf("%s runs on %s from %v, and on %s until %v", s.task, s.process, s.from, was.process, was.to))
		}
	}
	return wrong
}

// The checks find what they are for.
func TestLedger(t *testing.T) {
	l := newLedger()
	l.wrote("a", "1", true)
	l.wrote("a", "2", false)
	l.wrote("b", "1", true)
	l.wrote("b", absent, true)
	l.wrote("", "posted", false)
	l.wrote("c", "1", false)
	l.saw("c", absent)
	l.saw("c", absent)
	require.Empty(t, l.lost)
	l.saw("b", "1")
	require.Equal(t, []string{`b is "1", and may be ["\x00absent"]`}, l.lost)
	l.saw("b", absent)
	for _, fine := range []map[string]string{{"a": "1"}, {"a": "2"}, {"a": "1", "x": "posted"}} {
		require.Empty(t, l.wrong(fine))
	}
	for want, bad := range map[string]map[string]string{
		`a is "\x00absent", and may be ["1" "2"]`: {},
		`a is "0", and may be ["1" "2"]`:          {"a": "0"},
		`b is "1", and may be ["\x00absent"]`:     {"a": "1", "b": "1"},
		`x is "1", and was never added`:           {"a": "1", "x": "1"},
	} {
		require.Equal(t, []string{want}, l.wrong(bad))
	}
}

func TestStints(t *testing.T) {
	at := func(s int) time.Time { return time.Date(2026, 1, 1, 0, 0, s, 0, time.UTC) }
	line := func(s int, what, task string) string {
		return fmt.Sprintf("time=%s level=INFO msg=%s replica=a task=%s content=x revision=1", at(s).Format(time.RFC3339), what, task)
	}
	first := []string{line(1, "started", "t"), line(1, "started", `"u v"`), "panic: x", line(2, "updated", "t"), line(3, "stopped", "t")}
	a := stints(t, "a", first, at(9))
	require.Equal(t, &stint{"a", "t", at(1), at(3), []string{"x", "x"}}, a[0])
	require.Equal(t, &stint{"a", "u v", at(1), at(9), []string{"x"}}, a[1])
	second := func(s int, task string) []*stint {
		return append(stints(t, "b", []string{line(s, "started", task)}, at(9)), a...)
	}
	require.Empty(t, twice(second(3, "t")))
	require.Len(t, twice(second(2, "t")), 1)
	require.Len(t, twice(second(8, `"u v"`)), 1, "the process of the first has not ended")
	require.Len(t, strings.Split(twice(second(2, "t"))[0], " on "), 3)
}
