package stats

// The metrics of recruiting. Each scrape reads them from the Recruiter, so calls of Enlist do
// not become slower.

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f8949c05/orchestrator/recruit"
)

// RecruitCollector exports the counts of a recruiter's jobs. Create one with
// [NewRecruitCollector] or [RegisterRecruiter]. Its methods may be called from any
// goroutine. The series of a job end when the job is uninstalled, but not when the recruiter is closed.
type RecruitCollector struct{ reader[recruits] }

// recruits is the counts of a recruiter.
type recruits struct {
	dismissed uint64
	jobs      []recruit.JobStats
}

var _ prometheus.Collector = (*RecruitCollector)(nil)

// NewRecruitCollector returns a collector for r. The caller must register it;
// [RegisterRecruiter] does both. NewRecruitCollector panics if r is nil.
func NewRecruitCollector(r *recruit.Recruiter, opts ...Option) *RecruitCollector {
	if r == nil {
		panic("stats: NewRecruitCollector of a nil Recruiter") //nolint:forbidigo // now, and not at each scrape
	}
	of := func(name, help string, of func(*recruit.JobStats) float64) metric[recruits] {
		return metric[recruits]{"job_" + name, help, []string{"name"}, func(r recruits, to *scrape) {
			for i := range r.jobs {
				to.put(of(&r.jobs[i]), labelOf(r.jobs[i].Name))
			}
		}}
	}
	return &RecruitCollector{reader[recruits]{newTable("recruit_", opts,
		metric[recruits]{"dismissed_total", "Calls that ran no job.", nil, one(func(r recruits) uint64 { return r.dismissed })},
		of("recruited_total", "Runs of the job.", func(j *recruit.JobStats) float64 { return float64(j.Recruited) }),
		of("dismissed_total", "Calls that drew the job but could not run it.", func(j *recruit.JobStats) float64 { return float64(j.Dismissed) }),
		of("failed_total", "Runs that returned an error or panicked.", func(j *recruit.JobStats) float64 { return float64(j.Failed) }),
		of("panicked_total", "Runs that panicked.", func(j *recruit.JobStats) float64 { return float64(j.Panicked) }),
		of("overdue_total", "Runs that were left behind because their budget was used up or their caller's context had ended.", func(j *recruit.JobStats) float64 { return float64(j.Overdue) }),
		of("seconds_total", "Total duration of the runs that have returned.", func(j *recruit.JobStats) float64 { return j.Spent.Seconds() }),
		of("rate", "Probability with which a call draws the job.", func(j *recruit.JobStats) float64 { return j.Rate }),
		of("running", "Runs with a waiting caller.", func(j *recruit.JobStats) float64 { return float64(j.Running) }),
		of("left_behind", "Runs that were left behind and have not returned.", func(j *recruit.JobStats) float64 { return float64(j.Behind) }),
	), func() recruits { return recruits{r.Dismissed(), r.Jobs()} }}}
}

// RegisterRecruiter creates a collector for r and registers it with reg. Use
// [WithConstLabels] for two recruiters in one process. It is an error if the labels
// are already in use, even by a collector for r, or if reg or r is nil.
func RegisterRecruiter(reg prometheus.Registerer, r *recruit.Recruiter, opts ...Option) (*RecruitCollector, error) {
	const doing = "stats: register recruiter"
	if r == nil {
		return nil, errors.New(doing + ": the Recruiter is nil")
	}
	return register(reg, doing, NewRecruitCollector(r, opts...))
}

// labelOf returns a name as a label: valid UTF-8, and unique. A name that begins
// with a quotation mark is quoted too, so that it differs from every quoted name.
func labelOf(name string) string {
	if utf8.ValidString(name) && !strings.HasPrefix(name, `"`) {
		return name
	}
	return strconv.Quote(name)
}
