package main

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	require.Zero(t, samples(nil).median())
	require.Equal(t, time.Duration(3), samples{3}.median())
	require.Equal(t, time.Duration(3), samples{9, 1, 3}.median())
	require.Equal(t, time.Duration(4), samples{9, 1, 3, 5}.median())
	unsorted := samples{9, 1, 3}
	unsorted.median()
	require.Equal(t, samples{9, 1, 3}, unsorted)
}

// Everyone takes part in every round, in turn, and the first does not count.
func TestRace_InTurn(t *testing.T) {
	var order string
	noting := func(name string, rounds int) entrant {
		note := func(s string) func() error { return func() error { order += s; return nil } }
		return entrant{name: name, rounds: rounds, before: note("("), run: note(name), after: note(")")}
	}
	times, err := race(4, []entrant{noting("a", 0), noting("b", 2), noting("c", 1), noting("d", 9)})
	require.NoError(t, err)
	require.Equal(t, "(a)(b)(d)"+"(a)(d)"+"(a)(b)(d)"+"(a)(d)"+"(a)(b)(c)(d)", order)
	for i, n := range []int{4, 2, 1, 4} {
		require.Len(t, times[i], n)
	}
}

func TestRace_EndsWithTheFirstFailure(t *testing.T) {
	broken := errors.New("broken")
	fails := func() error { return broken }
	fine := func() error { return nil }
	for _, e := range []entrant{{before: fails, run: fine}, {run: fails}, {run: fine, after: fails}} {
		_, err := race(2, []entrant{e})
		require.ErrorIs(t, err, broken)
	}
}
