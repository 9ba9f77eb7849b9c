package stats

// The metrics of a worker and of a manager.

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f8949c05/orchestrator/worker"
)

// RegisterWorker registers with reg a collector for the lease and the tasks of w, which
// works with any transport. It returns the collector, for [prometheus.Registerer.Unregister].
// Use [WithConstLabels] for two workers in one process. It is an error if the labels
// are already in use, or if reg or w is nil.
func RegisterWorker[T comparable](reg prometheus.Registerer, w *worker.Worker[T], opts ...Option) (prometheus.Collector, error) {
	const doing = "stats: register worker"
	if w == nil {
		return nil, errors.New(doing + ": the Worker is nil")
	}
	type status struct {
		worker.LeaseStats
		failed uint64
		tasks  taskCounts
	}
	return register(reg, doing, &reader[*status]{newTable("orchestrator_", opts, append(
		taskMetrics("worker", func(s *status) *taskCounts { return &s.tasks }, "queued", "starting", "running", "backoff", "stopping", "completed", "failed"),
		metric[*status]{"worker_lease_left_seconds", "How long the worker runs its tasks without a further keepalive; 0 without a lease.", nil, one(func(s *status) float64 { return s.Left.Seconds() })},
		metric[*status]{"worker_keepalives_sent_total", "Requests for the worker's lease.", nil, one(func(s *status) uint64 { return s.Sent })},
		metric[*status]{"worker_keepalives_acknowledged_total", "Requests for the worker's lease that were acknowledged.", nil, one(func(s *status) uint64 { return s.Acknowledged })},
		metric[*status]{"worker_rejoins_total", "Rejoins of the worker, such as after a lost lease.", nil, one(func(s *status) uint64 { return s.Rejoins })},
		metric[*status]{"worker_failed_runs_total", "Runs of the worker's tasks that failed.", nil, one(func(s *status) uint64 { return s.failed })},
	)...), func() *status {
		s := &status{LeaseStats: w.LeaseStats(), failed: w.FailedRuns()}
		for _, t := range w.Status() {
			s.tasks.add(t.State.String(), t.Attempts, t.Failing)
		}
		return s
	}})
}

// Manager is the source of the metrics of [RegisterManager]. The Manager of package
// communicator/grpc/manager implements it.
//
// # Concurrency
//
// Each scrape calls both methods, from any goroutine.
//
// # Ownership
//
// The caller owns the map.
type Manager interface {
	// MemberCount returns how many workers are members.
	MemberCount() int
	// RefusedCalls returns how many calls of workers have been refused, by cause.
	RefusedCalls() map[string]uint64
}

// RegisterManager registers with reg a collector for the members of m and for the
// calls of workers that m refused. It returns the collector. Use [WithConstLabels]
// for two managers in one process. It is an error if the labels are already in use,
// or if reg or m is nil.
func RegisterManager(reg prometheus.Registerer, m Manager, opts ...Option) (prometheus.Collector, error) {
	const doing = "stats: register manager"
	if m == nil {
		return nil, errors.New(doing + ": the Manager is nil")
	}
	return register(reg, doing, &reader[Manager]{newTable("orchestrator_", opts,
		metric[Manager]{"manager_members", "Workers that are members.", nil, one(Manager.MemberCount)},
		metric[Manager]{"manager_refused_calls_total", "Calls of workers that the manager refused, by cause.", []string{"cause"}, func(m Manager, to *scrape) {
			for cause, n := range m.RefusedCalls() {
				to.put(float64(n), cause)
			}
		}},
	), func() Manager { return m }})
}

// taskCounts counts the tasks of a worker or a replica.
type taskCounts struct {
	in      map[string]int // by state
	failing int
	first   time.Time
}

func (c *taskCounts) add(state string, attempts int, failing time.Time) {
	const many = 3
	if c.in == nil {
		c.in = make(map[string]int)
	}
	if c.in[state]++; attempts < many && state != "failed" {
		return
	}
	if c.failing++; c.first.IsZero() || failing.Before(c.first) {
		c.first = failing
	}
}

// taskMetrics returns the metrics of the tasks of a worker or a replica, which are in one of some states.
func taskMetrics[S any](of string, tasks func(S) *taskCounts, states ...string) []metric[S] {
	return []metric[S]{
		{of + "_tasks", "Tasks of the " + of + ", by state.", []string{"state"}, func(s S, to *scrape) {
			for _, state := range states {
				to.put(float64(tasks(s).in[state]), state)
			}
		}},
		{of + "_failing_tasks", "Tasks of the " + of + " that have failed three times in a row or more.", nil, one(func(s S) int { return tasks(s).failing })},
		{of + "_failing_seconds", "How long the first of the failing tasks of the " + of + " has been failing; 0 without any.", nil, one(func(s S) float64 { return age(tasks(s).first) })},
	}
}
