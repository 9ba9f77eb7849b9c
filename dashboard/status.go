package dashboard

import (
	"net/http"
	"runtime"

	"github.com/f8949c05/orchestrator/dashboard/api"
)

// mostProblems bounds api.Status.Problems.
const mostProblems = 8

// status returns the state of the fleet.
func (v *view[W, T]) status() api.Status {
	problems := v.causes()
	return api.Status{
		Header: v.header(), Title: v.h.title, Summary: "", Progress: v.progress(),
		Problems: problems[:min(len(problems), mostProblems)], ProblemsTotal: len(problems),
		Workers: v.plan.Stats.Workers, Instances: v.plan.Stats.Instances, Changes: []api.RepeatedChange{},
	}
}

// findCauses returns what needs a person, the worst first.
func (v *view[W, T]) findCauses() []api.Problem { return []api.Problem{} }

// settings returns the settings in force and what the caller may do.
func (v *view[W, T]) settings(r *http.Request) api.Settings {
	return api.Settings{
		Header: v.header(), Config: v.lead.Config(), Go: runtime.Version(), Limit: mostRows,
		Writable: v.h.drain != nil && v.h.access(r) == WriteAccess,
	}
}
