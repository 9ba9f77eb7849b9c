package admin

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/stats"
)

// New returns the handler of a replica, to be served for as long as the process lives. It may be
// served before Run. The options are those of the dashboard; a later one replaces what New sets:
// dashboard.WithTaskStates, dashboard.WithProblems, which has what is wrong with the Source, and dashboard.WithLeader, which has the leader's attribute
// "dashboard" (replica.WithAttributes), or else its name. New must be called once for a replica.
//
// The error wraps orchestrator.ErrInvalid if r is nil or an option is out of range.
func New(r *replica.Replica, opts ...dashboard.Option) (http.Handler, error) {
	if r == nil {
		return nil, fmt.Errorf("admin: %w: the replica is nil", orchestrator.ErrInvalid)
	}
	pages, err := dashboard.New(append([]dashboard.Option{
		dashboard.WithLeader(func() string { return leader(r) }),
		dashboard.WithProblems(func() []dashboard.Problem { return problems(r.Status()) }),
		dashboard.WithTaskStates(func(w replica.WorkerID) []dashboard.TaskState[string] { return states(r, w) }),
	}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	dashboard.Lead(pages, r)
	own := prometheus.NewRegistry()
	if _, err := stats.RegisterReplica(own, r.Status); err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	terms := &terms{Collector: stats.NewCollector(), r: r}
	own.MustRegister(terms) // nothing else is registered
	r.OnTerm(func(s *orchestrator.Snapshot[replica.WorkerID, string]) {
		if of := s.Plan().Stats; !of.Observed {
			terms.Observe(of)
		}
	})
	mux := http.NewServeMux()
	mux.Handle("GET /livez", probe(r.Alive, "the loop of this replica hangs"))
	mux.Handle("GET /readyz", probe(r.Ready, "this replica holds no lease"))
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{own, prometheus.DefaultGatherer}, promhttp.HandlerOpts{}))
	mux.Handle("/dashboard/", http.StripPrefix("/dashboard", pages))
	mux.Handle("GET /{$}", http.RedirectHandler("dashboard/", http.StatusFound))
	return mux, nil
}

// probe answers as f says. Anybody may ask, so the answer has not its error, which may name the database and
// its user: the log and the dashboard have it.
func probe(f func() error, failed string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if f() != nil {
			http.Error(w, failed+"; its log and its dashboard say why", http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok") // the caller has gone
	})
}

// leader returns where the leader's dashboard is, or who leads.
func leader(r *replica.Replica) string {
	s := r.Status()
	for i := range s.Members {
		if m := &s.Members[i]; m.ID == s.LeaderID {
			return cmp.Or(m.Attributes["dashboard"], m.Name)
		}
	}
	return ""
}

// states returns what a replica has reported of its tasks.
func states(r *replica.Replica, w replica.WorkerID) []dashboard.TaskState[string] {
	reported := r.States(w)
	out := make([]dashboard.TaskState[string], len(reported))
	for i, s := range reported {
		out[i] = dashboard.TaskState[string]{Task: s.Task, State: s.State, Err: s.Err, Attempts: s.Attempts, Since: s.Since, Failing: s.Failing}
	}
	return out
}

// sourceLate is how long a Source may fail until a person is needed.
const sourceLate = 10 * time.Second

// problems returns what is wrong with the Source of a replica.
func problems(s replica.Status) (all []dashboard.Problem) {
	if !s.Source.Failing.IsZero() && time.Since(s.Source.Failing) >= sourceLate {
		all = append(all, dashboard.Problem{Kind: "source failing", Since: s.Source.Failing, Err: s.Source.Err})
	}
	if s.Source.Kept > 0 {
		all = append(all, dashboard.Problem{Kind: "brake", Since: s.Source.Braked})
	}
	for _, task := range slices.Sorted(maps.Keys(s.BadRows)) {
		return append(all, dashboard.Problem{Kind: "bad rows", Since: s.Source.BadSince, Task: task, Err: s.BadRows[task]})
	}
	return all
}

// terms are the metrics of terms. Their gauges are there only while the replica leads.
type terms struct {
	*stats.Collector
	r *replica.Replica
}

// Collect implements [prometheus.Collector].
func (t *terms) Collect(ch chan<- prometheus.Metric) {
	if !t.r.Status().Leading {
		t.Forget()
	}
	t.Collector.Collect(ch)
}
