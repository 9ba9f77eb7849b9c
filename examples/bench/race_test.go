//go:build peers

package main

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	require.Zero(t, samples(nil).median())
	require.Equal(t, time.Duration(3), samples{3}.median())
	require.Equal(t, time.Duration(3), samples{9, 1, 3}.median())
	require.Equal(t, time.Duration(4), samples{9, 1, 3, 5}.median())
	require.Equal(t, time.Duration(3), samples{0, 9, 0, 1, 3}.median(), "0 means that it did not take part")
	unsorted := samples{9, 1, 3}
	unsorted.median()
	require.Equal(t, samples{9, 1, 3}, unsorted)
}

// Only rounds in which both took part count.
func TestRatio(t *testing.T) {
	require.InDelta(t, 2.0, ratio(samples{2, 100, 4, 30}, samples{1, 0, 2, 10}), 0)
	require.Zero(t, ratio(samples{1, 0}, samples{0, 1}))
	require.Equal(t, samples{0, 7, 0}, together(samples{1, 2, 3}, samples{0, 4, 1}, samples{1, 1, 0}))
	require.Equal(t, samples{0, 2}, samples{1, 5}.less(samples{0, 3}))
	require.Equal(t, samples{0, 7}, samples{0, 6}.each(func(d time.Duration) time.Duration { return d + 1 }))
}

// The entrants run in turn in every round, and the first round does not count. Each
// round begins with another entrant.
func TestRace_InTurn(t *testing.T) {
	var order string
	noting := func(name string, rounds int) entrant {
		note := func(s string) func() error { return func() error { order += s; return nil } }
		return entrant{name: name, rounds: rounds, before: note("("), run: note(name), after: note(")")}
	}
	times, err := race(4, []entrant{noting("a", 0), noting("b", 2), noting("c", 1), noting("d", 9)})
	require.NoError(t, err)
	require.Equal(t, "(a)(b)(d)"+"(d)(a)"+"(d)(a)(b)"+"(d)(a)"+"(a)(b)(c)(d)", order)
	for i, rounds := range [][]int{{0, 1, 2, 3}, {1, 3}, {3}, {0, 1, 2, 3}} {
		var took []int
		for round, d := range times[i] {
			if d != 0 {
				took = append(took, round)
			}
		}
		require.Equal(t, rounds, took)
	}
}

// A warm entrant runs twice, and only the second time counts.
func TestRace_Warm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order string
		note := func(s string) func() error { return func() error { order += s; return nil } }
		run := func() error {
			time.Sleep(time.Duration(len(order)))
			order += "w"
			return nil
		}
		times, err := race(1, []entrant{{rounds: 1, warm: true, before: note("("), run: run, after: note(")")}})
		require.NoError(t, err)
		require.Equal(t, "(ww)", order)
		require.Equal(t, samples{2}, times[0])
	})
}

// Each round begins with another entrant, but never with one that follows another.
func TestOrder(t *testing.T) {
	entrants := []entrant{{}, {}, {follows: true}, {}}
	for round, want := range [][]int{{0, 1, 2, 3}, {1, 2, 3, 0}, {3, 0, 1, 2}, {0, 1, 2, 3}} {
		require.Equal(t, want, order(entrants, round))
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

func TestPercentile(t *testing.T) {
	require.Zero(t, samples(nil).percentile(99))
	require.Equal(t, time.Duration(7), samples{7}.percentile(99))
	var hundred samples
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i))
	}
	require.Equal(t, time.Duration(99), hundred.percentile(99))
	require.Equal(t, time.Duration(50), hundred.percentile(50))
	require.Equal(t, time.Duration(100), hundred.percentile(100))
}
