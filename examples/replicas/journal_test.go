//go:build unix

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// observeAll observes reports, one each second, and returns the first error.
func observeAll(j *journal, reports string) error {
	at := time.Unix(0, 0)
	for line := range strings.SplitSeq(reports, ", ") {
		at = at.Add(time.Second)
		switch name, does, _ := strings.Cut(line, " "); does {
		case "freezes":
			j.frozen = name
		case "continues":
			j.frozen = ""
		default:
			if err := j.observe(line, at); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestJournal(t *testing.T) {
	const (
		first  = "a starts t 1, a works t 1, "
		frozen = first + "a freezes, b starts t 2, a continues, "
	)
	for _, test := range []struct{ name, reports, want string }{
		{"a move", first + "a stops t 1, b starts t 2, b works t 2", ""},
		{"after a crash", first + "a ends - 0, b starts t 2", ""},
		{"while it runs", first + "b starts t 2", "t runs twice: on a, and now on b"},
		{"while it is frozen", frozen + "a stops t 1, b works t 2", ""},
		{"one step too late", frozen + "a works t 1, a stops t 1", ""},
		{"two steps too late", frozen + "a works t 1, b works t 2, a works t 1", "t runs twice: on b, and again on a"},
		{"a token that does not rise", first + "a stops t 1, b starts t 1", "t starts on b with token 1, which is not above 1"},
		{"another task", "a starts v 1", `unknown report "a starts v 1"`},
		{"no report", "panic: a", `unknown report "panic: a"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := observeAll(newJournal([]string{"t", "u"}), test.reports)
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.want)
			}
		})
	}
}

func TestJournal_Summary(t *testing.T) {
	j := newJournal([]string{"t", "u"})
	require.NoError(t, observeAll(j, "a leads - 1, a starts t 1, a starts u 1"))
	require.Equal(t, "a", j.leader)
	require.True(t, j.even([]string{"a"}))
	require.False(t, j.even([]string{"a", "b"}))
	j.begin()
	require.NoError(t, observeAll(j, "a works t 1, a works u 1, a stops t 1, a works u 1, a works u 1, b starts t 2"))
	require.Equal(t, []string{"t"}, j.runs("b"))
	require.True(t, j.even([]string{"a", "b"}))
	require.Equal(t, "1 tasks moved, none paused for longer than 3s, and 1 never stopped", j.summary())
	require.Equal(t, 1, j.moves)
	require.NoError(t, observeAll(j, "a ends - 0"))
	require.Empty(t, j.leader)
	require.Empty(t, j.runs("a"))
}
