package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLedgerMeasuresTheLongestGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		require.Equal(t, "-", l.longest().String())

		l.begin(storyTasks("http://target", "a b"))
		time.Sleep(time.Second)
		l.probed("a", "w1", time.Now())
		l.probed("b", "w2", time.Now())
		time.Sleep(3 * time.Second)
		l.probed("b", "w1", time.Now())
		require.Equal(t, 3*time.Second, l.longest().length, "the ended gap of b and the open gap of a have the same length")
		time.Sleep(time.Second)
		require.Equal(t, gap{"a", 4 * time.Second}, l.longest(), "an open gap counts")

		l.turn()
		time.Sleep(time.Second)
		l.probed("a", "w1", time.Now())
		require.Equal(t, "5.00 s (a)", l.longest().String(), "a gap that began in the previous phase counts in both")
	})
}

func TestLedgerRecordsProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		l.begin(storyTasks("http://target", "a"))
		began := time.Now()
		time.Sleep(time.Second)
		l.probed("a", "w1", time.Now())
		require.True(t, l.probedSince(began, "a", "w1"))
		require.False(t, l.probedSince(began, "a", "w2"))
		require.False(t, l.probedSince(time.Now(), "a", "w1"))
		require.False(t, l.probedSince(began, "b", "w1"))

		l.end("a")
		require.False(t, l.strayedSince(began, "a"), "the endpoint was expected then")
		time.Sleep(time.Second)
		l.probed("a", "w1", time.Now())
		require.True(t, l.strayedSince(began, "a"))
		require.False(t, l.strayedSince(time.Now(), "a"))

		l.reported("w1", report{Endpoint: "a"})
		l.reported("w1", report{Endpoint: "a", Error: "503 Service Unavailable"})
		require.Equal(t, tally{2, 1, "a: 503 Service Unavailable"}, l.tally("w1"))
	})
}
