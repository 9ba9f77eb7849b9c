package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator/examples/internal/stage/stagetest"
)

func TestMain(m *testing.M) {
	if stagetest.IsProgram() {
		main()
	}
	goleak.VerifyTestMain(m)
}

func TestQuickstart(t *testing.T) {
	p := stagetest.Start(t, ".", "-duration", "0s")
	out := p.Wait(t, 0)
	require.Empty(t, p.Stderr.String())
	stagetest.CheckWidth(t, out)
	out = strings.ReplaceAll(out, "\n           ", " ") // broken lines

	// 24 endpoints with two instances make 12 for each of four workers.
	var got [][4]int
	for _, m := range regexp.MustCompile(`: (\d+) starts, (\d+) moves, (\d+) stops; fewest possible: (\d+)\n`).FindAllStringSubmatch(out, -1) {
		var row [4]int
		for i := range row {
			var err error
			row[i], err = strconv.Atoi(m[i+1])
			require.NoError(t, err)
		}
		got = append(got, row)
	}
	require.Len(t, got, 5, out)
	got[1][3] -= got[1][1] // the lost tasks may be moved once more
	got[1][1] = 0
	require.Equal(t, [][4]int{{48, 0, 0, 48}, {12, 0, 0, 12}, {0, 12, 0, 12}, {0, 12, 0, 12}, {6, 0, 4, 6}}, got, out)

	// An endpoint never waits for the grace period, because another worker probes it.
	gaps := regexp.MustCompile(`without a probe of an endpoint: ([\d.]+) s \(\w+\)`).FindAllStringSubmatch(out, -1)
	require.Len(t, gaps, 5, out)
	for i, m := range gaps {
		gap, err := time.ParseDuration(m[1] + "s")
		require.NoError(t, err)
		require.Positive(t, gap)
		if i == 0 {
			gap -= initialWait // nothing starts before
		}
		require.Less(t, gap, gracePeriod)
	}

	// The leader is killed twice, and its workers register again one by one. Nothing runs twice, and
	// nothing stops.
	require.Equal(t, 2, strings.Count(out, "each endpoint was probed by 2 workers, so none ran twice"), out)
	for _, m := range regexp.MustCompile(`without a probe since then: ([\d.]+) s`).FindAllStringSubmatch(out, -1) {
		gap, err := time.ParseDuration(m[1] + "s")
		require.NoError(t, err)
		require.Less(t, gap, initialWait)
	}

	// All changes together: each endpoint ends on two workers, evenly.
	workers := result(t, out)
	require.Len(t, workers, 3, out)
	on := make(map[string]int)
	for worker, endpoints := range workers {
		require.InDelta(t, 50.0/3, len(endpoints), 1, "the share of %s is not even", worker)
		for e := range endpoints {
			on[e]++
		}
	}
	for e := range strings.FieldsSeq(names + " " + added) {
		want := 2
		if strings.Contains(removed, e) {
			want = 0
		}
		require.Equal(t, want, on[e], "workers that run %s", e)
	}
}

// result returns the endpoints of each worker after all printed changes.
func result(t *testing.T, out string) map[string]map[string]bool {
	on := make(map[string]map[string]bool)
	change := regexp.MustCompile(`(?m)s  (?:(\w+) +(?:on (w\d)|(w\d) → (w\d)) \(\w+\): (.*)|(w\d) (?:is process|has certainly|has no tasks).*)$`)
	for _, m := range change.FindAllStringSubmatch(out, -1) {
		from, to := m[3], m[4]
		switch m[1] {
		case "start":
			to = m[2]
		case "stop":
			from = m[2]
		case "":
			if strings.Contains(m[0], "is process") {
				on[m[6]] = make(map[string]bool)
			} else {
				delete(on, m[6])
			}
			continue
		}
		for e := range strings.FieldsSeq(m[5]) {
			if from != "" {
				require.True(t, on[from][e], m[0])
				delete(on[from], e)
			}
			if to != "" {
				require.False(t, on[to][e], m[0])
				on[to][e] = true
			}
		}
	}
	return on
}

func TestInterruptedInTheMiddle(t *testing.T) {
	p := stagetest.Start(t, ".")
	p.Until(t, `now w1: 12`)
	require.NoError(t, p.Process.Signal(os.Interrupt))
	p.Wait(t, 0)
	require.Equal(t, "quickstart: interrupted\n", p.Stderr.String())
}

// No process remains if the leader is killed: Wait returns when the last process that
// has the leader's standard error has ended.
func TestWorkersDieWithTheLeader(t *testing.T) {
	p := stagetest.Start(t, ".")
	p.Until(t, `now w1: 12`)
	require.NoError(t, p.Process.Kill())
	p.Wait(t, -1)
}

func TestUnexpectedArgument(t *testing.T) {
	p := stagetest.Start(t, ".", "now")
	require.Empty(t, p.Wait(t, 1))
	require.Equal(t, "quickstart: unexpected argument \"now\"\n", p.Stderr.String())
}

func TestSite_MeasuresTheLongestGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{probed: make(map[string]time.Time), by: make(map[[2]string]bool)}
		probe := func(name string) {
			s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/"+name, nil))
		}
		s.expect("a")
		s.expect("b")
		time.Sleep(time.Second)
		probe("a")
		probe("b")
		time.Sleep(3 * time.Second)
		probe("b")
		time.Sleep(time.Second)
		require.Equal(t, "4.00 s (a)", s.longestGap(), "an open gap counts")
		time.Sleep(time.Second)
		probe("a")
		require.Equal(t, "5.00 s (a)", s.longestGap(), "a gap that began earlier counts again")
		s.forget("a")
		probe("a")
		time.Sleep(6 * time.Second)
		require.Equal(t, "8.00 s (b)", s.longestGap(), "a is no longer expected")
	})
}
