// The metrics of recruiting. They are read from a Recruiter when Prometheus asks,
// so nothing is counted twice, and a call of Enlist pays for none of it.

package stats

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f8949c05/orchestrator/recruit"
)

// RecruitCollector shows what a recruiter's jobs have come to. Make one with
// [NewRecruitCollector] or [RegisterRecruiter]; its methods may be called from
// any goroutine.
type RecruitCollector struct {
	recruiter *recruit.Recruiter
	jobs      []jobMetric
	dismissed *prometheus.Desc
}

var _ prometheus.Collector = (*RecruitCollector)(nil)

// jobMetric is a metric that each job has.
type jobMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*recruit.JobStats) float64
}

// NewRecruitCollector returns a collector for r. It is registered by the caller,
// who may prefer [RegisterRecruiter]. It panics where r is nil.
func NewRecruitCollector(r *recruit.Recruiter, opts ...Option) *RecruitCollector {
	if r == nil {
		panic("stats: NewRecruitCollector of a nil Recruiter") //nolint:forbidigo // at once, and not at each scrape
	}
	o := optionsOf(opts)
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("recruit_"+name, help, labels, o.constLabels)
	}
	counter := func(name, help string, of func(*recruit.JobStats) float64) jobMetric {
		return jobMetric{desc("job_"+name, help, "name"), prometheus.CounterValue, of}
	}
	gauge := func(name, help string, of func(*recruit.JobStats) float64) jobMetric {
		return jobMetric{desc("job_"+name, help, "name"), prometheus.GaugeValue, of}
	}
	return &RecruitCollector{
		recruiter: r,
		dismissed: desc("dismissed_total", "Calls that recruited nobody."),
		jobs: []jobMetric{
			counter("recruited_total", "Recruits, by job.", func(j *recruit.JobStats) float64 { return float64(j.Recruited) }),
			counter("dismissed_total", "Calls that drew the job when it was not to be had.", func(j *recruit.JobStats) float64 { return float64(j.Dismissed) }),
			counter("failed_total", "Recruits that returned an error or panicked.", func(j *recruit.JobStats) float64 { return float64(j.Failed) }),
			counter("panicked_total", "Recruits that panicked.", func(j *recruit.JobStats) float64 { return float64(j.Panicked) }),
			counter("overdue_total", "Recruits that were left behind, for their budget was up or their caller had gone.", func(j *recruit.JobStats) float64 { return float64(j.Overdue) }),
			counter("seconds_total", "How long recruits took that have returned.", func(j *recruit.JobStats) float64 { return j.Spent.Seconds() }),
			gauge("rate", "Probability with which a call draws the job.", func(j *recruit.JobStats) float64 { return j.Rate }),
			gauge("running", "Recruits that somebody waits for.", func(j *recruit.JobStats) float64 { return float64(j.Running) }),
			gauge("left_behind", "Recruits that were left behind and have not returned.", func(j *recruit.JobStats) float64 { return float64(j.Behind) }),
		},
	}
}

// RegisterRecruiter makes a collector for r and registers it with reg. Two
// recruiters in one process are told apart by [WithConstLabels]; a second one
// with the same labels is an error, and so is the same one again. A nil reg or r
// is an error too.
func RegisterRecruiter(reg prometheus.Registerer, r *recruit.Recruiter, opts ...Option) (*RecruitCollector, error) {
	const doing = "stats: register recruiter"
	switch {
	case reg == nil:
		return nil, errors.New(doing + ": the Registerer is nil")
	case r == nil:
		return nil, errors.New(doing + ": the Recruiter is nil")
	}
	c := NewRecruitCollector(r, opts...)
	err := reg.Register(c)
	if _, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		return nil, fmt.Errorf("%s: there is one with these labels, WithConstLabels tells two apart: %w", doing, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return c, nil
}

// Describe implements [prometheus.Collector].
func (c *RecruitCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.dismissed
	for _, m := range c.jobs {
		ch <- m.desc
	}
}

// Collect implements [prometheus.Collector]. The series of a job end when it is
// uninstalled, not when the recruiter is closed.
func (c *RecruitCollector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(c.dismissed, prometheus.CounterValue, float64(c.recruiter.Dismissed()))
	for _, job := range c.recruiter.Jobs() {
		for _, m := range c.jobs {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.of(&job), labelOf(job.Name))
		}
	}
}

// labelOf returns the name as Prometheus takes it: in UTF-8, and none twice. What
// begins with a quote is quoted as well, so that it is no other name's quotation.
func labelOf(name string) string {
	if utf8.ValidString(name) && !strings.HasPrefix(name, `"`) {
		return name
	}
	return strconv.Quote(name)
}
