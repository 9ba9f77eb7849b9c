package stats

// The metrics of a worker and of a manager. Each scrape reads them from their
// source, so there is no second count.

import (
	"errors"
	"fmt"
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
	f := figures{constLabels: optionsOf(opts).constLabels}
	left := f.gauge("worker_lease_left_seconds", "How long the worker runs its tasks without a further keepalive; 0 without a lease.")
	sent := f.counter("worker_keepalives_sent_total", "Requests for the worker's lease.")
	acknowledged := f.counter("worker_keepalives_acknowledged_total", "Requests for the worker's lease that were acknowledged.")
	rejoins := f.counter("worker_rejoins_total", "Rejoins of the worker, such as after a lost lease.")
	tasks := f.tasks("worker", "queued", "starting", "running", "backoff", "stopping", "completed", "failed")
	f.collect = func(emit emitter) {
		all := &taskCounts{in: make(map[string]int)}
		for _, t := range w.Status() {
			all.add(t.State.String(), t.Attempts, t.Failing)
		}
		tasks.emit(emit, all)
		s := w.LeaseStats()
		emit(left, s.Left.Seconds())
		emit(sent, float64(s.Sent))
		emit(acknowledged, float64(s.Acknowledged))
		emit(rejoins, float64(s.Rejoins))
	}
	return f.register(reg, doing)
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
	f := figures{constLabels: optionsOf(opts).constLabels}
	members := f.gauge("manager_members", "Workers that are members.")
	refused := f.counter("manager_refused_calls_total", "Calls of workers that the manager refused, by cause.", "cause")
	f.collect = func(emit emitter) {
		emit(members, float64(m.MemberCount()))
		for cause, n := range m.RefusedCalls() {
			emit(refused, float64(n), cause)
		}
	}
	return f.register(reg, doing)
}

// taskFigures are the figures of the tasks of one process.
type taskFigures struct {
	states         []string
	tasks          figure
	failing, since figure
}

// tasks adds the figures of the tasks of a worker or a replica, which are in one of some states.
func (f *figures) tasks(of string, states ...string) taskFigures {
	return taskFigures{
		states:  states,
		tasks:   f.gauge(of+"_tasks", "Tasks of the "+of+", by state.", "state"),
		failing: f.gauge(of+"_failing_tasks", "Tasks of the "+of+" that have failed three times in a row or more."),
		since:   f.gauge(of+"_failing_seconds", "How long the first of the failing tasks of the "+of+" has been failing; 0 without any."),
	}
}

// taskCounts counts tasks for taskFigures.
type taskCounts struct {
	in      map[string]int // by state
	failing int
	first   time.Time
}

func (c *taskCounts) add(state string, attempts int, failing time.Time) {
	const many = 3
	if c.in[state]++; attempts < many && state != "failed" {
		return
	}
	if c.failing++; c.first.IsZero() || failing.Before(c.first) {
		c.first = failing
	}
}

func (t *taskFigures) emit(emit emitter, c *taskCounts) {
	for _, state := range t.states {
		emit(t.tasks, float64(c.in[state]), state)
	}
	emit(t.failing, float64(c.failing))
	emit(t.since, age(c.first))
}

// age returns how long ago a time was, in seconds; 0 if it is zero.
func age(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return time.Since(t).Seconds()
}

// figures is a collector whose values are read at each scrape.
type figures struct {
	constLabels prometheus.Labels
	all         []figure
	collect     func(emitter)
}

// emitter sends the value of a figure.
type emitter func(f figure, v float64, labels ...string)

type figure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func (f *figures) gauge(name, help string, labels ...string) figure {
	return f.add(name, help, prometheus.GaugeValue, labels)
}

func (f *figures) counter(name, help string, labels ...string) figure {
	return f.add(name, help, prometheus.CounterValue, labels)
}

func (f *figures) add(name, help string, kind prometheus.ValueType, labels []string) figure {
	added := figure{prometheus.NewDesc("orchestrator_"+name, help, labels, f.constLabels), kind}
	f.all = append(f.all, added)
	return added
}

// Describe implements [prometheus.Collector].
func (f *figures) Describe(ch chan<- *prometheus.Desc) {
	for _, one := range f.all {
		ch <- one.desc
	}
}

// Collect implements [prometheus.Collector].
func (f *figures) Collect(ch chan<- prometheus.Metric) {
	f.collect(func(one figure, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(one.desc, one.kind, v, labels...)
	})
}

func (f *figures) register(reg prometheus.Registerer, doing string) (prometheus.Collector, error) {
	if reg == nil {
		return nil, errors.New(doing + ": the Registerer is nil")
	}
	err := reg.Register(f)
	if _, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		return nil, fmt.Errorf("%s: labels already in use, add WithConstLabels: %w", doing, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return f, nil
}
