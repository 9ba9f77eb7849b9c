package stats_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/recruit"
	"github.com/f8949c05/orchestrator/stats"
)

// draws returns its elements in order, in quarters of 2⁶⁴.
type draws []uint64

func (d *draws) Uint64() uint64 {
	v := (*d)[0]
	*d = (*d)[1:]
	return v << 62
}

// perJob returns a metric of three jobs in Prometheus' format.
func perJob(name, kind, help string, blocks, fails, works float64) string {
	name = "recruit_job_" + name
	return fmt.Sprintf("# HELP %[1]s %[2]s\n# TYPE %[1]s %[3]s\n%[1]s{name=\"blocks\"} %[4]g\n%[1]s{name=\"fails\"} %[5]g\n%[1]s{name=\"works\"} %[6]g\n",
		name, help, kind, blocks, fails, works)
}

func TestS4_EveryFigureOfARecruiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := recruit.New(recruit.WithSource(&draws{0, 0, 0, 1, 1, 2, 2, 3}))
		require.NoError(t, err)
		let := make(chan struct{})
		require.NoError(t, r.Install("works", 0.25, recruit.JobFunc(func(context.Context) error {
			time.Sleep(10 * time.Millisecond)
			return nil
		})))
		require.NoError(t, r.Install("fails", 0.25, recruit.JobFunc(func(context.Context) error { return errors.New("boom") })))
		require.NoError(t, r.Install("blocks", 0.25, recruit.JobFunc(func(context.Context) error { <-let; panic("boom") })))
		c := stats.NewRecruitCollector(r)
		require.Equal(t, 1+3*9, testutil.CollectAndCount(c), "every series exists from the start")
		for range 8 {
			r.Enlist(t.Context())
		}

		want := `
# HELP recruit_dismissed_total Calls that ran no job.
# TYPE recruit_dismissed_total counter
recruit_dismissed_total 2
` + perJob("dismissed_total", "counter", "Calls that drew the job but could not run it.", 1, 0, 0) +
			perJob("failed_total", "counter", "Runs that returned an error or panicked.", 0, 2, 0) +
			perJob("left_behind", "gauge", "Runs that were left behind and have not returned.", 1, 0, 0) +
			perJob("overdue_total", "counter",
				"Runs that were left behind because their budget was used up or their caller's context had ended.", 1, 0, 0) +
			perJob("panicked_total", "counter", "Runs that panicked.", 0, 0, 0) +
			perJob("rate", "gauge", "Probability with which a call draws the job.", 0.25, 0.25, 0.25) +
			perJob("recruited_total", "counter", "Runs of the job.", 1, 2, 3) +
			perJob("running", "gauge", "Runs with a waiting caller.", 0, 0, 0) +
			perJob("seconds_total", "counter", "Total duration of the runs that have returned.", 0, 0, 0.03)
		require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(want)))

		close(let)
		synctest.Wait()
		after := perJob("left_behind", "gauge", "Runs that were left behind and have not returned.", 0, 0, 0) +
			perJob("panicked_total", "counter", "Runs that panicked.", 1, 0, 0)
		require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(after), names(after)...))
		require.True(t, r.Uninstall("fails"))
		require.Equal(t, 1+2*9, testutil.CollectAndCount(c))
		require.NoError(t, r.Close(t.Context()))
		require.Equal(t, 1+2*9, testutil.CollectAndCount(c), "the last counts can still be read")
	})
}

func TestS4_PromlintIsClean(t *testing.T) {
	r, err := recruit.New()
	require.NoError(t, err)
	require.NoError(t, r.Install("x", 0.5, recruit.JobFunc(func(context.Context) error { return nil })))
	problems, err := testutil.CollectAndLint(stats.NewRecruitCollector(r, stats.WithConstLabels(prometheus.Labels{"service": "shop"})))
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestS4_AnyNameCanBeShown(t *testing.T) {
	r, err := recruit.New()
	require.NoError(t, err)
	for _, name := range []string{"a\n\"b", "a\xff", `"a\xff"`, `"`, "a\xfe", "a\uFFFD"} {
		require.NoError(t, r.Install(name, 0.125, recruit.JobFunc(func(context.Context) error { return nil })))
	}
	const want = `
# HELP recruit_job_rate Probability with which a call draws the job.
# TYPE recruit_job_rate gauge
recruit_job_rate{name="\"a\\xfe\""} 0.125
recruit_job_rate{name="\"a\\xff\""} 0.125
recruit_job_rate{name="\"\\\"a\\\\xff\\\"\""} 0.125
recruit_job_rate{name="\"\\\"\""} 0.125
recruit_job_rate{name="a\n\"b"} 0.125
recruit_job_rate{name="a\uFFFD"} 0.125
`
	text := strings.ReplaceAll(want, `\uFFFD`, "\uFFFD")
	require.NoError(t, testutil.CollectAndCompare(stats.NewRecruitCollector(r), strings.NewReader(text), "recruit_job_rate"))
}

func TestS4_TwoRecruitersInOneProcess(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	r, err := recruit.New()
	require.NoError(t, err)
	_, err = stats.RegisterRecruiter(reg, r, stats.WithConstLabels(prometheus.Labels{"service": "shop"}))
	require.NoError(t, err)
	_, err = stats.RegisterRecruiter(reg, r, stats.WithConstLabels(prometheus.Labels{"service": "mail"}))
	require.NoError(t, err)
	_, err = stats.RegisterRecruiter(reg, r, stats.WithConstLabels(prometheus.Labels{"service": "mail"}))
	var already prometheus.AlreadyRegisteredError
	require.ErrorAs(t, err, &already)
	require.ErrorContains(t, err, "stats: register recruiter: labels already in use, add WithConstLabels: ")
	_, err = stats.RegisterRecruiter(reg, r, stats.WithConstLabels(prometheus.Labels{"name": "x"}))
	require.ErrorContains(t, err, "stats: register recruiter: ")
	require.NotContains(t, err.Error(), "WithConstLabels")
}

func TestARecruiterThatIsNil(t *testing.T) {
	_, err := stats.RegisterRecruiter(prometheus.NewRegistry(), nil)
	require.EqualError(t, err, "stats: register recruiter: the Recruiter is nil")
	r, err := recruit.New()
	require.NoError(t, err)
	_, err = stats.RegisterRecruiter(nil, r)
	require.EqualError(t, err, "stats: register recruiter: the Registerer is nil")
	require.PanicsWithValue(t, "stats: NewRecruitCollector of a nil Recruiter", func() { stats.NewRecruitCollector(nil) })
}

func TestS4_ScrapesWhileOthersEnlist(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	r, err := recruit.New()
	require.NoError(t, err)
	require.NoError(t, r.Install("x", 0.5, recruit.JobFunc(func(context.Context) error { return nil })))
	_, err = stats.RegisterRecruiter(reg, r)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				r.Enlist(t.Context())
			}
		})
	}
	for range 20 {
		_, err := reg.Gather()
		require.NoError(t, err)
	}
	wg.Wait()
	require.NoError(t, r.Close(t.Context()))
}
