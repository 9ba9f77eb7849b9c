package stats_test

import (
	"context"
	"errors"
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

		const want = `
# HELP recruit_dismissed_total Calls that ran no job.
# TYPE recruit_dismissed_total counter
recruit_dismissed_total 2
# HELP recruit_job_dismissed_total Calls that drew the job but could not run it.
# TYPE recruit_job_dismissed_total counter
recruit_job_dismissed_total{name="blocks"} 1
recruit_job_dismissed_total{name="fails"} 0
recruit_job_dismissed_total{name="works"} 0
# HELP recruit_job_failed_total Runs that returned an error or panicked.
# TYPE recruit_job_failed_total counter
recruit_job_failed_total{name="blocks"} 0
recruit_job_failed_total{name="fails"} 2
recruit_job_failed_total{name="works"} 0
# HELP recruit_job_left_behind Runs that were left behind and have not returned.
# TYPE recruit_job_left_behind gauge
recruit_job_left_behind{name="blocks"} 1
recruit_job_left_behind{name="fails"} 0
recruit_job_left_behind{name="works"} 0
# HELP recruit_job_overdue_total Runs that were left behind because their budget was used up or their caller's context had ended.
# TYPE recruit_job_overdue_total counter
recruit_job_overdue_total{name="blocks"} 1
recruit_job_overdue_total{name="fails"} 0
recruit_job_overdue_total{name="works"} 0
# HELP recruit_job_panicked_total Runs that panicked.
# TYPE recruit_job_panicked_total counter
recruit_job_panicked_total{name="blocks"} 0
recruit_job_panicked_total{name="fails"} 0
recruit_job_panicked_total{name="works"} 0
# HELP recruit_job_rate Probability with which a call draws the job.
# TYPE recruit_job_rate gauge
recruit_job_rate{name="blocks"} 0.25
recruit_job_rate{name="fails"} 0.25
recruit_job_rate{name="works"} 0.25
# HELP recruit_job_recruited_total Runs of the job.
# TYPE recruit_job_recruited_total counter
recruit_job_recruited_total{name="blocks"} 1
recruit_job_recruited_total{name="fails"} 2
recruit_job_recruited_total{name="works"} 3
# HELP recruit_job_running Runs with a waiting caller.
# TYPE recruit_job_running gauge
recruit_job_running{name="blocks"} 0
recruit_job_running{name="fails"} 0
recruit_job_running{name="works"} 0
# HELP recruit_job_seconds_total Total duration of the runs that have returned.
# TYPE recruit_job_seconds_total counter
recruit_job_seconds_total{name="blocks"} 0
recruit_job_seconds_total{name="fails"} 0
recruit_job_seconds_total{name="works"} 0.03
`
		require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(want)))

		close(let)
		synctest.Wait()
		const after = `
# HELP recruit_job_left_behind Runs that were left behind and have not returned.
# TYPE recruit_job_left_behind gauge
recruit_job_left_behind{name="blocks"} 0
recruit_job_left_behind{name="fails"} 0
recruit_job_left_behind{name="works"} 0
# HELP recruit_job_panicked_total Runs that panicked.
# TYPE recruit_job_panicked_total counter
recruit_job_panicked_total{name="blocks"} 1
recruit_job_panicked_total{name="fails"} 0
recruit_job_panicked_total{name="works"} 0
`
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
