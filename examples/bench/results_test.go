//go:build peers

package main

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BENCHMARKS.md is what the stored results render to, and the stored results are in the
// form in which they are written.
func TestBench_ThePageIsRenderedFromTheResults(t *testing.T) {
	t.Chdir("../..")
	r, err := load(resultsFile)
	require.NoError(t, err)
	want, err := r.page()
	require.NoError(t, err)
	got, err := os.ReadFile(pageFile)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "go run -tags peers ./examples/bench -stored -write")

	encoded, err := r.encode()
	require.NoError(t, err)
	stored, err := os.ReadFile(resultsFile)
	require.NoError(t, err)
	require.Equal(t, string(encoded), string(stored))
	var parts []string
	for _, p := range r {
		parts = append(parts, p.Name)
	}
	require.Subset(t, names(), parts) // the page says so where one is not stored
}

// The figures in README.md are measured ones.
func TestBench_TheFiguresOfTheREADME(t *testing.T) {
	r, err := load("../../" + resultsFile)
	require.NoError(t, err)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	for _, name := range []string{us, franzGoOne} {
		n, err := r.Figure("plans", "ms, 1M × 10k", name, oneJoins.name)
		require.NoError(t, err)
		require.Contains(t, string(readme), n.String()+" ms")
	}
}

func TestResults_PutReplacesAPart(t *testing.T) {
	var r results
	for _, p := range []part{{Name: "a", Took: "1s"}, {Name: "b"}, {Name: "a", Took: "2s"}} {
		r = r.put(p)
	}
	require.Equal(t, results{{Name: "a", Took: "2s"}, {Name: "b"}}, r)
}

func TestResults_AnUnknownFigureIsAnError(t *testing.T) {
	r := results{{Name: "a", Tables: []table{{Title: "t", Columns: []string{"c"}, Rows: []row{{"r", []number{1}}}}}}}
	n, err := r.Figure("a", "t", "r", "c")
	require.NoError(t, err)
	require.Equal(t, "1", n.String())
	for _, key := range [][4]string{{"b", "t", "r", "c"}, {"a", "u", "r", "c"}, {"a", "t", "s", "c"}, {"a", "t", "r", "d"}} {
		_, err := r.Figure(key[0], key[1], key[2], key[3])
		require.Error(t, err)
	}
}

func TestGoal(t *testing.T) {
	for _, c := range []struct {
		op              string
		measured, limit number
		met             bool
	}{
		{"<", 1, 2, true},
		{"<", 2, 2, false},
		{"<=", 2, 2, true},
		{"<=", 2.001, 2, false},
		{">=", 2, 2, true},
		{">=", 1, 2, false},
		{"", 1, 1, false},
		{"<=", missing(), 1, false},
	} {
		require.Equal(t, c.met, goal{Op: c.op, Measured: c.measured, Limit: c.limit}.Met(), "%v %s %v", c.measured, c.op, c.limit)
	}
}

func TestAtMost_TakesTheWorst(t *testing.T) {
	g := atMost("plan", "× scan", 2.5, figure{"a", 1}, figure{"b", 2.51}, figure{"c", 2})
	require.Equal(t, goal{What: "plan", Measured: 2.51, Op: "<=", Limit: 2.5, Unit: "× scan", Note: "b"}, g)
	require.False(t, g.Met())
}

func TestFaster_TakesTheLeast(t *testing.T) {
	g := faster("plan", figure{"a", 0.1}, figure{"b", 0.25})
	require.Equal(t, goal{What: "plan", Measured: 4, Op: ">=", Limit: 5, Unit: "× the speed", Note: "b"}, g)
}

func TestTable(t *testing.T) {
	got := table{Columns: []string{"ms", "×"}}
	got.add("a", 1234, missing())
	require.Equal(t, "|      |    ms |    × |\n| ---- | ----: | ---: |\n| a    | 1,234 |      |\n", got.String())
	require.Equal(t, "| a    | b    |\n| ---- | ---- |\n| ×    | 2    |\n", markdown([][]string{{"a", "b"}, {"×", "2"}}, false))
}

func TestGoals(t *testing.T) {
	got := goalList{{What: "a", Measured: 3, Op: "<=", Limit: 2, Unit: "ms", Note: "why"}, {What: "b", Measured: 1, Op: "<", Limit: 2, Unit: "ms"}}
	require.Contains(t, got.String(), "| a    | 3 ms (why) | at most 2 | **not met** |\n")
	require.Contains(t, got.String(), "| b    | 1 ms       | under 2   | met         |\n")
	require.Len(t, got.Missed(), 1)
}

func TestNumbers(t *testing.T) {
	for n, want := range map[number]string{
		0.5449: "0.545", 2.51: "2.51", 12.34: "12.3", 7236.6: "7,237", 3: "3", 99.97: "100", 1_000_000: "1,000,000", -1001: "-1,001",
		ms(12 * time.Microsecond): "0.012", ms(6160 * time.Microsecond): "6.16", ms(20900 * time.Millisecond): "20,900",
	} {
		require.Equal(t, want, n.String())
	}
	require.Empty(t, missing().String())
	require.Equal(t, "1M × 10k", size{1_000_000, 10_000, 1}.String())
	require.Equal(t, "999 × 10, 3 copies", size{999, 10, 3}.String())

	text, err := json.Marshal([]number{3_742_850, 1.23456789, missing()})
	require.NoError(t, err)
	require.JSONEq(t, "[3742850, 1.23457, null]", string(text))
	var back []number
	require.NoError(t, json.Unmarshal(text, &back))
	require.True(t, back[2].isMissing())
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
