package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAtMost_TakesTheWorst(t *testing.T) {
	g := atMost("plan", "× scan", 2.5, figure{"a", 1}, figure{"b", 2.51}, figure{"c", 2})
	require.Equal(t, goal{"plan", "2.51 × scan (b)", "at most 2.5 × scan", false}, g)
	g = atMost("plan", "× scan", 2.5, figure{"a", 2.5})
	require.True(t, g.met)
}

func TestFaster_TakesTheLeast(t *testing.T) {
	g := faster("plan", figure{"a", 0.1}, figure{"b", 0.25})
	require.Equal(t, goal{"plan", "4 × faster (b)", "at least 5 × faster", false}, g)
	require.True(t, faster("plan", figure{"a", 0.2}).met)
}

func TestTable(t *testing.T) {
	got := table{{"", "ms"}, {"×", "1,234"}}
	require.Equal(t, "|      |    ms |\n| ---- | ----: |\n| ×    | 1,234 |\n", got.layout(true))
	require.Equal(t, "|      | ms    |\n| ---- | ----- |\n| ×    | 1,234 |\n", got.layout(false))
}

func TestNumbers(t *testing.T) {
	require.Equal(t, "0.54", decimal(0.5449))
	require.Equal(t, "2.51", decimal(2.51), "a narrowly missed goal is not rounded to a met one")
	require.Equal(t, "12.3", decimal(12.34))
	require.Equal(t, "7,237", decimal(7236.6))
	require.Equal(t, "3", decimal(3))
	require.Equal(t, "0.012", millis(12*time.Microsecond))
	require.Equal(t, "6.16", millis(6160*time.Microsecond))
	require.Equal(t, "43.8", millis(43840*time.Microsecond))
	require.Equal(t, "20,900", millis(20900*time.Millisecond))
	require.Equal(t, "1,000,000", grouped(1_000_000))
	require.Equal(t, "-1,001", grouped(-1001))
	require.Equal(t, "1M × 10k", size{1_000_000, 10_000, 1}.String())
	require.Equal(t, "999 × 10, 3 copies", size{999, 10, 3}.String())
}

func TestReadNetwork(t *testing.T) {
	const said = `=== RUN   TestNetwork_ColdStart
=== ATTR  TestNetwork_ColdStart cold 320ms
    === ATTR  TestNetwork_ColdStart ideal 312.5ms
=== ATTR  TestNetwork_ColdStart calls 2000
=== ATTR  TestNetwork_NoWorkerWaitsForTheSlowOne others 380ms
`
	n, err := readNetwork([]byte(said + "=== ATTR  TestNetwork_NoWorkerWaitsForTheSlowOne others-undelayed 360ms\n"))
	require.NoError(t, err)
	ms := time.Millisecond
	require.Equal(t, network{cold: 320 * ms, ideal: 312500 * time.Microsecond, calls: 2000, others: 380 * ms, othersUndelayed: 360 * ms}, n)
	_, err = readNetwork([]byte(said))
	require.ErrorContains(t, err, "4 attributes, want 5")
	_, err = readNetwork([]byte(said + "=== ATTR  TestNetwork cold soon\n"))
	require.ErrorContains(t, err, "cannot read")
}
