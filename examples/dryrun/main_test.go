package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSample(t *testing.T) {
	asIs, less := plans(t, "", "")

	require.Regexp(t, `(?m)^stop +legacy +w1 +- +unexpected +dry$`, asIs)
	require.Regexp(t, `(?m)^start +reports +- +w3 +missing +dry$`, asIs)
	require.Regexp(t, `(?m)^move +\w+ +w1 +w3 +rebalance +dry$`, asIs)
	require.Len(t, changes(asIs), 3)

	for _, task := range []string{"billing", "exports", "mailer", "search"} {
		require.Regexp(t, `(?m)^start +`+task+` +- +w[23] +lost \(w1\) +planned$`, less)
	}
	require.Regexp(t, `(?m)^start +reports +- +w[23] +missing +planned$`, less)
	require.Len(t, changes(less), 5)
	require.Regexp(t, `metrics +1 +- +no other worker`, less, "wanted on three workers, and there are two")
}

func TestAnotherWorkerOfAnotherFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cluster.json")
	require.NoError(t, os.WriteFile(file, []byte(`{
		"tasks": [{"name": "a", "instances": 1}],
		"workers": [{"name": "w1", "tasks": []}, {"name": "w2", "tasks": ["a"]}]
	}`), 0o600))
	asIs, less := plans(t, file, "w2")
	require.Empty(t, changes(asIs))
	require.Len(t, changes(less), 1)
	require.Regexp(t, `(?m)^start +a +- +w1 +lost \(w2\) +planned$`, less)
}

// plans returns the two printed plans.
func plans(t *testing.T, file, without string) (asIs, less string) {
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out, file, without))
	asIs, less, ok := strings.Cut(out.String(), "\nWithout ")
	require.True(t, ok, out.String())
	require.True(t, strings.HasPrefix(asIs, "As it is:\n"), asIs)
	return asIs, less
}

// changes returns the rows of a plan that describe changes.
func changes(plan string) []string {
	return regexp.MustCompile(`(?m)^(start|stop|move) .*$`).FindAllString(plan, -1)
}

func TestBadInput(t *testing.T) {
	for content, want := range map[string]string{
		`{`:                                             "cluster.json: unexpected EOF",
		`{"workers": [{"name": "w1"}]} {}`:              "cluster.json: unexpected data after the cluster",
		`{"workers": [{"name": "w1"}]} x`:               "cluster.json: unexpected data after the cluster",
		`{"tasks": [], "workers": []}`:                  "cluster.json: no workers",
		`{"workers": [{"name": "w1", "task": []}]}`:     `cluster.json: json: unknown field "task"`,
		`{"workers": [{"name": "w1"}, {"name": "w1"}]}`: "worker w1 is given twice",
		`{"tasks": [{"name": "a", "instances": -2}], "workers": [{"name": "w1"}]}`: "Instances is -2",
		`{"tasks": [{"name": "a"}, {"name": "a"}], "workers": [{"name": "w1"}]}`:   "task a is given twice",
	} {
		file := filepath.Join(t.TempDir(), "cluster.json")
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		require.ErrorContains(t, run(t.Context(), &strings.Builder{}, file, ""), want)
	}
	require.ErrorContains(t, run(t.Context(), &strings.Builder{}, "", "w9"), `unknown worker: w9`)
	require.ErrorIs(t, run(t.Context(), &strings.Builder{}, "missing.json", ""), os.ErrNotExist)
}
