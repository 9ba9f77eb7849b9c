package stats

// The metrics of recruiting. Each scrape reads them from the Recruiter, so there is
// no second count, and calls of Enlist do not become slower.

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f8949c05/orchestrator/recruit"
)

// RecruitCollector exports the counts of a recruiter's jobs. Create one with
// [NewRecruitCollector] or [RegisterRecruiter]. Its methods may be called from any
// goroutine.
type RecruitCollector struct {
	recruiter *recruit.Recruiter
	jobs      []jobMetric
	dismissed *prometheus.Desc
}

var _ prometheus.Collector = (*RecruitCollector)(nil)

// jobMetric is a metric with one value per job.
type jobMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*recruit.JobStats) float64
}

// NewRecruitCollector returns a collector for r. The caller must register it;
// [RegisterRecruiter] does both. NewRecruitCollector panics if r is nil.
func NewRecruitCollector(r *recruit.Recruiter, opts ...Option) *RecruitCollector {
	if r == nil {
		panic("stats: NewRecruitCollector of a nil Recruiter") //nolint:forbidigo // now, and not at each scrape
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
		dismissed: desc("dismissed_total", "Calls that ran no job."),
		jobs: []jobMetric{
			counter("recruited_total", "Runs of the job.", func(j *recruit.JobStats) float64 { return float64(j.Recruited) }),
			counter("dismissed_total", "Calls that drew the job but could not run it.", func(j *recruit.JobStats) float64 { return float64(j.Dismissed) }),
			counter("failed_total", "Runs that returned an error or panicked.", func(j *recruit.JobStats) float64 { return float64(j.Failed) }),
			counter("panicked_total", "Runs that panicked.", func(j *recruit.JobStats) float64 { return float64(j.Panicked) }),
			counter("overdue_total", "Runs that were left behind because their budget was used up or their caller's context had ended.", func(j *recruit.JobStats) float64 { return float64(j.Overdue) }),
			counter("seconds_total", "Total duration of the runs that have returned.", func(j *recruit.JobStats) float64 { return j.Spent.Seconds() }),
			gauge("rate", "Probability with which a call draws the job.", func(j *recruit.JobStats) float64 { return j.Rate }),
			gauge("running", "Runs with a waiting caller.", func(j *recruit.JobStats) float64 { return float64(j.Running) }),
			gauge("left_behind", "Runs that were left behind and have not returned.", func(j *recruit.JobStats) float64 { return float64(j.Behind) }),
		},
	}
}

// RegisterRecruiter creates a collector for r and registers it with reg. Use
// [WithConstLabels] for two recruiters in one process. It is an error if the labels
// are already in use, even by a collector for r, or if reg or r is nil.
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
		return nil, fmt.Errorf("%s: labels already in use, add WithConstLabels: %w", doing, err)
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

// Collect implements [prometheus.Collector]. The series of a job end when the job is
// uninstalled, but not when the recruiter is closed.
func (c *RecruitCollector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(c.dismissed, prometheus.CounterValue, float64(c.recruiter.Dismissed()))
	for _, job := range c.recruiter.Jobs() {
		for _, m := range c.jobs {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.of(&job), labelOf(job.Name))
		}
	}
}

// labelOf returns a name as a label: valid UTF-8, and unique. A name that begins
// with a quotation mark is quoted too, so that it differs from every quoted name.
func labelOf(name string) string {
	if utf8.ValidString(name) && !strings.HasPrefix(name, `"`) {
		return name
	}
	return strconv.Quote(name)
}
